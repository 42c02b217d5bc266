"""Runs the query as a program of its own, holds it at a named point of the protocol, and kills it there."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from demo.processes import Process, alive, children, descendants
from tests.support.kills.query import Spec
from tests.support.waiting import PROGRAM_S, TIMEOUT, wait_for

ROOT = Path(__file__).resolve().parents[3]
#: Then they are killed: what has to go on meanwhile, waits for this.
GONE_S = 15.0


@dataclass(frozen=True)
class Zombie:
    """The process that is held at the point; it goes on when the marker is gone."""

    process: Process
    marker: Path

    def release(self, timeout: float = TIMEOUT) -> None:
        """Let it go on, and return when it has ended by itself."""
        self.marker.unlink()
        wait_for(lambda: not alive([self.process]), "the end of the zombie", timeout)

    def kill(self) -> None:
        kill_all([self.process])


class Killed:
    """The query as a program, with a fault armed."""

    def __init__(self, spec: Spec, faults: str, folder: Path) -> None:
        self._spec = spec
        self._folder = folder / "faults"
        self._folder.mkdir()
        self._log = folder / "killed.log"
        environment = {
            **os.environ,
            "SPARK_EOS_FAULTS": faults,
            "SPARK_EOS_FAULTS_DIR": str(self._folder),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("query.py")), spec.to_json()],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_at(self, point: str, executors: Callable[[], Iterable[Process]] = tuple) -> Process:
        """The process that has come to the point and is held there: the driver's, or one of these executors'."""
        marker = self._folder / point

        def there() -> bool:
            assert self._process.poll() is None, f"the query ended before it came to {point}:\n{self.log()}"
            return marker.exists()

        wait_for(there, lambda: f"the query at {point}:\n{self.stacks()}", PROGRAM_S)
        held = int(marker.read_text())
        roots = [self._process.pid, *(executor.pid for executor in executors())]
        (found,) = {process for root in roots for process in descendants(root) if process.pid == held}
        return found

    def release(self, point: str) -> None:
        """Let go what is held at the point."""
        (self._folder / point).unlink()

    def wait_for_end(self, code: int | None = None) -> str:
        """Until the program has ended by itself, with this exit code if given; its log."""
        wait_for(lambda: self._process.poll() is not None, "the end of the query", PROGRAM_S)
        text = self._log.read_text(errors="replace")
        assert code in (None, self._process.returncode), text[-6000:]
        return text

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the program has ended by itself, or was killed."""
        return self._process.poll() is not None

    def marker(self, point: str) -> Path:
        """The file that is there while something is held at the point."""
        return self._folder / point

    @property
    def query_id(self) -> str:
        return json.loads((Path(self._spec.checkpoint) / "metadata").read_text())["id"]

    def kill(self) -> None:
        """SIGKILL to driver and JVM; returns when nothing of the query is left."""
        self._strike([])

    def kill_all_but(self, point: str) -> Zombie:
        """The same, but the process that is held at the point does not notice."""
        held = self.wait_at(point)
        self._strike([held])
        assert alive([held]), "the zombie did not survive"
        return Zombie(held, self._folder / point)

    def _strike(self, spared: list[Process]) -> None:
        if self._process.poll() is not None:
            return  # its process id may be somebody else's by now
        family = descendants(self._process.pid)
        jvm = children([self._process.pid])
        # A daemon that sees its JVM end takes its workers with it.
        daemons = [process for process in family if spared and process not in jvm and children([process.pid])]
        kill_all([*daemons, *jvm])
        self._process.kill()
        self._process.wait()
        others = [process for process in family if process not in spared]
        with contextlib.suppress(AssertionError):  # workers end by themselves when the JVM is gone, or else here
            wait_for(lambda: not alive(others), "the end of the workers", GONE_S)
        kill_all(others)

    def stacks(self) -> str:
        """Where the driver's threads and the JVM's are, by their own account; the workers print theirs themselves."""
        printed = self._log.stat().st_size
        os.kill(self._process.pid, signal.SIGUSR1)
        for jvm in children([self._process.pid]):
            os.kill(jvm.pid, signal.SIGQUIT)
        with contextlib.suppress(AssertionError):
            wait_for(lambda: b"JNI global ref" in self._log.read_bytes()[printed:], "the JVM's account", 5)
        return self.log(None)

    def log(self, last: int | None = 6000) -> str:
        """The end of what the program has printed: so many characters, or all of it."""
        return self._log.read_text(errors="replace")[-last if last else 0 :]


def kill_all(processes: Iterable[Process]) -> None:
    """SIGKILL to those that still run."""
    for process in alive(list(processes)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def running(spec: Spec, faults: str, folder: Path) -> Iterator[Killed]:
    """The query, killed with all that belongs to it at the end."""
    query = Killed(spec, faults, folder)
    try:
        yield query
    finally:
        query.kill()
