"""What tells a query that spins from one that works and waits."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.judges.processor import Load
from tests.support.waiting import wait_for

USED_S = 0.3


def test_a_process_that_spins_is_told(tmp_path):
    """It uses more than work explains, and more than half of the time that it is given."""
    query = tmp_path / "query.py"  # the name of the tests' queries
    query.write_text("while True: pass")
    load = Load()
    with subprocess.Popen([sys.executable, str(query), ""]) as process:
        wait_for(lambda: load.used_s() >= USED_S, "the processor time")
        with pytest.raises(AssertionError, match="something spins"):
            load.check(work_s=USED_S / 2, cores=0.0)
        process.kill()
