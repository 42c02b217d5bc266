"""One broker process: a JVM that watchdog.py ends with its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from spark_eos.errors import EosError, stop
from spark_eos.tools.devcluster import probe
from spark_eos.tools.devcluster.java import without_environment

_STOPS_S, _LOOK_S = 5.0, 0.002


@dataclass
class Broker:
    """The broker `id`, with its listener on `port`, and its settings, data and log in the folder `home`."""

    id: int
    port: int
    home: Path
    command: list[str]
    #: Whether the folder stays when the process that started the broker is killed.
    keep_home: bool
    #: Where its other listeners are, by their names.
    ports: dict[str, int] = field(default_factory=dict)
    #: The pid of the broker's JVM, of its last start.
    pid: int | None = field(default=None, init=False)
    paused: bool = field(default=False, init=False)
    _log_start: int = field(default=0, init=False, repr=False)
    _watcher: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)

    @property
    def proxied_port(self) -> int | None:
        """The port of the listener that its proxy connects to."""
        return self.ports.get("PROXIED")

    @property
    def bootstrap_server(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        """Kafka's ``log.dirs``: a folder for each partition, such as ``topic-0``."""
        return self.home / "data"

    @property
    def log_file(self) -> Path:
        """The log of all of its starts."""
        return self.home / "broker.log"

    @property
    def running(self) -> bool:
        """True if the process exists, paused or not."""
        return self._watcher is not None and self._watcher.poll() is None

    def launch(self) -> None:
        """Starts the process and returns at once."""
        watchdog = Path(__file__).with_name("watchdog.py")
        folder = "" if self.keep_home else str(self.home)
        # Nothing may be sent to the pid of an earlier start.
        self.pid = None
        with self.log_file.open("ab") as log:
            self._log_start = log.tell()
            self._watcher = subprocess.Popen(
                [sys.executable, "-I", "-S", str(watchdog), str(os.getpid()), folder, "--", *self.command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # In a session of its own, so that Ctrl-C in the terminal or a notebook does not reach the broker.
                start_new_session=True,
            )
        line = self.lifeline.readline()
        if not line:
            raise self.trouble("could not be started")
        self.pid = int(line)
        self.paused = False

    def send(self, signal_number: signal.Signals) -> None:
        """Sends a signal to the broker's JVM, if it runs. SIGSTOP returns when all of its threads have stopped."""
        if self.running and self.pid is not None:
            os.kill(self.pid, signal_number)
            if signal_number == signal.SIGSTOP:
                wait_until_stopped(self.pid)
            if signal_number in (signal.SIGSTOP, signal.SIGCONT):
                self.paused = signal_number == signal.SIGSTOP

    def wait(self, timeout_s: float | None = None) -> None:
        """Returns when the process is gone; raises subprocess.TimeoutExpired after `timeout_s` seconds."""
        if self._watcher is not None:
            self._watcher.wait(timeout_s)
            self._close_stdin()
            self.lifeline.close()
        self.paused = False

    def terminate(self, timeout_s: float) -> None:
        """Send SIGTERM, and SIGKILL when that takes longer than `timeout_s` seconds."""
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        try:
            self.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Send SIGKILL; returns when the process is gone."""
        if self.running and self.pid is None:
            # Interrupted in the middle of `launch`: watchdog.py ends the process when the pipe ends.
            self._close_stdin()
        self.send(signal.SIGKILL)
        self.wait()

    @property
    def lifeline(self) -> IO[bytes]:
        """A pipe that is at its end when the process is gone, to wait for several at once."""
        assert self._watcher is not None and self._watcher.stdout is not None  # from `launch` on
        return self._watcher.stdout

    def _close_stdin(self) -> None:
        if self._watcher is not None and self._watcher.stdin is not None:
            self._watcher.stdin.close()

    def ask(self, topic: str | None = None) -> probe.Metadata | None:
        """Return the response to a Metadata request, or None where none comes in time."""
        return probe.ask(self.port, topic)

    def log_tail(self, lines: int = 30) -> str:
        """Return the last lines of its log, of the last start."""
        try:
            with self.log_file.open("rb") as log:
                log.seek(max(self._log_start, log.seek(0, os.SEEK_END) - 500 * lines))
                return "\n".join(without_environment(log.read().decode(errors="replace")).splitlines()[-lines:])
        except FileNotFoundError:
            return "(no log)"

    def trouble(self, what: str) -> EosError:
        """Return the error EOS_DEVCLUSTER_FAILED, with the end of the log."""
        return stop(
            "EOS_DEVCLUSTER_FAILED",
            program=f"Broker {self.id}",
            what=what,
            output=f"Its log, {self.log_file},",
            log=f"\n{self.log_tail()}",
            usual="one of the given settings",
        )


def wait_until_stopped(pid: int) -> None:
    """Wait until all threads of a process that was sent SIGSTOP stand still. One may run on for a moment, and answer.
    Returns at once where the system does not show threads (it is not Linux), and in any case after some seconds."""
    deadline = time.monotonic() + _STOPS_S
    while time.monotonic() < deadline:
        try:
            states = [_state(thread) for thread in Path(f"/proc/{pid}/task").glob("*/stat")]
        except OSError:  # the process has just ended
            return
        if all(state in ("T", "") for state in states):
            return
        time.sleep(_LOOK_S)


def _state(stat: Path) -> str:
    """Return a letter, behind the name in parentheses; empty for a thread that is gone."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
