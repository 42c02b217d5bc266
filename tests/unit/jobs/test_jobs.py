"""What holds for every job: how it finds what jobs share, and what is not installed."""

from __future__ import annotations

import ast
import configparser
import subprocess
import sys
from pathlib import Path

import pytest

from jobs import JOBS
from jobs.installed import check_installed
from spark_eos.errors import UnsupportedError

ROOT = Path(__file__).parents[3]


def modules_of_the_wheel() -> list[str]:
    """Below `jobs`, with a dot where they are in a package of their own."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    packages = [name for name in setup["options"]["packages"].split() if name.startswith("spark_eos.jobs")]
    files = [file for name in packages for file in ROOT.joinpath(*name.split(".")[1:]).glob("*.py")]
    return sorted(".".join(file.relative_to(ROOT / "jobs").with_suffix("").parts) for file in files)


@pytest.mark.parametrize("name", modules_of_the_wheel())
def test_modules_of_the_wheel_import_one_another_by_relative_names(name: str):
    """In the wheel there is no package `jobs`, or it is somebody else's; and what they import is in the wheel, too."""
    package = [] if "." not in name else name.split(".")[:1]
    for node in ast.walk(ast.parse(Path(ROOT, "jobs", *name.split(".")).with_suffix(".py").read_text())):
        if isinstance(node, ast.Import):
            assert not [each.name for each in node.names if each.name.partition(".")[0] == "jobs"]
        elif isinstance(node, ast.ImportFrom) and node.level:
            assert node.level <= 1 + len(package)
            folder = [*package[: 1 + len(package) - node.level], *(node.module or "").split(".")]
            if Path(ROOT, "jobs", *folder).is_dir():
                imported = [".".join(filter(None, [*folder, each.name])) for each in node.names]
            else:
                imported = [".".join(folder)]
            assert set(imported) <= set(modules_of_the_wheel())
        elif isinstance(node, ast.ImportFrom):
            assert str(node.module).partition(".")[0] != "jobs"


def test_jobs_of_delta_tables_are_there_without_deltas_own_module():
    """Past the JVM nobody needs it."""
    names = ", ".join(f"jobs.{name}" for name in JOBS if "delta" in name)
    code = f"import sys; sys.modules['delta'] = None; import {names}"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.parametrize(
    ("name", "extras", "gone", "says"),
    [
        ("mirror", (), ("yaml", "pydantic"), "yaml, pydantic. Hint: .*'spark-eos\\[jobs\\]'"),
        (
            "kafka_to_delta",
            ("sql", "registry"),
            ("deltalake", "duckdb", "ptars"),
            "'spark-eos\\[tables,sql,registry\\]'",
        ),
        ("kafka_to_iceberg", (), ("pyiceberg", "delta"), "installed: pyiceberg. Hint"),
        ("kafka_to_delta", ("delta",), ("delta",), "replaces Spark 4.3 by 4.2"),
    ],
)
def test_all_that_is_not_installed_is_named_at_once(name, extras, gone, says, not_installed):
    """With the one command that installs it."""
    for module in gone:
        not_installed(module)
    with pytest.raises(UnsupportedError, match=says):
        check_installed(name, extras)
