"""Jobs as programs of their own, as people start them, to be killed and started again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from demo import processes
from tests.support.waiting import PROGRAM_S, wait_for

_ROOT = Path(__file__).parents[3]
#: What a session of the tests has set for its own workers.
_HIDDEN = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
#: All that a job to topics may say without `--verbose`, other than what it was asked to say.
_LINES = re.compile(
    r"\S+ → \S+; (group \S+; checkpoint|ingest) \S+; (every .+|until all that is there now is read)"
    r"|starting Spark \S+ on local\[2\] …|Spark is up after \d+ s(; (a new query, from earliest|the query goes on))?"
    r"|rows are read (past the JVM|through Spark): .+|planning and running the first micro-batch …"
    r"|batch \d+: (\d+ files?, )?[\d,]+ in, [\d,]+ out, [\d.]+( k)? rows/s(, lag [\d,]+)?"
    r"|idle: there is nothing to read|no answer from \S+ for \d+ s|\S+ answers again, after \d+ s"
    r"|done: .+|stopping: SIGTERM; .+|stopped by SIG.+"
)


@contextmanager
def started(name: str, config: Path, folder: Path, *options: str, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    """The job as a program that is `running`. Its output goes to the file ``NAME.log``."""
    inherited = {key: value for key, value in os.environ.items() if key not in _HIDDEN}
    env = {**inherited, "SPARK_LOCAL_IP": "127.0.0.1", **environ}
    command = [sys.executable, "-m", f"jobs.{name}", "--conf", str(config), *options]
    with running(command, log_of(name, folder), cwd=_ROOT, env=env) as job:
        yield job


@contextmanager
def running(
    command: Sequence[str], log: Path, *, cwd: Path, env: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A program, gone at the end with all that belongs to it. Its output goes to the end of the file ``log``."""
    with log.open("ab") as out:
        program = subprocess.Popen(command, cwd=cwd, env=env, stdout=out, stderr=out, start_new_session=True)
    try:
        yield program
    finally:
        if program.poll() is None:
            processes.kill(program.pid)
            program.wait()


def log_of(name: str, folder: Path) -> Path:
    """What the job has printed, each time."""
    return folder / f"{name}.log"


def strange(log: str) -> list[str]:
    """Lines that do not belong to a job in good order: stacks, warnings of Spark's, logs of other forms."""
    return [line for line in log.splitlines() if not _LINES.fullmatch(line)]


def drained(name: str, config: Path, folder: Path) -> None:
    """Run the job to its end."""
    with started(name, config, folder) as job:
        assert job.wait(PROGRAM_S) == 0, log_of(name, folder).read_text()[-6000:]


@contextmanager
def held_at(fault: str, name: str, config: Path, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The job when it is held at the point of a ``fault``, such as ``commit.decided=hold@2``."""
    point, _, _ = fault.partition("=")
    markers = folder / "faults"
    markers.mkdir(exist_ok=True)
    with started(name, config, folder, SPARK_EOS_FAULTS=fault, SPARK_EOS_FAULTS_DIR=str(markers)) as job:

        def held() -> bool:
            assert job.poll() is None, "the job has ended before it came to the point"
            return (markers / point).exists()

        wait_for(held, log_of(name, folder).read_text, PROGRAM_S)
        yield job


def killed_at(fault: str, name: str, config: Path, folder: Path) -> None:
    """The job, driver, JVM and workers, killed at the point of a ``fault``: see `held_at`."""
    with held_at(fault, name, config, folder) as job:
        processes.kill(job.pid)
        job.wait()
