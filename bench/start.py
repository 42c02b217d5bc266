"""Mode ``start``: how long it takes until the first row is visible, from a start and from a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bench.loop import client
from bench.meter import CLIENT, Meter
from bench.queries import BUILTIN_KAFKA, EOS_KAFKA
from bench.result import ModeResult, Series, cell
from bench.session import Bench
from bench.source import PARTITIONS
from bench.starter import StarterSpec
from bench.turns import BenchPlan
from jobs.runner.session import ROOT

_BASELINE = "built-in → built-in"
_CONTENDERS = {"ours → ours": EOS_KAFKA, _BASELINE: BUILTIN_KAFKA}
_METRIC = "first_row_s"
#: Seconds of processor time meanwhile, of the driver and all that it has started.
_CPU = "start_cpu_s"
#: A new process, or a session that has run a query; and a new checkpoint, or one of a query that ran.
_COLD, _KILLED = "a new process", "a new process, after kill -9"
_WARM, _AGAIN = "a running session", "a running session, the query again"
CASES = (_COLD, _KILLED, _WARM, _AGAIN)
#: A row each.
_PERIOD_S = 0.01
SECONDS = 300.0
_POLL_S = 0.02


def measure(bench: Bench, plan: BenchPlan, say: Callable[[str], None]) -> ModeResult:
    """Both pairs, each in processes of its own, while rows are written all the time. Raises TimeoutError when no row
    comes through."""
    result = ModeResult("start", _BASELINE, _METRIC)
    series = {(case, name): Series(name, case) for case in CASES for name in _CONTENDERS}
    for turn, name in plan.turns(list(_CONTENDERS)):
        for case, run in _run(bench, _CONTENDERS[name]).items():
            say(f"start: {name}, {case}, run {turn}: {cell(_METRIC, run[_METRIC])} s")
            if turn > 0:
                series[case, name].runs.append(run)
    result.series += [series[case, name] for case in CASES for name in _CONTENDERS if plan.has(case)]
    return result


def _run(bench: Bench, format_: str) -> dict[str, dict[str, float]]:
    """The metrics of each case."""
    with tempfile.TemporaryDirectory(prefix="spark-eos-bench-", ignore_cleanup_errors=True) as folder:
        first, second = ((*_topics(bench), f"{folder}/{number}") for number in range(2))
        with _rows_into(bench, first[0]), _rows_into(bench, second[0]):
            cold = _visible_from(bench, format_, [first, second])
            killed = _visible_from(bench, format_, [second, second])  # the one before was killed, with its workers
        for topic in (*first[:2], *second[:2]):
            bench.delete_topic(topic)
    return dict(zip((_COLD, _WARM, _KILLED, _AGAIN), (*cold, *killed), strict=True))


def _visible_from(bench: Bench, format_: str, queries: list[tuple[str, str, str]]) -> list[dict[str, float]]:
    """The metrics of a new driver and its first query, and of the next query."""
    times = []
    began = time.time()
    with _Driver(bench, format_, queries) as driver:
        for number, (_, target, _) in enumerate(queries):
            if number > 0:
                began = driver.next()
            times.append((began, _first_visible(bench, target, began)))
    return [{_METRIC: visible - began, _CPU: driver.cpu(began, visible)} for began, visible in times]


def _topics(bench: Bench) -> tuple[str, str]:
    source, target = (f"{end}-{uuid.uuid4().hex[:8]}" for end in ("in", "out"))
    for topic in (source, target):
        bench.cluster.create_topic(topic, PARTITIONS)
    return source, target


class _Driver:
    """`bench.starter` with all that it starts; killed at the end, by a signal that nobody can prepare for."""

    def __init__(self, bench: Bench, format_: str, queries: list[tuple[str, str, str]]) -> None:
        spec = StarterSpec(bench.bootstrap_servers, format_, queries).to_json()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.starter", spec],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._meter = Meter({CLIENT: [self._process.pid]})

    def __enter__(self) -> _Driver:
        self._meter.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._meter.__exit__()
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def next(self) -> float:
        """Stop the query and start the next one; when that was."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("stop\nnext\n")
        self._process.stdin.flush()
        return float(json.loads(self._process.stdout.readline()))

    def cpu(self, begin: float, end: float) -> float:
        """Seconds of processor time between two times, once it has ended."""
        return self._meter.between(begin, end).cpu[CLIENT]


@contextmanager
def _rows_into(bench: Bench, topic: str) -> Iterator[None]:
    """Meanwhile rows are written, each with the time when it was."""
    stop = threading.Event()

    def write() -> None:
        producer = Producer(client(bench.bootstrap_servers) | {"linger.ms": 0})
        number = 0
        while not stop.wait(_PERIOD_S):
            producer.produce(topic, repr(time.time()), partition=number % PARTITIONS)
            producer.poll(0)
            number += 1
        producer.flush()

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _first_visible(bench: Bench, topic: str, since: float) -> float:
    """When the first row that was written after ``since`` was visible to a read_committed reader."""
    reads: dict[str, str | int] = {"group.id": "bench-start", "isolation.level": "read_committed"}
    consumer = Consumer(client(bench.bootstrap_servers) | reads)
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    deadline = time.time() + SECONDS
    try:
        while time.time() < deadline:
            message = consumer.poll(_POLL_S)
            if message is None:
                continue
            if (error := message.error()) is not None:
                raise KafkaException(error)
            if float(message.value() or b"") > since:
                return time.time()
    finally:
        consumer.close()
    raise TimeoutError(f"no row was visible in {topic} within {SECONDS:.0f} s")
