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
    """The error code of each partition. None where they are not those that were asked for, {topic: partitions}: what
    the answer leaves out may not be done, so that it counts as no answer."""
    codes = {(topic.name, p.partition_index): p.error_code for topic in topics for p in topic.partitions}
    wanted = {(topic, number) for topic, numbers in asked.items() for number in numbers}
    return codes if codes.keys() == wanted else None
