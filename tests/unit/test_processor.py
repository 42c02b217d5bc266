"""What tells a query that spins from one that works and waits."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from spark_eos.tools.devcluster import watchdog
from tests.support.judges import processor
from tests.support.judges.processor import Load
from tests.support.waiting import wait_for

USED_S = 0.3
SPINS = "import sys, time\nwhile time.process_time() < 0.5: pass\nprint(flush=True); sys.stdin.read()"


def test_a_process_that_spins_is_told(tmp_path, monkeypatch):
    """It uses more than work explains, and more than half of the time that it is given."""
    monkeypatch.setattr(processor, "WORK_S", USED_S / 2)
    monkeypatch.setattr(processor, "CORES", 0.0)
    query = tmp_path / "query.py"  # the name of the tests' queries
    query.write_text("while True: pass")
    load = Load()
    with subprocess.Popen([sys.executable, str(query), ""]) as process:
        wait_for(lambda: load.used_s() >= USED_S, "the processor time")
        with pytest.raises(AssertionError, match="something spins"):
            load.check()
        process.kill()


def test_a_broker_does_not_count(tmp_path):
    """Neither it nor the watchdog that started it: brokers may work as they like."""
    (tmp_path / "broker.py").write_text(SPINS)
    broker = [sys.executable, str(tmp_path / "broker.py"), "kafka.Kafka", "server.properties"]
    command = [sys.executable, "-I", "-S", watchdog.__file__, str(os.getpid()), "", "--", *broker]
    load = Load()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stderr.readline()
        assert load.used_s() < USED_S
