"""Runs the job again and again as a process of its own, each time until it is killed, and once to the end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jobs._demo import processes
from jobs._demo.flights import OUTPUT_TOPICS
from jobs._demo.topics import Reader

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "conf" / "consume_transform_produce.yaml"
_POLL_SECONDS = 0.01
_RUN_SECONDS = 300.0
_BATCH_LINE = re.compile(r"^batch (\d+): ", re.MULTILINE)


@dataclass(frozen=True)
class Strike:
    """Where to kill: at a named point of the protocol (see spark_eos.faults), the n-th time that it is reached."""

    point: str
    nth: int
    meaning: str


#: In an order in which each start meets what a different death left behind. The n-th time lies in a later micro-batch
#: than the one that the killed run had under way, so that every run gets further than the one before.
STRIKES = (
    Strike("prepare.wrote", 6, "inside prepare, rows on their way"),
    Strike("commit.between", 2, "one transaction committed, the others not"),
    Strike("commit.verified", 2, "prepared, not decided"),
    Strike("open.published", 1, "a new run has taken over, what the dead one left is still open"),
    Strike("commit.decided", 2, "decided, no transaction ended"),
    Strike("commit.cleaned", 2, "all committed, Spark does not know"),
    Strike("commit.entered", 2, "prepared, the driver has just been told"),
)


class JobFailed(Exception):
    """The job ended by itself where it should not have. The text says how, with the end of its log."""


@dataclass(frozen=True)
class Job:
    """How to start the job: everything but the faults. ``folder`` is for logs and fault markers."""

    bootstrap_servers: str
    folder: Path
    group: str
    max_offsets_per_trigger: int
    source_format: str
    sink_format: str
    jars: tuple[Path, ...] = ()

    @contextmanager
    def started(self, number: int, faults: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """The running job, killed with all that belongs to it if it still runs at the end."""
        arguments = ["--conf", str(CONFIG), "--source", self.source_format, "--sink", self.sink_format]
        with self.log(number).open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "jobs.consume_transform_produce", *arguments],
                cwd=ROOT,
                env=dict(os.environ) | self._environment() | dict(faults or {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                processes.kill(process.pid)
                process.wait()

    def log(self, number: int) -> Path:
        return self.folder / f"run-{number}.log"

    def _environment(self) -> dict[str, str]:
        environment = {
            "KAFKA_BOOTSTRAP_SERVERS": self.bootstrap_servers,
            "CHECKPOINT": str(self.folder / "checkpoint"),
            "GROUP": self.group,
            "MAX_OFFSETS_PER_TRIGGER": str(self.max_offsets_per_trigger),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            # The job starts often and runs briefly: up fast counts for more than fast in the long run.
            "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        if self.jars:
            environment["PYSPARK_SUBMIT_ARGS"] = f"--jars {','.join(map(str, self.jars))} pyspark-shell"
        return environment


def run_until_point(job: Job, number: int, strike: Strike, watch: Callable[[], object]) -> None:
    """Start the job, wait until it holds at the point, kill it. ``watch`` is called over and over meanwhile."""
    folder = job.folder / f"faults-{number}"
    folder.mkdir()
    faults = {"SPARK_EOS_FAULTS": f"{strike.point}=hold@{strike.nth}", "SPARK_EOS_FAULTS_DIR": str(folder)}
    with job.started(number, faults) as process:
        marker = folder / strike.point
        for _ in _while_running(job, number, process, f"before it came to {strike.point} for time {strike.nth}"):
            watch()
            if marker.exists():
                processes.kill(process.pid)
                return


def run_until_rows_appear(job: Job, number: int, watch: Callable[[], object]) -> None:
    """Start the job, let it end a micro-batch, kill it when rows of the next one are in the output.

    For a sink that knows no points: what anybody can do to it from outside.
    """
    with job.started(number) as process, Reader(job.bootstrap_servers, OUTPUT_TOPICS, committed=False) as reader:
        batches = 0
        for _ in _while_running(job, number, process, "before it could be killed in mid-batch"):
            watch()
            ended = len(_BATCH_LINE.findall(job.log(number).read_text(errors="replace")))
            rows = reader.new_rows(_POLL_SECONDS)
            if batches and ended == batches and rows:
                processes.kill(process.pid)
                return
            batches = ended


def run_to_end(job: Job, number: int, watch: Callable[[], object]) -> None:
    """Start the job and return when it has read all there is."""
    with job.started(number) as process:
        deadline = time.monotonic() + _RUN_SECONDS
        while process.poll() is None:
            watch()
            _check_time(job, number, deadline)
            time.sleep(_POLL_SECONDS)
    if process.returncode != 0:
        raise _failed(job, number, f"ended with exit code {process.returncode}")


def _while_running(job: Job, number: int, process: subprocess.Popen[bytes], when: str) -> Iterator[None]:
    deadline = time.monotonic() + _RUN_SECONDS
    while process.poll() is None:
        yield
        _check_time(job, number, deadline)
        time.sleep(_POLL_SECONDS)
    raise _failed(job, number, f"ended with exit code {process.returncode} {when}")


def _check_time(job: Job, number: int, deadline: float) -> None:
    if time.monotonic() > deadline:
        raise _failed(job, number, f"took more than {_RUN_SECONDS:.0f} s")


def _failed(job: Job, number: int, what: str) -> JobFailed:
    tail = job.log(number).read_text(errors="replace").splitlines()[-20:]
    return JobFailed("\n".join([f"Run {number} of the job {what}; the end of its log, {job.log(number)}:", *tail]))
