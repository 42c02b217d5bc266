"""Up to where the topics count.

The order in which bounds are taken makes the answer hold for a job that is running: what is *due* is noted before where
the output ends; what cannot have come through *yet*, and where the input ends, after it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from spark_eos.errors import ConnectionFailed, OptionError
from spark_eos.kafka.admin.groups import committed_offsets
from spark_eos.kafka.admin.topics import Offsets, begin_offsets, end_offsets, topic_partitions
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.ops.verify.question import Question

#: Seconds to wait for transactions that are just being ended, before the output or the group counts as held back.
PATIENCE_S = 3.0


@dataclass(frozen=True)
class Place:
    """One partition, and which of its offsets count: ``begin`` (inclusive), ``stable`` (its last stable offset) and
    ``end`` (its high watermark), both exclusive."""

    topic: str
    partition: int
    begin: int
    stable: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True)
class Bounds:
    """Places of both sides; for each input place the offset up to which rows are due, and with a group that from which
    none may be there."""

    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    due: tuple[int, ...]
    done: tuple[int, ...] | None
    warnings: tuple[str, ...]


def take_bounds(question: Question) -> Bounds:
    """Take the bounds, in the order that lets them be compared (see the module)."""
    kafka, timeout_s = question.kafka, question.timeout_s
    topics = dict.fromkeys(question.inputs + question.outputs)
    counts = topic_partitions(kafka, topics, timeout_s)
    partitions = {topic: range(count) for topic, count in counts.items()}
    of_input = {topic: partitions[topic] for topic in question.inputs}
    of_output = {topic: partitions[topic] for topic in question.outputs}
    warnings: list[str] = []

    stable = end_offsets(kafka, of_input, "read_committed", timeout_s)
    before = _group_offsets(question, of_input, warnings) if question.group else stable
    ends = end_offsets(kafka, of_output, "read_uncommitted", timeout_s)
    outputs = _places(kafka, of_output, _settled(question, of_output, ends), ends, timeout_s)
    after = _group_offsets(question, of_input, warnings) if question.group else None
    stable = end_offsets(kafka, of_input, "read_committed", timeout_s)
    ends = end_offsets(kafka, of_input, "read_uncommitted", timeout_s)
    inputs = _places(kafka, of_input, stable, ends, timeout_s)

    due = tuple(before[place.topic][place.partition] for place in inputs)
    done = tuple(after[place.topic][place.partition] for place in inputs) if after is not None else None
    warnings += _warnings(question, inputs, outputs, due)
    return Bounds(inputs, outputs, due, done, tuple(dict.fromkeys(warnings)))


def _places(
    kafka: KafkaProperties, partitions: Mapping[str, Iterable[int]], stable: Offsets, ends: Offsets, timeout_s: float
) -> tuple[Place, ...]:
    begins = begin_offsets(kafka, partitions, timeout_s)
    return tuple(
        Place(topic, p, begins[topic][p], stable[topic][p], max(stable[topic][p], ends[topic][p]))
        for topic, numbers in partitions.items()
        for p in numbers
    )


def _settled(question: Question, partitions: Mapping[str, Iterable[int]], ends: Offsets) -> Offsets:
    """Last stable offsets once all before ``ends`` is stable, or when `PATIENCE_S` is over: never past ``ends``."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        stable = end_offsets(question.kafka, partitions, "read_committed", question.timeout_s)
        stable = {topic: {p: min(at, ends[topic][p]) for p, at in of.items()} for topic, of in stable.items()}
        if stable == ends or time.monotonic() > deadline:
            return stable
        time.sleep(0.05)


def _group_offsets(question: Question, partitions: Mapping[str, Iterable[int]], warnings: list[str]) -> Offsets:
    """What the group has committed of the inputs, 0 where nothing. Raises OptionError, ConnectionFailed, KafkaError."""
    committed = _ask_group(question, partitions, warnings)
    if not committed:
        raise OptionError(
            "EOS_VERIFY_GROUP_EMPTY",
            f"The group '{question.group}' has committed no offset of {', '.join(partitions)}.",
            hint="Check its name; leave --group out where the job publishes no offsets.",
            group=question.group,
        )
    return {topic: {p: committed.get(topic, {}).get(p, 0) for p in numbers} for topic, numbers in partitions.items()}


def _ask_group(question: Question, partitions: Mapping[str, Iterable[int]], warnings: list[str]) -> Offsets:
    """The group's offsets once none waits for the end of a transaction, or when `PATIENCE_S` is over."""
    group = question.group
    assert group is not None
    asked = (question.kafka, group, partitions)
    at_least = committed_offsets(*asked, question.timeout_s, isolation="read_uncommitted")
    try:
        return committed_offsets(*asked, PATIENCE_S)
    except ConnectionFailed:  # who has just answered the other question waits for a transaction
        warnings.append(f"an open transaction holds newer offsets of the group {group}")
        return at_least


def _warnings(
    question: Question, inputs: Sequence[Place], outputs: Sequence[Place], due: Sequence[int]
) -> Iterable[str]:
    for place in outputs:
        if place.stable < place.end:
            yield f"an open transaction holds {place} back: readers get to {place.stable} of {place.end}"
    for place, limit in zip(inputs, due, strict=True):
        if question.group and limit > place.end:
            yield f"the group {question.group} is at {limit} of {place}, which ends at {place.end}"
        if place.begin > 0:
            yield f"{place} begins at {place.begin}: rows of the output that are older count as unknown"
    for place in outputs:
        if place.begin > 0:
            yield f"{place} begins at {place.begin}: rows of the input that were older there count as lost"
