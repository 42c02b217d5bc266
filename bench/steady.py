"""Writes rows at a steady rate, as ``python -m bench.steady '<spec as JSON>'``; prints their number at the end."""

from __future__ import annotations

import time
from dataclasses import dataclass

from confluent_kafka import Producer

from bench.load import without_keys
from bench.loop import client
from bench.spec import Spec, answer

#: Rows are written in bursts, so many times a second.
_BURSTS = 100
_FLUSH_S = 60


@dataclass(frozen=True)
class SteadySpec(Spec):
    """``rate`` rows a second, a multiple of 100, for ``length_s`` seconds, with values of ``value_bytes``. A row's
    timestamp is the time of the call that writes it."""

    bootstrap_servers: str
    topic: str
    partitions: int
    rate: int
    length_s: int
    value_bytes: int

    @property
    def rows(self) -> int:
        return self.rate * self.length_s


def write(spec: SteadySpec) -> int:
    """The number of rows, when the broker has all of them. Raises RuntimeError where it has not."""
    producer = Producer(client(spec.bootstrap_servers) | {"enable.idempotence": True, "linger.ms": 5})
    values, burst, begin = without_keys(spec.value_bytes), spec.rate // _BURSTS, time.monotonic()
    for number in range(_BURSTS * spec.length_s):
        time.sleep(max(0.0, begin + number / _BURSTS - time.monotonic()))
        for row, (_, value) in zip(range(burst), values, strict=False):
            producer.produce(spec.topic, value, partition=(number * burst + row) % spec.partitions)
        producer.poll(0)
    if left := producer.flush(_FLUSH_S):
        raise RuntimeError(f"the broker did not take {left:,} rows of {spec.topic}")
    return spec.rows


if __name__ == "__main__":
    answer(write(SteadySpec.given()))
