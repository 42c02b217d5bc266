"""What one cell of the comparison consists of: a contender under supervision, its input, and who watches its output."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from random import Random

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.compare import ending
from bench.compare.contenders import PARTITIONS, Contender, Place
from bench.compare.feeder import Feeder
from demo.processes import descendants
from jobs.runner.session import ROOT
from spark_eos.tools.devcluster import DevCluster

#: Ends by themselves after which a supervisor starts the contender no more.
_TRIES = 4
_ERROR = re.compile(r"\bEOS_[A-Z_]+\b|\b[A-Z]\w*(?:Exception|Error)\b")
_NO_NAME = "without a name"
_POLL_S = 0.005
_ASK_S = 60.0
#: The longest that a contender may take to go on.
LONGEST_S = 150.0
#: As long as a contender may take from one commit to the next.
MOMENT_S = 60.0


class Instance:
    """A program with all that it starts, in a session of its own, which ends with this process, however that ends.
    ``log``: its temporary files are beside it, as a program that is killed does not remove them."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._log = log
        folder = {"TMPDIR": str(log.parent), "SPARK_SUBMIT_OPTS": f"-Djava.io.tmpdir={log.parent}"}
        environment = os.environ | folder | {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONUNBUFFERED": "1"}
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=environment,
                start_new_session=True,
            )
        self._leash = subprocess.Popen(
            [sys.executable, "-m", "demo.processes", str(self._process.pid)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def error(self) -> str:
        """The name of the one that it says it has ended by, or else the last that its log has."""
        log = self._log.read_text(errors="replace")
        told = ending.told_by(log)
        names = _ERROR.findall(log)[-1:] if told is None else _ERROR.findall(told)[:1]
        return str(names[0]) if names else _NO_NAME

    def kill(self) -> None:
        """Everything at once, by SIGKILL."""
        self.signal(signal.SIGKILL)
        self._process.wait()
        self._leash.kill()
        self._leash.communicate()

    def signal(self, number: signal.Signals) -> None:
        for pid in (self._process.pid, *(process.pid for process in descendants(self._process.pid))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


class Tail(threading.Thread):
    """Watches which rows of an output can be seen. ``newest``: the highest number seen of each partition of the input;
    ``rows``: how many different ones."""

    def __init__(self, servers: str, output: str) -> None:
        super().__init__(name="tail", daemon=True)
        self.newest = dict.fromkeys(range(PARTITIONS), -1)
        self._seen: set[str] = set()
        self._output, self._over = output, threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "broker.address.family": "v4",
                "group.id": "tail",  # asked for by the client; nothing is committed to it
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )

    @property
    def rows(self) -> int:
        return len(self._seen)

    def run(self) -> None:
        try:
            while not self._over.is_set():
                with contextlib.suppress(KafkaException):
                    topic = self._consumer.list_topics(self._output, timeout=_ASK_S).topics[self._output]
                    if topic.error is None:
                        break
                self._over.wait(0.2)
            else:
                return
            self._consumer.assign([TopicPartition(self._output, p, 0) for p in topic.partitions])
            while not self._over.is_set():
                for message in self._consumer.consume(1000, 0.1):
                    value = message.value()
                    if message.error() is None and value is not None:
                        self._note(value.decode(errors="replace"))
        finally:
            self._consumer.close()

    def _note(self, value: str) -> None:
        self._seen.add(value)
        p, _, n = value.partition(".")
        if n.isdigit() and p.isdigit() and int(p) in self.newest:
            self.newest[int(p)] = max(self.newest[int(p)], int(n))

    def is_behind(self, rows: int) -> bool:
        """Whether the last of so many rows of a partition has not been seen."""
        return min(self.newest.values()) < rows - 1

    def stop(self) -> None:
        self._over.set()
        self.join()


@dataclass
class Scene:
    """A contender that copies an input which goes on growing. ``errors``: those by which it has ended by itself;
    ``recoveries``: seconds from each strike until a row is visible that was written after it; None: none came."""

    cluster: DevCluster
    contender: Contender
    chance: Random
    input: str
    folder: Path
    feeder: Feeder
    tail: Tail
    timeout_ms: int | None = None
    errors: list[str] = field(default_factory=list)
    recoveries: list[float | None] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    _started: int = 0

    @cached_property
    def admin(self) -> AdminClient:
        """A client of the cluster."""
        return AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers, "log_level": 0})

    @property
    def output(self) -> str:
        return self.contender.output_of(self.input)

    def start(self) -> Instance:
        """One more instance."""
        self._started += 1
        own = self.folder / f"instance-{self._started}"
        own.mkdir()
        place = Place(self.cluster.bootstrap_servers, self.input, self.output, self.folder, own, self.timeout_ms)
        instance = Instance(self.contender.command(place), own / "log")
        self.instances.append(instance)
        return instance

    def tend(self) -> None:
        """As a supervisor does: what has ended by itself is started again, some times."""
        for instance in [one for one in self.instances if one.has_ended]:
            self.instances.remove(instance)
            self.errors.append(instance.error)
            if not self.has_given_up and not self.instances:
                self.start()

    @property
    def has_given_up(self) -> bool:
        return len(self.errors) >= _TRIES

    def kill(self) -> None:
        """All instances."""
        for instance in self.instances:
            instance.kill()
        self.instances.clear()

    def restart(self) -> None:
        """Kill it, and start it again at once."""
        self.kill()
        with self.recovering():
            self.start()

    @contextlib.contextmanager
    def recovering(self) -> Iterator[None]:
        """Notes how long it takes until a row is visible that was written after now, for `LONGEST_S` at the most."""
        mark, began = self.feeder.rows, time.monotonic()
        yield
        goes_on = self.wait(lambda: any(n >= mark for n in self.tail.newest.values()), LONGEST_S)
        self.recoveries.append(time.monotonic() - began if goes_on else None)

    @property
    def has_failed(self) -> bool:
        """It did not go on after a strike: nothing more is done to it."""
        return self.has_given_up or None in self.recoveries

    def await_moment(self, happened: Callable[[], object], what: str) -> bool:
        """Whether the moment of a strike has come; not where it has failed before. Raises TimeoutError where it does
        not come to one that runs."""
        if self.wait(happened, MOMENT_S):
            return True
        if not self.has_failed:
            raise TimeoutError(f"{what} within {MOMENT_S:.0f} s")
        return False

    def wait(self, happened: Callable[[], object], within_s: float) -> bool:
        """Whether it happens meanwhile; whatever ends is started again. Not where the contender has given up."""
        deadline = time.monotonic() + within_s
        while not happened():
            self.tend()
            if self.has_given_up or time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def run_for(self, time_s: float) -> None:
        """Nothing happens."""
        self.wait(lambda: False, time_s)
