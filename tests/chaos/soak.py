"""Random faults, from a seed, against a running query on three brokers, for a bounded time; then everything is counted.

``python -m tests.chaos.soak --seconds 600 --seed 42``, or ``make soak SECONDS=600 SEED=42``. The seed decides which
faults strike, in which order and how long they last; what they meet depends on the machine. ``--way copy`` or ``--way
transform``, or ``WAY=…``: as a copy; ``mirror``: by a mirror. ``--two-phase``, or ``TWO_PHASE=1``: with
transactions that never expire, so that the query has to end all that its runs leave open. The exit code is 0 only if
every row is there once, in order, where a mirror's offset map says, and every stop of the query had a name.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.compare import ending
from bench.compare.feeder import ABORTED, Feeder
from demo.processes import descendants
from spark_eos.base.failpoints import IN_QUERIES
from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.histories import Anomaly, judge
from tests.support.judges.kafka_view import KafkaView, doubled, open_view
from tests.support.judges.recorder import Recorded, Recorder
from tests.support.kills.killed_program import Killed, Zombie
from tests.support.kills.query import Spec
from tests.support.queries.data_paths import WAYS
from tests.support.queries.mirrors import beside, misplaced_by
from tests.support.runs import leftovers
from tests.support.servers.two_phase import TWO_PHASE
from tests.support.waiting import command_of, wait_for

PARTITIONS = 4
BROKERS = 3
ROWS_PER_SECOND = 200
ROWS_PER_BATCH = 400
#: Of the query's transactions: some pauses are longer.
TIMEOUT_MS = 12_000
#: Of the readers that begin again and again, and look at the end of each partition.
PAUSE_S, WINDOW = 1.0, 200
#: What Spark says of a worker that was killed, where it says no more than that the connection to it has ended.
OF_A_KILLED_WORKER = re.compile(
    r"java\.io\.EOFException$|java\.nio\.channels\.ClosedChannelException$"
    r"|java\.(?:io\.IO|net\.Socket)Exception: (?:Broken pipe|Connection reset|Socket closed)"
    r"|.*Python daemon failed to launch worker|.*EOFException occurred while reading the port number"
)
NO_NAME = "no name"


@dataclass
class Soak:
    """One run. ``struck`` counts the faults by their kind, ``stops`` the query's own by their named error;
    ``workers_killed``: of the query's present start."""

    cluster: DevCluster
    view: KafkaView
    spec: Spec
    chance: random.Random
    folder: Path
    struck: Counter[str] = field(default_factory=Counter)
    stops: Counter[str] = field(default_factory=Counter)
    recoveries: list[tuple[float, str]] = field(default_factory=list)
    starts: int = 0
    workers_killed: int = 0
    run: Killed | None = None
    zombie: Zombie | None = None

    def start(self) -> None:
        """Start the query, most of the time with one of the protocol's points armed."""
        points = [*IN_QUERIES, *(["prepare.mapped"] if self.spec.mirrors else [])]
        self.armed = self.chance.choice([None, *points])
        self._launch(f"{self.armed}=hold@{self.chance.randint(1, 20)}" if self.armed else "")

    def _launch(self, faults: str) -> Killed:
        self.starts += 1
        self.workers_killed = 0
        folder = self.folder / f"run-{self.starts}"
        folder.mkdir()
        self.run = Killed(self.spec, faults, folder)
        return self.run

    def strike(self, kind: str) -> None:
        self.struck[kind] += 1
        getattr(self, f"_{kind}")()

    def look(self) -> None:
        """What has happened meanwhile: a query that ended, or that is held at its point."""
        run = self._running()
        if run.ended:
            self._name_stop(run.log(None))
            self._restart()
        elif self.armed and (marker := run.marker(self.armed)).exists():
            self._at_point(run, marker)

    def _at_point(self, run: Killed, marker: Path) -> None:
        kind = self.chance.choice(["kill", "zombie", "stall", "stall"])
        self.struck[f"{kind} at {self.armed}"] += 1
        point, self.armed = self.armed, None
        assert point is not None
        if kind == "kill":
            self._driver_dies()
        elif kind == "zombie" and self.zombie is None and not point.startswith("ahead."):
            self.zombie = run.kill_all_but(point)
            self._restart()
        else:
            time.sleep(self.chance.choice([0.2, 2.0, 1.3 * TIMEOUT_MS / 1000]))
            with contextlib.suppress(FileNotFoundError):
                marker.unlink()

    # Kinds of faults

    def _driver_dies(self) -> None:
        self._running().kill()
        self._restart()

    def _worker_dies(self) -> None:
        """A Python process of a task, or of the commit."""
        family = descendants(self._running().pid)
        python = [p for p in family if b"pyspark" in command_of(p.pid) and b"java" not in command_of(p.pid)]
        if python:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.chance.choice(python).pid, signal.SIGKILL)
                self.workers_killed += 1

    def _driver_sleeps(self) -> None:
        """The whole query, sometimes for longer than its transactions live."""
        family = [self._running().pid, *(process.pid for process in descendants(self._running().pid))]
        for pid in family:
            _signal(pid, signal.SIGSTOP)
        time.sleep(self.chance.choice([1.0, 4.0, 1.3 * TIMEOUT_MS / 1000]))
        for pid in family:
            _signal(pid, signal.SIGCONT)

    def _broker_dies(self) -> None:
        victim = self.chance.randrange(BROKERS)
        self.cluster.kill(victim)
        time.sleep(self.chance.choice([0.0, 3.0, 8.0]))
        self.cluster.start(victim)

    def _broker_sleeps(self) -> None:
        victim = self.chance.randrange(BROKERS)
        self.cluster.pause(victim)
        time.sleep(self.chance.choice([1.0, 5.0, 1.3 * TIMEOUT_MS / 1000]))
        self.cluster.resume(victim)

    def _zombie_wakes(self) -> None:
        if self.zombie is not None:
            zombie, self.zombie = self.zombie, None
            zombie.release()

    # The query's life

    def _running(self) -> Killed:
        assert self.run is not None
        return self.run

    def _restart(self) -> None:
        self._running().kill()
        before = self.progress()
        began = time.monotonic()
        self.start()
        self.wait_for_progress(before)
        self.recoveries.append((time.monotonic() - began, f"start {self.starts}"))

    def progress(self) -> int:
        return sum(self.view.group(self.spec.group, self.spec.input).values())

    def wait_for_progress(self, before: int) -> None:
        """Until another micro-batch is committed, or there is something to look after."""
        run = self._running()
        wait_for(
            lambda: run.ended or (self.armed and run.marker(self.armed).exists()) or self.progress() > before,
            "progress",
        )

    def _name_stop(self, log: str) -> None:
        name = ending.told_by(log) or "it does not say"
        is_named = name.startswith("EOS_") or (self.workers_killed and OF_A_KILLED_WORKER.match(name))
        self.stops[(name if is_named else f"{NO_NAME}: {name}")[:100]] += 1

    # The end

    def drain(self, rows: int) -> None:
        """Without faults, until all input is through. A stop on the way that has a name is a stop like any other."""
        self._running().kill()
        # Short-lived transactions are part of the faults.
        sink = {key: value for key, value in self.spec.sink.items() if key != "transaction.timeout.ms"}
        self.spec = replace(self.spec, available_now=True, sink=sink)
        for _ in range(5):
            run = self._launch("")
            text = run.wait_for_end()
            run.kill()
            ends = self.view.ends(self.spec.input)
            if self.view.group(self.spec.group, self.spec.input) == ends:
                return
            self._name_stop(text)
        raise AssertionError(f"the input of {rows} rows was not drained:\n{text[-6000:]}")

    def judge(self, rows: int) -> dict[str, int]:
        """By a plain read_committed consumer, of all outputs: see `judged`; of a mirror, also rows that are not where
        the offset map says. Fails where partitions are held."""
        outputs = [topic for topic in (self.spec.output, self.spec.also) if topic]
        result = Counter[str]()
        for topic in outputs:
            seen: dict[int, list[bytes | None]] = {p: [] for p in range(PARTITIONS)}
            for row in self.view.rows(topic):
                seen[row.partition].append(row.value)
            result.update(judged(seen, rows, self.spec.expected))
        wait_for(lambda: not self.view.held(*outputs), "the end of every transaction")
        if self.spec.mirrors:
            result["misplaced"] = len(misplaced_by(self.view, self.spec))
        return dict(result)

    def close(self) -> None:
        if self.run is not None:
            self.run.kill()
        if self.zombie is not None:
            self.zombie.kill()


