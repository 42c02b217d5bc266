"""A short share of the soak, with faults that are the same every day."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.queries.data_paths import also_by
from tests.support.waiting import PROGRAM_S

pytestmark = pytest.mark.chaos

SECONDS = 25
SEED = 1


@also_by("copy", "transform", "mirror")
@pytest.mark.parametrize("more", [[], ["--two-phase"]], ids=["", "two-phase"])
def test_a_short_soak(more, way):
    """The program says that all is well, by its words and its exit code."""
    command = [sys.executable, "-m", "tests.chaos.soak", "--seconds", str(SECONDS), "--seed", str(SEED), "--way", way]
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [*command, *more], cwd=root, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PROGRAM_S
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    assert "all is well" in run.stdout
