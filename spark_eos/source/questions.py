"""What the source's decisions ask of the cluster, as values: see `spark_eos.source.plan`, which asks.

Each question says what its answer is. By partition means ``{(topic, partition): number}``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from spark_eos.checkpoint.offset_log import TopicIds
from spark_eos.topic_partition import PartitionOffsets, TopicPartition

T = TypeVar("T")


@dataclass(frozen=True)
class Topics:
    """The topics that are there, of those to read: the partitions to read of each, and its id. ``cluster``: the id of
    the cluster that they are on; empty where brokers do not tell. ``leader_epochs``: of each partition's leader."""

    partitions: dict[str, list[int]]
    ids: TopicIds
    cluster: str = ""
    leader_epochs: PartitionOffsets = field(default_factory=dict)


@dataclass(frozen=True)
class EpochsBefore:
    """Which leader epochs do the records before these offsets have? ``least``: epochs that they cannot be smaller than.
    Answer: the epochs that are known, by partition."""

    offsets: Mapping[TopicPartition, int]
    least: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True)
class DivergedFrom:
    """Which logs do not have records of these epochs before these offsets any more? Answer: by partition, the offset
    from which on the log is another one."""

    offsets: Mapping[TopicPartition, int]
    epochs: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class HighWatermarks:
    """Where do these partitions end, open transactions included? Answer: by partition. Asked after a pause."""

    partitions: Collection[TopicPartition]
    after_ms: int = 0


@dataclass(frozen=True)
class FirstOffsets:
    """Where do the logs of these partitions begin? Answer: by partition."""

    partitions: Collection[TopicPartition]


@dataclass(frozen=True)
class WithinBytes:
    """Up to where does a micro-batch of about so many bytes go? Answer: offsets like ``ends``, or earlier ones."""

    start: PartitionOffsets
    ends: PartitionOffsets
    most: int


@dataclass(frozen=True)
class TopicsThere:
    """Which topics are there? ``now``: in this moment, even where they are pinned; else some seconds ago will do.
    Answer: `Topics`."""

    now: bool = True


@dataclass(frozen=True)
class TopicsNamed:
    """What is there of these topics in this moment, subscribed to or not? Answer: `Topics`. Asked after a pause."""

    names: Collection[str]
    after_ms: int = 0


@dataclass(frozen=True)
class StartingOffsets:
    """Which offsets do ``startingOffsets`` and its like mean? Answer: an offset for each partition to read."""


@dataclass(frozen=True)
class DroppedOnPurpose:
    """Which of these topics, which the query reads no longer, are no loss? Answer: their names."""

    topics: Collection[str]


Question = (
    EpochsBefore
    | DivergedFrom
    | HighWatermarks
    | FirstOffsets
    | WithinBytes
    | TopicsThere
    | TopicsNamed
    | StartingOffsets
    | DroppedOnPurpose
)

#: Yields questions, is sent the answer of each, and returns the decision.
Plan = Generator[Question, Any, T]


def answered(plan: Plan[T], answer: Callable[[Question], object]) -> T:
    """The decision that a plan comes to, where ``answer`` has the answers."""
    try:
        question = next(plan)
        while True:
            question = plan.send(answer(question))
    except StopIteration as done:
        decision: T = done.value
        return decision
