"""Records what plain consumers see while a query meets faults: every poll, for the judge in `histories`.

At each isolation level one reader goes on from the beginning, and one begins again and again; another one asks for the
group's offsets. They go to the brokers directly, and wait for those that are away.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.support.judges.histories import LEVELS, GroupPoll, History, Place, Poll, Reading, Seen, judge
from tests.support.judges.kafka_view import KafkaView
from tests.support.kills import query
from tests.support.waiting import TIMEOUT

_POLL_S = 0.1
#: A pass that some partition does not let come to its end is given up, and counts as far as it came.
_PASS_S = 5.0
_CLOSING_S = TIMEOUT
#: A group's coordinator that comes back answers by the last checkpoint of its high watermark, some seconds old, until
#: its replicas have caught up: 0 for an offset that was 24 before all brokers died, and 24 again half a second later.
_SETTLES_S = 5.0
#: An answer that takes longer may come from a coordinator that was away.
_PROMPT_S = 1.0
_MOST_ROWS = 10_000
_EVERY_FULL = 10


@dataclass(frozen=True)
class Recorded:
    """What is recorded of which query. ``pause_s``: between two passes, and between two looks at the group.

    A query without an ``input``, as that topic is none, has neither micro-batches nor a group that could be judged.
    ``known_by``: what no two rows of a topic have in common.
    ``window``: with many rows, a pass begins so many offsets before the end, and now and then anywhere; None: at 0.
    ``whole_parts``: whether one task writes all of a micro-batch's rows of a partition, as without a shuffle.
    """

    spec: query.Spec
    pause_s: float = 0.3
    known_by: Callable[[Message], bytes] = Message.value
    window: int | None = None
    whole_parts: bool = True

    @property
    def outputs(self) -> list[str]:
        return [topic for topic in (self.spec.output, self.spec.also) if topic]


def of_topics(view: KafkaView, output: str, source: str = "", checkpoint: str = "", **what: Any) -> Recorded:
    """Of a query that no spec describes, from one topic, or elsewhere, to another: it leaves values as they are."""
    return Recorded(query.Spec(view.bootstrap_servers, source, output, checkpoint, "nobody", 0, copies=True), **what)


class Recorder:
    """Begins on entry; ``close`` ends it and returns the history. Whatever a reader raises is raised there."""

    def __init__(self, view: KafkaView, recorded: Recorded) -> None:
        self._view, self._what = view, recorded
        self._places = [(topic, p) for topic in recorded.outputs for p in view.partitions(topic)]
        source = recorded.spec.input
        self._input = [(source, p) for p in view.partitions(source)] if source else []
        self._over = threading.Event()
        self.readings: list[Reading] = []
        self._group: list[GroupPoll] = []
        self._away = -_SETTLES_S
        self._plans: dict[int, Mapping[Place, int]] = {}
        self._failures: list[BaseException] = []
        self._interned: dict[bytes, bytes] = {}
        calls: list[Callable[[], None]] = [self._watch_group] if source else []
        for committed in LEVELS:
            calls += [lambda c=committed: self._tail(c), lambda c=committed: self._passes(c)]
        self._threads = [threading.Thread(target=self._run, args=(call,), daemon=True) for call in calls]

    def __enter__(self) -> Recorder:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __str__(self) -> str:
        polls = sum(len(reading.polls) for reading in self.readings)
        return f"{polls} polls of {len(self.readings)} readings, {len(self._group)} looks at the group"

    def stop(self) -> None:
        """End the readers."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def close(self) -> History:
        """End the readers and read everything once more. Nothing may be open in the output any more."""
        self.stop()
        if self._failures:
            raise self._failures[0]
        if self._input:
            self._look_at_plans()
            with self._consumer(committed=False, group=self._what.spec.group) as consumer:
                self._away = -_SETTLES_S
                self._ask_group(consumer, _CLOSING_S)
        closing = {committed: self._closing(committed, self._places) for committed in LEVELS}
        inputs = {
            self._what.spec.expected(row.value.decode()).encode(): (row.place, row.offset)
            for row in self._closing(True, self._input).rows()
        }
        whole_parts = self._what.whole_parts and self._what.spec.shuffle is None
        return History(self.readings, self._group, closing, inputs, self._plans, whole_parts)

    def _run(self, call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:
            self._failures.append(error)

    # Readers

    def _tail(self, committed: bool) -> None:
        with self._consumer(committed) as consumer:
            reading = _begin(consumer, "tail", committed, dict.fromkeys(self._places, 0))
            self.readings.append(reading)
            while not self._over.is_set():
                self._poll(consumer, reading)

    def _passes(self, committed: bool) -> None:
        """Again and again up to the end; a pass is a reading of its own."""
        chance, ends = random.Random(0), dict.fromkeys(self._places, 0)
        with self._consumer(committed) as consumer:
            for n in range(1_000_000):
                if self._over.wait(self._what.pause_s if n else 0):
                    return
                reading = _begin(consumer, f"pass {n}", committed, self._starts(ends, n, chance))
                self.readings.append(reading)
                self._to_end(consumer, reading, _PASS_S)
                consumer.unassign()
                ends = {place: max(end, ends[place]) for place, end in reading.covered().items()}

    def _starts(self, ends: Mapping[Place, int], n: int, chance: random.Random) -> dict[Place, int]:
        if self._what.window is None:
            return dict.fromkeys(ends, 0)
        if n % _EVERY_FULL == _EVERY_FULL - 1:
            return {place: chance.randint(0, end) for place, end in ends.items()}
        return {place: max(0, end - self._what.window) for place, end in ends.items()}

    def _closing(self, committed: bool, places: list[Place]) -> Reading:
        with self._consumer(committed) as consumer:
            reading = _begin(consumer, "closing", committed, dict.fromkeys(places, 0))
            assert self._to_end(consumer, reading, _CLOSING_S), f"the closing reading got to {reading.covered()}"
            return reading

    def _to_end(self, consumer: Consumer, reading: Reading, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        waiting = set(reading.starts)
        while waiting and time.monotonic() < deadline:
            waiting -= self._poll(consumer, reading)
            if self._over.is_set() and seconds == _PASS_S:
                break
        return not waiting

    def _poll(self, consumer: Consumer, reading: Reading) -> set[Place]:
        """One poll, noted if it brought anything. Returns the places that are read to their end.

        An end is told once. It may come with the last rows, so a place is at its end unless rows come after it.
        """
        rows, ends, reached = [], {}, set()
        for message in consumer.consume(_MOST_ROWS, timeout=_POLL_S):
            error, place = message.error(), (message.topic(), message.partition())
            if error is None:
                value = self._what.known_by(message)
                rows.append(Seen(*place, message.offset(), self._interned.setdefault(value, value)))
                reached.discard(place)
            elif error.code() == KafkaError._PARTITION_EOF:
                ends[place] = message.offset()
                reached.add(place)
            elif error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise AssertionError(f"{reading}: {error}")  # a reader's offset was out of the log's range
        if rows or ends:
            reading.polls.append(Poll(time.monotonic(), rows, ends))
        return reached

    @contextlib.contextmanager
    def _consumer(self, committed: bool, group: str = "recorder") -> Iterator[Consumer]:
        consumer = Consumer(
            {
                "bootstrap.servers": self._view.bootstrap_servers,
                "broker.address.family": "v4",
                "group.id": group,  # nothing is committed to it
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": LEVELS[committed],
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
            | ({} if self._what.window is None else {"fetch.message.max.bytes": 32_768})
        )
        try:
            yield consumer
        finally:
            consumer.close()

    # The group's offsets, and the plans of micro-batches

    def _watch_group(self) -> None:
        with self._consumer(committed=False, group=self._what.spec.group) as consumer:
            while not self._over.wait(self._what.pause_s):
                self._look_at_plans()
                self._ask_group(consumer, 5.0)

    def _ask_group(self, consumer: Consumer, timeout: float) -> None:
        began, found = time.monotonic(), None
        with contextlib.suppress(KafkaException):
            found = consumer.committed([TopicPartition(*place) for place in self._input], timeout=timeout)
        if found is None or time.monotonic() - began > _PROMPT_S:
            self._away = time.monotonic()  # the group's coordinator
        if found is None or time.monotonic() - self._away < _SETTLES_S:
            return
        offsets = {(at.topic, at.partition): at.offset for at in found if at.error is None and at.offset >= 0}
        self._group.append(GroupPoll(time.monotonic(), offsets))

    def _look_at_plans(self) -> None:
        """Spark forgets those of old micro-batches."""
        for file in Path(self._what.spec.checkpoint, "offsets").glob("[0-9]*"):
            if int(file.name) in self._plans:
                continue
            with contextlib.suppress(OSError, ValueError, IndexError):  # just being written, or damaged by the test
                planned = json.loads(file.read_text().splitlines()[2]).get(self._what.spec.input, {})
                topic = self._what.spec.input
                self._plans[int(file.name)] = {(topic, int(p)): end for p, end in planned.items()}


def _begin(consumer: Consumer, name: str, committed: bool, starts: Mapping[Place, int]) -> Reading:
    reading = Reading(name, committed, time.monotonic(), starts, [])
    consumer.assign([TopicPartition(*place, offset) for place, offset in starts.items()])
    return reading


@contextlib.contextmanager
def judged(view: KafkaView, recorded: Recorded) -> Iterator[Recorder]:
    """Records while the block runs, and judges the history at its end, when nothing may be open in the output."""
    with Recorder(view, recorded) as recorder:
        yield recorder
        found = judge(recorder.close())
    assert found == [], f"{len(found)} anomalies:\n" + "\n".join(map(str, found[:20]))
