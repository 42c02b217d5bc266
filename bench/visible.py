"""What a program has copied, seen from outside, where it does not say when it is done."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench.child import started
from bench.count import committed_rows
from bench.drain import Run, Stretch, measured
from bench.meter import BROKER, CLIENT, Meter
from bench.session import Bench
from spark_eos.errors import TopicError
from spark_eos.kafka.admin.topics import end_offsets
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client

#: Of the rows, how many at the beginning do not count: the program is still getting up.
_LEFT_OUT = 0.25
_SECONDS, _POLL_S = 600.0, 0.05


def run(name: str, command: Sequence[str], bench: Bench, output: str, partitions: int, rows: int) -> Run:
    """Start a program that copies, until so many rows are visible; it is gone then. Raises TimeoutError."""
    with (
        started(name, command) as process,
        Meter({CLIENT: [process.pid], BROKER: bench.roots[BROKER]}) as meter,
    ):
        counted = _watched(name, bench, output, partitions, rows)
    return measured(rows, 1, counted, meter)


def _watched(name: str, bench: Bench, output: str, partitions: int, rows: int) -> Stretch:
    """Until so many rows are visible. By the last stable offsets, which count a transaction's marker as a row: one of
    some ten thousand. Raises TimeoutError, which says the program's ``name``."""
    kafka = KafkaProperties({"bootstrap.servers": bench.bootstrap_servers})
    deadline = time.monotonic() + _SECONDS
    begin, before = 0.0, 0
    while True:
        written = _stable_rows(kafka, output, partitions)
        if begin == 0.0 and written >= rows * _LEFT_OUT:
            begin, before = time.time(), written
        if written >= rows and (now := time.time()) and committed_rows(bench.bootstrap_servers, output) >= rows:
            return Stretch(1, rows - before, begin, now)
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} has copied {written:,} of {rows:,} rows within {_SECONDS:.0f} s")
        time.sleep(_POLL_S)


def _stable_rows(kafka: KafkaProperties, topic: str, partitions: int) -> int:
    try:
        return sum(end_offsets(broker_client(kafka), {topic: range(partitions)}, "read_committed")[topic].values())
    except TopicError:
        return 0  # the program has not made it yet