KINDS = ("driver_dies", "worker_dies", "worker_dies", "driver_sleeps", "broker_dies", "broker_sleeps", "zombie_wakes")


def judged(seen: Mapping[int, Sequence[bytes | None]], rows: int, expected: Callable[[str], str]) -> dict[str, int]:
    """By the values in each partition of an output, in their order, of an input with so many rows in each: how many are
    lost, doubled, of aborted transactions, or strange, as nobody fed them; and partitions whose rows are out of order,
    whatever else is wrong."""
    result = dict.fromkeys(("lost", "doubled", "out of order", "aborted visible", "strange"), 0)
    for p, found in seen.items():
        values = ["" if value is None else value.decode(errors="replace") for value in found]
        wanted = [expected(f"{p}.{i}") for i in range(rows)]
        fed, there = set(wanted), set(values)
        result["lost"] += len(fed - there)
        result["doubled"] += len(doubled(value for value in values if value in fed))
        result["aborted visible"] += sum(ABORTED in value for value in values)
        result["strange"] += sum(value not in fed and ABORTED not in value for value in values)
        first = [value for value in dict.fromkeys(values) if value in fed]
        result["out of order"] += first != [value for value in wanted if value in there]
    return result


def soak(seconds: float, seed: str, way: str, two_phase: bool = False) -> bool:
    """Run it, print what happened; whether all is well."""
    how = f"{way}, two-phase" if two_phase else way
    print(f"seed {seed}, {how}, {seconds:.0f} s", flush=True)
    with (
        _query(seed, way, two_phase) as (one, feeder),
        Recorder(one.view, Recorded(one.spec, PAUSE_S, window=WINDOW)) as recorder,
    ):
        deadline = time.monotonic() + seconds
        feeder.start()
        one.start()
        one.wait_for_progress(0)
        while time.monotonic() < deadline and feeder.failure is None:
            one.look()
            before = one.progress()
            kind = one.chance.choice(KINDS)
            print(f"  {seconds - (deadline - time.monotonic()):6.1f} s  {4 * feeder.rows:7d} rows  {kind}", flush=True)
            one.strike(kind)
            one.look()
            one.wait_for_progress(before)
        feeder.stop()
        one.drain(feeder.rows)
        result = one.judge(feeder.rows)
        anomalies = judge(recorder.close())
        slowest = max(one.recoveries, default=(0.0, "none"))
        print(f"faults: {dict(sorted(one.struck.items()))}")
        print(f"the query's own stops: {dict(one.stops)}")
        print(f"starts: {one.starts}; slowest to go on: {slowest[0]:.1f} s ({slowest[1]})")
        print(f"what readers saw: {recorder}; {tell(anomalies)}")
        unnamed = any(stop.startswith(NO_NAME) for stop in one.stops)
        well = not (any(result.values()) or unnamed or anomalies)
        verdict = "all is well" if well else f"FAILED with seed {seed}, {how}"
        print(f"rows: {PARTITIONS * feeder.rows}; {result}: {verdict}")
        return well


