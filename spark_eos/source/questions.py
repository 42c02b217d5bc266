"""The questions about the cluster that `spark_eos.source.plan` yields, as values.

Each docstring has the form of the answer. "By partition" means ``{(topic, partition): number}``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from spark_eos.base.topic_partition import PartitionOffsets, TopicPartition
from spark_eos.checkpoint.offset_log import TopicIds

T = TypeVar("T")


@dataclass(frozen=True)
class Topics:
    """The topics to read that exist: the partitions to read of each, and its id. ``cluster``: the cluster's id;
    empty if brokers have none. ``leader_epochs``: the current epoch of each partition's leader."""

    partitions: dict[str, list[int]]
    ids: TopicIds
    cluster: str = ""
    leader_epochs: PartitionOffsets = field(default_factory=dict)


@dataclass(frozen=True)
class EpochsBefore:
    """Which leader epochs do the records before these offsets have? ``least``: lower bounds for them, where known.
    Answer: the epochs that are known, by partition."""

    offsets: Mapping[TopicPartition, int]
    least: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True)
class DivergedFrom:
    """Which logs no longer have records of these leader epochs before these offsets? Answer: by partition, the offset
    from which the log differs."""

    offsets: Mapping[TopicPartition, int]
    epochs: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class HighWatermarks:
    """Where do these partitions end, open transactions included? Answer: by partition. ``after_ms``: a pause before."""

    partitions: Collection[TopicPartition]
    after_ms: int = 0


@dataclass(frozen=True)
class FirstOffsets:
    """Where do the logs of these partitions begin? Answer: by partition."""

    partitions: Collection[TopicPartition]


@dataclass(frozen=True)
class WithinBytes:
    """Where does a micro-batch of about ``most`` bytes end? Answer: ``ends``, or earlier offsets."""

    start: PartitionOffsets
    ends: PartitionOffsets
    most: int


@dataclass(frozen=True)
class TopicsThere:
    """Which of the topics to read exist? ``now``: at this moment, even if they are pinned; otherwise the answer may be
    some seconds old. ``after_ms``: a pause before. Answer: `Topics`."""

    now: bool = True
    after_ms: int = 0


@dataclass(frozen=True)
class TopicsNamed:
    """Which of these topics exist at this moment, subscribed to or not? ``after_ms``: a pause before.
    Answer: `Topics`."""

    names: Collection[str]
    after_ms: int = 0


@dataclass(frozen=True)
class StartingOffsets:
    """Which offsets do ``startingOffsets`` and similar options mean? Answer: an offset for each partition to read."""


@dataclass(frozen=True)
class DroppedOnPurpose:
    """Which of these topics, which the query no longer reads, were dropped on purpose and are not a loss? Answer: their
    names."""

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

#: Yields questions, is sent the answer to each, and returns the decision.
Plan = Generator[Question, Any, T]


def answered(plan: Plan[T], answer: Callable[[Question], object]) -> T:
    """Return the decision of a plan, whose questions ``answer`` answers."""
    try:
        question = next(plan)
        while True:
            question = plan.send(answer(question))
    except StopIteration as done:
        decision: T = done.value
        return decision
