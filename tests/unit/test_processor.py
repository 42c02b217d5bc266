"""What tells a query that spins from one that works and waits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import processor
from tests.support.processor import Load
from tests.support.waiting import wait_for

USED_S = 0.3


@pytest.fixture
def query(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """``query(program)`` starts it under the name of the tests' queries."""
    made: list[subprocess.Popen[bytes]] = []
    file = tmp_path / "query.py"

    def start(program: str) -> subprocess.Popen[bytes]:
        file.write_text(program)
        made.append(subprocess.Popen([sys.executable, str(file), ""], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        return made[-1]

    yield start
    for process in made:
        with process:
            process.kill()


def test_a_process_that_spins_is_told(query, monkeypatch):
    """It uses more than work explains, and more than half of the time that it is given."""
    monkeypatch.setattr(processor, "WORK_S", USED_S / 2)
    monkeypatch.setattr(processor, "CORES", 0.0)
    load = Load()
    query("while True: pass")
    wait_for(lambda: load.used_s() >= USED_S, "the processor time")
    with pytest.raises(AssertionError, match="something spins"):
        load.check()


def test_what_an_ended_process_has_used_still_counts(query):
    """As far as it was seen before its end."""
    load = Load()
    process = query("import sys, time\nwhile time.process_time() < 0.5: pass\nprint(flush=True); sys.stdin.read()")
    assert process.stdout is not None and process.stdin is not None
    process.stdout.readline()
    used = load.used_s()
    assert used >= USED_S
    process.stdin.close()
    assert process.wait(10) == 0
    assert load.check() >= used
