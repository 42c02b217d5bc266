"""The system kills one process of a job, as where memory is out: each of the Python processes beside its JVM, once."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from demo import processes
from tests.support.judges.kafka_view import write
from tests.support.kills.job_program import log_of, started
from tests.support.waiting import PROGRAM_S, wait_for

pytestmark = [pytest.mark.chaos, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

CONFIG = """\
kafka: {{bootstrap.servers: "{servers}"}}
source: {{subscribe: {source}, startingOffsets: earliest}}
transform: {{{transform}}}
sink: {{topic: {target}}}
checkpoint: "{checkpoint}"
trigger: 0 seconds
restart: {{attempts: 9, pause: 10 milliseconds}}
spark: {{spark.master: "local[1]", spark.ui.enabled: false, spark.driver.host: 127.0.0.1,
         spark.driver.bindAddress: 127.0.0.1}}
"""
TRANSFORMS = {"spark": 'sql: "SELECT value FROM input"', "copy": 'engine: duckdb, sql: "SELECT value FROM input"'}


def python_processes(job: int) -> list[processes.Process]:
    """Python processes below the job's: the fork server, the programs that Spark starts, their forks, and their own."""

    def is_python(process: processes.Process) -> bool:
        try:
            return Path(f"/proc/{process.pid}/exe").resolve().name.startswith("python")
        except OSError:
            return False

    return [process for process in processes.descendants(job) if is_python(process)]


@pytest.mark.parametrize("way", TRANSFORMS)
@pytest.mark.parametrize("forks", [True, False], ids=["forks", "no forks"])
def test_each_python_process_of_a_job_is_killed_once(way, forks, view, topic, tmp_path):
    """The job goes on, by restarts that it gives a reason for, and each row is there once."""
    source, target = topic(1), topic(1)
    name, file = "consume_transform_produce", tmp_path / "job.yaml"
    log = log_of(name, tmp_path)
    servers, checkpoint = view.bootstrap_servers, tmp_path / "checkpoint"
    names = {"servers": servers, "source": source, "target": target, "checkpoint": checkpoint}
    file.write_text(CONFIG.format(transform=TRANSFORMS[way], **names))
    written = 0

    def goes_on() -> None:
        nonlocal written
        write(servers, source, [(0, str(written))], commit=True)
        written += 1
        wait_for(lambda: job.poll() is not None or str(written - 1) in view.values(target), log.read_text, PROGRAM_S)
        assert job.poll() is None, log.read_text()

    with started(name, file, tmp_path, **({} if forks else {"PYSPARK_DRIVER_PYTHON": sys.executable})) as job:
        goes_on()
        goes_on()  # by now there is each kind of process
        for process in python_processes(job.pid):
            if processes.alive([process]):
                os.kill(process.pid, signal.SIGKILL)
                goes_on()
        job.terminate()
        assert job.wait(PROGRAM_S) == 0, log.read_text()
    failures = re.findall(r"^failed: \[(\w+)\]", log.read_text(), re.MULTILINE)
    assert set(failures) == {"EOS_WORKER_DIED"}, log.read_text()
    assert Counter(view.values(target)) == Counter(map(str, range(written)))
