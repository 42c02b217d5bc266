"""Jobs as programs of their own, as people start them, to be killed and started again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo import processes
from tests.support.waiting import PROGRAM_S, wait_for

_ROOT = Path(__file__).parents[3]
#: What a session of the tests has set for its own workers.
_HIDDEN = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


@contextmanager
def started(name: str, config: Path, folder: Path, *options: str, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    """The job as a program, gone at the end with all that belongs to it. Its output goes to the file ``NAME.log``."""
    inherited = {key: value for key, value in os.environ.items() if key not in _HIDDEN}
    with log_of(name, folder).open("ab") as out:
        job = subprocess.Popen(
            [sys.executable, "-m", f"jobs.{name}", "--conf", str(config), *options],
            cwd=_ROOT,
            env={**inherited, "SPARK_LOCAL_IP": "127.0.0.1", **environ},
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        yield job
    finally:
        if job.poll() is None:
            processes.kill(job.pid)
            job.wait()


def log_of(name: str, folder: Path) -> Path:
    """What the job has printed, each time."""
    return folder / f"{name}.log"


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
