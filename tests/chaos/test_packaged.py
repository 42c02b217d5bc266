"""A cluster whose Python has nothing installed: the package comes with the application, or one error says that it is
missing."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import spark_eos
from spark_eos import cli
from tests.support import query
from tests.support.bare import ROOT
from tests.support.kafka_view import write
from tests.support.recorder import Recorded, judged
from tests.support.standalone import standalone

pytestmark = pytest.mark.chaos

ROWS = [(p, f"{p}.{i}") for p in (0, 1) for i in range(20)]
END_S = 200.0


@pytest.fixture
def spec(view, topic, tmp_path: Path) -> Iterator[query.Spec]:
    """What readers of the output see during the test is judged at its end."""
    source, out = topic(2), topic(2)
    write(view.bootstrap_servers, source, ROWS, commit=True)
    made = query.Spec(view.bootstrap_servers, source, out, str(tmp_path / "checkpoint"), f"group-{out}", 40)
    with judged(view, Recorded(made)):
        yield made


def packed(folder: Path) -> Path:
    """What docs/clusters.md says."""
    archive = folder / "packages.tar.gz"
    assert cli.main(["package", str(archive)]) == 0
    return archive


def run(spec: query.Spec, folder: Path) -> subprocess.CompletedProcess[str]:
    """The query by a Python that has nothing, on executors; the driver has all by its path."""
    venv.create(folder / "empty", symlinks=True)
    path = [str(ROOT), *(entry for entry in sys.path if entry.endswith("site-packages"))]
    environment = os.environ | {
        "PYSPARK_PYTHON": str(folder / "empty" / "bin" / "python"),
        "PYTHONPATH": os.pathsep.join(path),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    held, end = os.pipe()  # the program ends with its standard input
    try:
        command = [sys.executable, query.__file__, spec.to_json()]
        return subprocess.run(
            command, env=environment, stdin=held, capture_output=True, text=True, check=False, timeout=END_S
        )
    finally:
        os.close(held)
        os.close(end)


def test_the_package_comes_with_the_application(view, spec, tmp_path):
    """As an archive that executors unpack: two hosts, each row once."""
    (tmp_path / "packed").mkdir()
    archive = packed(tmp_path / "packed")
    conf = {"spark.archives": f"{archive}#packages", "spark.executorEnv.PYTHONPATH": "packages"}
    with standalone(tmp_path / "spark") as cluster:
        done = run(replace(spec, master=cluster.master, conf=conf), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert Counter(view.values(spec.output)) == Counter(query.expected(value) for _, value in ROWS)
    assert view.group(spec.group, spec.input) == view.ends(spec.input)


def test_executors_without_the_package_are_one_clear_error(view, spec, tmp_path):
    """What Spark says is a stack of cloudpickle's; the reason says what is missing and where."""
    with standalone(tmp_path / "spark") as cluster:
        done = run(replace(spec, master=cluster.master, conf={"spark.executorEnv.PYTHONPATH": ""}), tmp_path)
    assert done.returncode != 0
    found = spark_eos.reason(Exception(done.stderr))
    assert found is not None and found.condition == "EOS_EXECUTOR_WITHOUT_PACKAGE", done.stderr[-6000:]
    assert "has no module" in found.message and "docs/clusters.md" in found.hint
    assert view.values(spec.output) == []
