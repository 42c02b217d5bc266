"""Runs the job repeatedly as a separate process, each time until it is killed, and once to the end.

Each ``until_…`` and ``to_end`` is a generator. It yields while it waits, so that one loop can drive several jobs, and
ends when its run of the job has ended.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from demo import processes
from demo.watch import OutputWatch
from tests.support.spark import fast_start

#: The main job's example.
CONFIG = fast_start.ROOT / "conf" / "consume_transform_produce.yaml"
_RUN_S = 300.0


@dataclass(frozen=True)
class Strike:
    """Where to kill: at a named point of the protocol (see spark_eos.base.failpoints), the n-th time that it is
    reached.

    ``meaning``: the situation at that point; ``mended``: what the next start does about it.
    """

    point: str
    nth: int
    meaning: str
    mended: str


_AGAIN = "aborted what the dead run left, wrote the micro-batch again"

#: In an order in which each start meets what a different death left behind; the first three tell most of the story.
#: The n-th time lies in the micro-batch after the one that the killed run had under way, so that every start mends what
#: it finds and gets one further. (Before, "commit.between" is reached by the last decision and by the mended
#: micro-batch; one that was decided is replayed without "commit.verified" and "commit.cleaned".)
STRIKES = (
    Strike("prepare.flushed", 6, "rows are written, nothing decided", _AGAIN),
    Strike(
        "commit.between",
        3,
        "decided; one transaction committed, the others not",
        "committed the others, wrote nothing again",
    ),
    Strike(
        "commit.cleaned",
        1,
        "all committed, but Spark has not noted it",
        "saw that it was decided, wrote nothing again",
    ),
    Strike("commit.verified", 1, "all written and checked, nothing decided", _AGAIN),
    Strike("open.published", 1, "just taken over from a dead run, which left transactions open", _AGAIN),
    Strike("commit.decided", 2, "decided, no transaction ended", "committed them all, wrote nothing again"),
    Strike("commit.entered", 2, "all written, the driver has just been told", _AGAIN),
)

#: For a sink without failpoints: see ``until_rows_appear``.
FROM_OUTSIDE = Strike(
    "", 0, "rows of a micro-batch are there, but Spark has not noted it", "wrote the micro-batch again"
)


class JobFailed(Exception):
    """The job ended unexpectedly. The text says how, with the end of its log."""


@dataclass(frozen=True)
class Progress:
    """The query's progress in Spark's checkpoint: the newest micro-batch planned and the newest done, or -1."""

    begun: int
    done: int

    @property
    def in_batch(self) -> bool:
        return self.begun > self.done


@dataclass(frozen=True)
class DemoJob:
    """How to start the job: everything but the faults. ``folder`` is for logs, checkpoint and fault markers."""

    bootstrap_servers: str
    folder: Path
    group: str
    max_offsets_per_trigger: int
    source_format: str
    sink_format: str
    topic_prefix: str = ""
    jars: tuple[Path, ...] = ()

    @contextmanager
    def started(self, number: int, faults: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """The running job, killed with all that belongs to it if it still runs at the end."""
        arguments = ["--conf", str(CONFIG), "--source", self.source_format, "--sink", self.sink_format]
        self._temporary.mkdir(exist_ok=True)
        with self.log(number).open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", fast_start.JOB, *arguments],
                cwd=fast_start.ROOT,
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

    def progress(self) -> Progress:
        return Progress(*(_newest(self._checkpoint / name) for name in ("offsets", "commits")))

    @property
    def _checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def _temporary(self) -> Path:
        """Temporary files of the jobs, which a killed one does not remove. The name is short, as sockets are there."""
        return self.folder.parent / "tmp"

    def _environment(self) -> dict[str, str]:
        fast = fast_start.environment(prepare=True)
        in_jvm = shlex.quote(f"-Djava.io.tmpdir={self._temporary}")
        environment = {
            "KAFKA_BOOTSTRAP_SERVERS": self.bootstrap_servers,
            "CHECKPOINT": str(self._checkpoint),
            "GROUP": self.group,
            "MAX_OFFSETS_PER_TRIGGER": str(self.max_offsets_per_trigger),
            "TOPIC_PREFIX": self.topic_prefix,
            "SPARK_MASTER": "local[2]",
            "PYSPARK_PYTHON": sys.executable,
            **fast,
            "SPARK_SUBMIT_OPTS": f"{fast['SPARK_SUBMIT_OPTS']} {in_jvm}",
            "TMPDIR": str(self._temporary),
        }
        if self.jars:
            jars = shlex.quote(",".join(map(str, self.jars)))
            environment["PYSPARK_SUBMIT_ARGS"] = f"--jars {jars} pyspark-shell"
        return environment


def until_point(job: DemoJob, number: int, strike: Strike) -> Iterator[None]:
    """Start the job, wait until it is held at the point, and kill it."""
    folder = job.folder / f"faults-{number}"
    folder.mkdir()
    faults = {"SPARK_EOS_FAULTS": f"{strike.point}=hold@{strike.nth}", "SPARK_EOS_FAULTS_DIR": str(folder)}
    with job.started(number, faults) as process:
        marker = folder / strike.point
        for _ in _while_running(job, number, process, f"before it came to {strike.point} for time {strike.nth}"):
            yield
            if marker.exists():
                processes.kill(process.pid)
                return


def until_rows_appear(job: DemoJob, number: int, watch: OutputWatch, rows: int) -> Iterator[None]:
    """Start the job, let it finish a micro-batch, and kill it when this many rows of a later one are in the topic and
    Spark has not recorded it as done. If that is too late, kill it at the first row of the next one.

    For a sink without failpoints, killed from outside. ``watch`` is polled by the caller.
    """
    batch, before = job.progress().begun, None
    with job.started(number) as process:
        for _ in _while_running(job, number, process, "before it could be killed in mid-batch"):
            yield
            now = job.progress()
            if now.in_batch and now.begun > max(batch, 1):  # micro-batch 0 has no rows
                # Rows that appear from here on are this micro-batch's: all of those before are in the topic.
                batch, before = now.begun, watch.end_offsets()
            elif before is not None and watch.visible_behind(before) >= rows:
                with processes.frozen(process.pid):
                    if job.progress().done < batch:
                        processes.kill(process.pid)
                        return
                before, rows = None, 1


def to_end(job: DemoJob, number: int) -> Iterator[None]:
    """Start the job and run it until it has read everything."""
    with job.started(number) as process:
        deadline = time.monotonic() + _RUN_S
        while process.poll() is None:
            yield
            _check_time(job, number, deadline)
    if process.returncode != 0:
        raise _failed(job, number, f"ended with exit code {process.returncode}")


def _newest(log: Path) -> int:
    """The newest micro-batch in one of the checkpoint's logs; -1 where there is none."""
    names = (file.name for file in log.iterdir()) if log.is_dir() else ()
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def _while_running(job: DemoJob, number: int, process: subprocess.Popen[bytes], when: str) -> Iterator[None]:
    deadline = time.monotonic() + _RUN_S
    while process.poll() is None:
        yield
        _check_time(job, number, deadline)
    raise _failed(job, number, f"ended with exit code {process.returncode} {when}")


def _check_time(job: DemoJob, number: int, deadline: float) -> None:
    if time.monotonic() > deadline:
        raise _failed(job, number, f"took more than {_RUN_S:.0f} s")


def _failed(job: DemoJob, number: int, what: str) -> JobFailed:
    tail = job.log(number).read_text(errors="replace").splitlines()[-20:]
    return JobFailed("\n".join([f"Run {number} of the job {what}; the end of its log, {job.log(number)}:", *tail]))
