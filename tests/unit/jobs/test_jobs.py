"""What holds for every job: its name, its example, how it finds what jobs share."""

from __future__ import annotations

import ast
import configparser
import importlib
from pathlib import Path

import pytest

from jobs import JOBS

ROOT = Path(__file__).parents[3]


def modules_of_the_wheel() -> list[str]:
    """Below `jobs`, with a dot where they are in a package of their own."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    prefix = "spark_eos.jobs."
    alone = [name.removeprefix(prefix) for name in setup["options"]["py_modules"].split()]
    packages = [name.removeprefix(prefix) for name in setup["options"]["packages"].split() if name.startswith(prefix)]
    inside = [f"{name}.{file.stem}" for name in packages for file in (ROOT / "jobs" / name).glob("*.py")]
    return sorted(alone + inside)


@pytest.mark.parametrize("name", JOBS)
def test_each_job_has_a_command_line_an_example_and_a_place_in_the_wheel(name: str):
    """What `spark-eos run` lists can be run, and conf/ shows how."""
    assert callable(importlib.import_module(f"jobs.{name}").main)
    assert (ROOT / "conf" / f"{name}.yaml").exists()
    assert name in modules_of_the_wheel()


@pytest.mark.parametrize("name", modules_of_the_wheel())
def test_modules_of_the_wheel_import_one_another_by_relative_names(name: str):
    """In the wheel there is no package `jobs`, or it is somebody else's; and what they import is in the wheel, too."""
    package, _, _ = name.rpartition(".")
    for node in ast.walk(ast.parse(Path(ROOT, "jobs", *name.split(".")).with_suffix(".py").read_text())):
        if isinstance(node, ast.Import):
            assert not [each.name for each in node.names if each.name.partition(".")[0] == "jobs"]
        elif isinstance(node, ast.ImportFrom) and node.level:
            assert node.level <= 1 + bool(package)
            beside = f"{package}." if package and node.level == 1 else ""
            imported = [node.module] if node.module else [each.name for each in node.names]
            assert {f"{beside}{each}" for each in imported} <= set(modules_of_the_wheel())
        elif isinstance(node, ast.ImportFrom):
            assert str(node.module).partition(".")[0] != "jobs"
