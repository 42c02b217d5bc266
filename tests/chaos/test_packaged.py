"""A cluster whose Python has nothing installed: the package comes with the application. Without that, one error says
that it is missing: tests/integration/test_quickstart.py."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import Distribution
from pathlib import Path

import pyspark
import pytest

from tests.support.kills import query
from tests.support.kills.scene import each_is_there_once, fed_query
from tests.support.runs import installed_wheel as bare
from tests.support.runs.installed_wheel import ROOT, build_wheel, dependencies
from tests.support.spark.standalone import standalone
from tests.support.waiting import PROGRAM_S

pytestmark = pytest.mark.chaos


@pytest.fixture
def spec(view, topic, way, tmp_path: Path) -> Iterator[query.Spec]:
    with fed_query(view, topic, tmp_path, way) as made:
        yield made


def environment(folder: Path) -> Path:
    """``environment.tar.gz`` as docs/clusters.md makes it, and beside it the environment that is in it: the wheel and
    what it requires, without Spark."""
    (folder / "wheel").mkdir()
    wheel, place = build_wheel(folder / "wheel"), folder / "environment"
    venv.create(place, symlinks=True)
    (site,) = place.glob("lib/python*/site-packages")
    for dependency in dependencies(wheel):
        if dependency.name not in ("pyspark", "py4j"):
            copied(dependency, site)
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", str(place / "bin/python"))
    bare.run(*pip, "install", "--no-index", "--no-deps", str(wheel))
    archive = folder / "environment.tar.gz"
    fast = ("--compress-level", "1", "--quiet")
    bare.run(sys.executable, "-m", "venv_pack", "--prefix", str(place), "--output", str(archive), *fast)
    return archive


def copied(dependency: Distribution, site: Path) -> None:
    """All that the distribution has in its site-packages; its programs are left out."""
    for name in {file.parts[0] for file in dependency.files or ()} - {"..", "__pycache__"}:
        source = Path(str(dependency.locate_file(name)))
        if source.is_dir():
            shutil.copytree(source, site / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, site / name)


def submitted(spec: query.Spec, archive: Path) -> subprocess.CompletedProcess[str]:
    """The query by spark-submit, as docs/clusters.md starts it, where nothing but the archive has the package. The
    program's own modules come beside it."""
    home = Path(pyspark.__file__).parent
    others = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
    variables = {
        "PYSPARK_PYTHON": "environment/bin/python",
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    own = archive.parent / "own.zip"
    with zipfile.ZipFile(own, "w") as modules:
        for name in ("bench/__init__.py", "bench/compare/__init__.py", "bench/compare/ending.py"):
            modules.write(ROOT / name, name)
    files = ("--archives", f"{archive}#environment", "--py-files", str(own))
    command = [str(home / "bin" / "spark-submit"), "--master", spec.master, *files, query.__file__, spec.to_json()]
    return ended(command, others | variables, archive.parent)


def ended(command: list[str], variables: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """A program that has run in this folder, to its end."""
    held, end = os.pipe()  # the program ends with its standard input
    try:
        return subprocess.run(
            command,
            env=variables,
            cwd=folder,
            stdin=held,
            capture_output=True,
            text=True,
            check=False,
            timeout=PROGRAM_S,
        )
    finally:
        os.close(held)
        os.close(end)


def test_the_package_comes_with_the_application(view, spec, tmp_path):
    """In an archive of a virtual environment, which executors unpack: two hosts, each row once."""
    (tmp_path / "packed").mkdir()
    archive = environment(tmp_path / "packed")
    with standalone(tmp_path / "spark") as cluster:
        done = submitted(replace(spec, master=cluster.master), archive)
    assert done.returncode == 0, done.stdout + done.stderr
    each_is_there_once(view, spec)
    assert view.group(spec.group, spec.input) == view.ends(spec.input)
