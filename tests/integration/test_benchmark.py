"""A tiny benchmark of each mode: that it runs, and that its JSON has rows of each contender. No timing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from demo import processes

pytestmark = pytest.mark.chaos

ROOT = Path(__file__).parents[2]
SECONDS = 840
SHORT = ["--rows", "0.001", "--repeats", "1", "--warm-ups", "0"]
CIRCUMSTANCES = {"cpu", "cores", "memory_gib", "load_before", "python", "java", "kafka", "spark-eos", "pyspark"}
#: Of these, a run tells how long something took, and not how many rows there were.
TIMED = {"shapes": "took_ms", "start": "first_row_s"}


@pytest.mark.parametrize(
    "modes",
    [
        ["source"],
        ["pipeline"],
        ["latency", "writes", "shapes"],
        ["start"],
        ["registry"],
        ["ingest", "to-delta", "from-delta", "freshness"],
    ],
    ids=" ".join,
)
def test_a_mode_runs_and_reports(modes: list[str], tmp_path: Path):
    """A few thousand rows; every contender has read, and where it writes written, each of them: else the job fails."""
    out = tmp_path / "out"
    job = subprocess.Popen(
        [sys.executable, "-m", "bench", *modes, *SHORT, "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    try:
        table, said = job.communicate(timeout=SECONDS)
    finally:
        if job.poll() is None:
            processes.kill(job.pid)
            job.communicate()
    assert job.returncode == 0, said
    for mode in modes:
        assert f"{mode}: 1 run; × is the ratio of" in table
        result = json.loads((out / f"{mode}.json").read_text())
        assert (result["mode"], result["circumstances"].keys() >= CIRCUMSTANCES) == (mode, True)
        assert result["baseline"] in {series["name"] for series in result["series"]}
        for series in result["series"]:
            (run,) = series["runs"]
            assert run[TIMED.get(mode, "rows")] > 0, series["name"]
    assert not [left for left in tmp_path.iterdir() if left.name.startswith("spark-eos-bench")]
