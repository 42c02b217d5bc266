"""Writes rows and sees them come out at the other end: a writer and a ``read_committed`` reader in one process.

``python -m bench.probe '<spec as JSON>'`` prints, for each row, when it was written and how long it took.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bench.loop import client
from bench.spec import Spec, answer

_NOTHING_S = 60.0
_POLL_S = 0.1


@dataclass(frozen=True)
class ProbeSpec(Spec):
    """``rounds`` of ``burst`` rows; ``period_s`` between them, or None: a burst once the one before is visible."""

    bootstrap_servers: str
    input: str
    output: str
    partitions: int
    rounds: int
    burst: int
    period_s: float | None


class LatencyProbe:
    """A row's value is its round, and when it was written in nanoseconds."""

    def __init__(self, spec: ProbeSpec) -> None:
        self._spec = spec
        common = client(spec.bootstrap_servers)
        self._producer = Producer(common | {"linger.ms": 0})
        self._consumer = Consumer(
            common
            | {
                "group.id": "bench-probe",  # asked for by the client; nothing is committed to it
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._consumer.assign([TopicPartition(spec.output, p, 0) for p in range(spec.partitions)])
        #: (round, seconds since the epoch when it was written, seconds until it was visible)
        self.seen: list[tuple[int, float, float]] = []

    def run(self) -> None:
        """Until every row is visible. Raises TimeoutError when none comes for a minute."""
        closed = self._spec.rounds if self._spec.period_s is None else 1  # one, so that the query is up
        for number in range(closed):
            self._write(number)
            self._read((number + 1) * self._spec.burst)
        if self._spec.period_s is not None:
            writer = threading.Thread(target=self._write_steadily, args=[self._spec.period_s], daemon=True)
            writer.start()
            self._read(self._spec.rounds * self._spec.burst)
            writer.join()
        self._consumer.close()

    def _write_steadily(self, period_s: float) -> None:
        begin = time.monotonic()
        for number in range(1, self._spec.rounds):
            time.sleep(max(0.0, begin + number * period_s - time.monotonic()))
            self._write(number)

    def _write(self, number: int) -> None:
        for row in range(self._spec.burst):
            partition = (number * self._spec.burst + row) % self._spec.partitions
            self._producer.produce(self._spec.input, f"{number} {time.time_ns()}", partition=partition)
        self._producer.poll(0)

    def _read(self, until: int) -> None:
        deadline = time.monotonic() + _NOTHING_S
        while len(self.seen) < until:
            # `consume` alone would wait for all that it was asked for.
            first = self._consumer.poll(_POLL_S)
            if first is None:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{len(self.seen)} of {until} rows are visible, and no more for a minute")
                continue
            messages = [first, *self._consumer.consume(1000, 0)]
            now = time.time()
            deadline = time.monotonic() + _NOTHING_S
            for message in messages:
                if message.error() is not None:
                    raise KafkaException(message.error())
                number, written = map(int, (message.value() or b"").split())
                self.seen.append((number, written / 1e9, now - written / 1e9))


if __name__ == "__main__":
    probe = LatencyProbe(ProbeSpec.given())
    probe.run()
    answer(probe.seen)
