"""Which topics and partitions a query reads: ``subscribe``, ``subscribePattern`` or ``assign``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from spark_eos.base.topic_partition import OWN_NAMES
from spark_eos.errors import invalid_option
from spark_eos.options.offsets import parse_partitions

#: Topic → its partitions.
Partitions = Mapping[str, Collection[int]]


@dataclass(frozen=True)
class Subscribe:
    """All partitions of these topics, also ones that are added later."""

    topics: tuple[str, ...]

    def __str__(self) -> str:
        return f"'subscribe' ({','.join(self.topics)})"

    def partitions_of(self, topic: str, count: int) -> Iterable[int]:
        """Return the partitions to read of a topic with ``count`` partitions."""
        return range(count)

    def includes(self, topic: str, partition: int) -> bool:
        """Return whether this partition is to be read if it exists."""
        return topic in self.topics

    def lacking(self, there: Partitions) -> list[str]:
        """Return topics and partitions that a new query needs and the cluster does not have."""
        return [topic for topic in self.topics if topic not in there]


@dataclass(frozen=True)
class Pattern:
    """All partitions of the topics whose names contain a match of the regular expression, including later ones."""

    regex: str
    #: It names no topics.
    topics: ClassVar[tuple[str, ...]] = ()

    def __str__(self) -> str:
        return f"'subscribePattern' ({self.regex})"

    def matching(self, names: Iterable[str]) -> list[str]:
        pattern = re.compile(self.regex)
        return sorted(name for name in names if pattern.search(name) and not name.startswith(OWN_NAMES))

    def partitions_of(self, topic: str, count: int) -> Iterable[int]:
        return range(count)

    def includes(self, topic: str, partition: int) -> bool:
        return bool(self.matching([topic]))

    def lacking(self, there: Partitions) -> list[str]:
        return [] if there else [f"that matches {self.regex}"]


@dataclass(frozen=True)
class Assign:
    """These partitions only."""

    partitions: tuple[tuple[str, tuple[int, ...]], ...]

    def __str__(self) -> str:
        return "'assign'"

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(topic for topic, _ in self.partitions)

    def partitions_of(self, topic: str, count: int) -> Iterable[int]:
        return [p for p in dict(self.partitions)[topic] if p < count]

    def includes(self, topic: str, partition: int) -> bool:
        return partition in dict(self.partitions).get(topic, ())

    def lacking(self, there: Partitions) -> list[str]:
        return [f"{t}-{p}" for t, partitions in self.partitions for p in partitions if p not in there.get(t, ())]


Selection = Subscribe | Pattern | Assign


def parse_subscribe(option: str, value: str) -> Subscribe:
    topics = tuple(t.strip() for t in value.split(","))
    if not all(topics):
        raise invalid_option(option, f"'{value}', with an empty topic name", "the form topic1,topic2")
    return Subscribe(tuple(dict.fromkeys(topics)))


def parse_pattern(option: str, value: str) -> Pattern:
    text = value.strip()
    if not text:
        raise invalid_option(option, "empty", "a regular expression")
    try:
        re.compile(text)
    except re.error as error:
        raise invalid_option(
            option,
            f"not a regular expression: {error.msg} at position {error.pos} of '{text}'",
            "Python's syntax, which differs from Java's in rare constructs such as possessive classes",
        ) from None
    return Pattern(text)


def parse_assign(option: str, value: str) -> Assign:
    return Assign(tuple(sorted(parse_partitions(option, value).items())))
