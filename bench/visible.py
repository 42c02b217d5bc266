"""What a program has written, seen from outside, where it does not say when it is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from bench.child import Child, started
from bench.count import committed_rows
from bench.drain import Run, Stretch, measured
from bench.meter import BROKER, CLIENT, Meter
from bench.session import Bench
from bench.source import PARTITIONS
from spark_eos.errors import TopicError
from spark_eos.kafka.admin.topics import end_offsets
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client

#: Of the rows, how many at the beginning do not count: the program is still getting up.
_LEFT_OUT = 0.25
_SECONDS, _POLL_S = 600.0, 0.05


def run(name: str, command: Sequence[str], bench: Bench, output: str, rows: int, written: int | None = None) -> Run:
    """Start a program that copies so many rows, until all of them are visible; it is gone then. Raises TimeoutError,
    and ChildProcessError where it ends before.

    ``written``: how many become visible, of a program that leaves some out. It leaves out the same share everywhere.
    """
    kafka = KafkaProperties({"bootstrap.servers": bench.bootstrap_servers})
    visible = rows if written is None else written
    counted, meter = watched(
        name,
        command,
        bench,
        visible,
        partial(_stable_rows, kafka, output),
        partial(committed_rows, bench.bootstrap_servers, output),
    )
    read = counted.rows if written is None else round(counted.rows * rows / written)
    return measured(rows, 1, replace(counted, rows=read), meter)


def watched(
    name: str, command: Sequence[str], bench: Bench, rows: int, seen: Callable[[], int], counted: Callable[[], int]
) -> tuple[Stretch, Meter]:
    """Start a program, until so many rows are visible; it is gone then. ``seen``: about how many are visible;
    ``counted``: how many exactly, where that takes longer. Raises TimeoutError, and ChildProcessError where the program
    ends before."""
    with (
        started(name, command) as process,
        Meter({CLIENT: [process.pid], BROKER: bench.roots[BROKER]}) as meter,
    ):
        return _until_visible(name, process, rows, seen, counted), meter


def _until_visible(
    name: str, process: Child, rows: int, seen: Callable[[], int], counted: Callable[[], int]
) -> Stretch:
    deadline = time.monotonic() + _SECONDS
    begin, before = 0.0, 0
    while True:
        written = seen()
        if begin == 0.0 and written >= rows * _LEFT_OUT:
            begin, before = time.time(), written
        if written >= rows and (now := time.time()) and counted() >= rows:
            return Stretch(1, rows - before, begin, now)
        if process.ended:
            raise ChildProcessError(f"{name} has ended after {written:,} of {rows:,} rows")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} has written {written:,} of {rows:,} rows within {_SECONDS:.0f} s")
        time.sleep(_POLL_S)


def _stable_rows(kafka: KafkaProperties, topic: str) -> int:
    """By the last stable offsets, which count a transaction's marker as a row: one of some ten thousand."""
    try:
        return sum(end_offsets(broker_client(kafka), {topic: range(PARTITIONS)}, "read_committed")[topic].values())
    except TopicError:
        return 0  # the program has not made it yet