def tell(anomalies: list[Anomaly]) -> str:
    """How many of each kind, and the first."""
    kinds = dict(Counter(anomaly.kind for anomaly in anomalies))
    return f"{kinds}, such as {anomalies[0]}" if anomalies else "no anomaly"


@contextlib.contextmanager
def _query(seed: str, way: str, two_phase: bool) -> Iterator[tuple[Soak, Feeder]]:
    with (
        leftovers.removed(),
        DevCluster(brokers=BROKERS, config=TWO_PHASE if two_phase else None) as cluster,
        open_view(cluster.bootstrap_servers) as view,
        tempfile.TemporaryDirectory(prefix="spark-eos-soak-", ignore_cleanup_errors=True) as name,
    ):
        for topic in ("input", "output", "also"):
            cluster.create_topic(topic, PARTITIONS, min_insync_replicas=2)
        spec = Spec(
            cluster.bootstrap_servers,
            "input",
            beside(view, "input", **{"min.insync.replicas": "2"}) if WAYS[way].get("mirrors") else "output",
            str(Path(name) / "checkpoint"),
            "soak",
            ROWS_PER_BATCH,
            also=None if WAYS[way].get("copies") else "also",
            available_now=False,
            sink={"transaction.timeout.ms": str(TIMEOUT_MS)}
            | ({"transaction.two.phase.commit": "true"} if two_phase else {}),
            **WAYS[way],
        )
        one = Soak(cluster, view, spec, random.Random(seed), Path(name))
        try:
            yield one, Feeder(cluster.bootstrap_servers, "input", PARTITIONS, ROWS_PER_SECOND)
        finally:
            one.close()


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", default=None, help="a new one unless given")
    parser.add_argument("--way", choices=WAYS, default="rows", help="that rows take: through Spark, or past it")
    parser.add_argument("--two-phase", action="store_true", help="transactions never expire")
    arguments = parser.parse_args()
    seed = arguments.seed or str(random.SystemRandom().randrange(1_000_000))
    return 0 if soak(arguments.seconds, seed, arguments.way, arguments.two_phase) else 1


if __name__ == "__main__":
    sys.exit(main())
