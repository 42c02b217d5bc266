"""What tells a query that spins from one that works and waits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from demo.processes import children
from jobs.runner import fork_server, forked_python
from spark_eos.tools.devcluster import watchdog
from tests.support.judges import processor
from tests.support.judges.processor import Load
from tests.support.spark.forks import patient
from tests.support.waiting import TIMEOUT, wait_for

USED_S = 0.3
SPINS = "import sys, time\nwhile time.process_time() < 0.5: pass\nprint(flush=True); sys.stdin.read()"


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
    process = query(SPINS)
    assert process.stdout is not None and process.stdin is not None
    process.stdout.readline()
    used = load.used_s()
    assert used >= USED_S
    process.stdin.close()
    assert process.wait(TIMEOUT) == 0
    assert load.check() >= used


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no Python process is a fork of a server")
def test_a_worker_of_the_tests_session_counts(tmp_path, monkeypatch):
    """It is a fork of a server, by whose name it goes."""
    (tmp_path / "spins.py").write_text(SPINS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setattr(fork_server, "_running", [])
    monkeypatch.setattr(forked_python, "__file__", patient(tmp_path))
    added = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    program = fork_server.start({})
    assert program is not None
    with subprocess.Popen(
        [program, "-m", "spins"], env={**os.environ, **added}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as fork:
        assert fork.stdout is not None
        fork.stdout.readline()
        (forked,), used = children(fork_server.pids()), processor._used_s()
    for server in fork_server._running:
        server.communicate(timeout=TIMEOUT)
    assert used[forked] >= USED_S


def test_a_daemon_of_a_program_counts(tmp_path):
    """By whatever module Spark has been told to start its workers."""
    (tmp_path / "our_daemon.py").write_text(SPINS)
    load = Load()
    with subprocess.Popen(
        [sys.executable, "-m", "our_daemon"], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as daemon:
        assert daemon.stdout is not None
        daemon.stdout.readline()
        assert load.used_s() >= USED_S


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
