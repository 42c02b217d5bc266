"""The error codes of an answer about partitions, and whether it is about all that were asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from spark_eos.base.topic_partition import TopicPartition


class AnsweredPartition(Protocol):
    @property
    def partition_index(self) -> int: ...

    @property
    def error_code(self) -> int: ...


class AnsweredTopic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> Sequence[AnsweredPartition]: ...


def partition_codes(
    topics: Iterable[AnsweredTopic], asked: Mapping[str, Iterable[int]]
) -> dict[TopicPartition, int] | None:
    """Return the error code of each partition. None if the partitions differ from ``asked``, {topic: partitions}: the
    broker may have done nothing for a partition that it leaves out, so that this counts as no response."""
    codes = {(topic.name, p.partition_index): p.error_code for topic in topics for p in topic.partitions}
    wanted = {(topic, number) for topic, numbers in asked.items() for number in numbers}
    return codes if codes.keys() == wanted else None
