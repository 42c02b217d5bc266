"""The format of Spark's offset log: a file for each micro-batch, and in it a line for each source of the query.

A file has a version, a line of metadata and the sources' lines. The line of a Kafka source, this one or Spark's own, is
JSON with the end offset of each partition, exclusive. This source notes more, under keys that cannot be topics::

    {"#cluster": {"id": "5L6…"}, "#ids": {"flights": "6xQ…"}, "flights": {"0": 23, "1": 5}}

==============  ==========================================================================================
``#cluster``    the id of the cluster, where brokers have one: the same offsets are other rows on another one
``#group``      the consumer group that the source reports to, so that the sink can refuse to have the same one
``#copy``       this is a copy, so Spark's rows are ranges of offsets
``#sink``       the table that the query writes to, as options of the sink without secrets, so that commands can ask it:
                ``{"format": "delta", "path": "/data/flights"}``. Another start may name it otherwise
``#left``       topics and partitions that the query no longer reads, in case they come back:
                ``{"carriers": {"id": "…", "offsets": {"0": 7}}}``
``#epochs``     the leader epochs of the records before these offsets, where they are known: ``{"flights": {"0": 4}}``.
                They tell that a log was cut and has grown again (`spark_eos.source.epochs`)
``#ids``        the ids of the topics
==============  ==========================================================================================

Spark compares offsets as JSON text, so `to_spark` fixes the order of keys. A source's report for the query's progress
has the same form, with other marks (`as_marks`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spark_eos.base.topic_partition import PartitionOffsets
from spark_eos.base.whole_numbers import plain_number

#: Topic → its id. A recreated topic has a different id.
TopicIds = dict[str, str]

#: Keys with this prefix are not topics.
_MARK = "#"
IDS = _MARK + "ids"
_GROUP = _MARK + "group"
_CLUSTER = _MARK + "cluster"
_COPY = _MARK + "copy"
#: Also the option by which a job, whose rows pass through Spark, tells its source the table that they go to, as JSON.
SINK = _MARK + "sink"
_LEFT = _MARK + "left"
_EPOCHS = _MARK + "epochs"

#: The version of a file's format, which is its first line.
VERSION = "v1"
#: The kinds of sources: this one, Spark's own for Kafka, and any other.
OURS, BUILT_IN, OTHER = "eos-kafka", "kafka", "another"


@dataclass(frozen=True)
class LeftAt:
    """Offsets at which a query has left partitions of a topic that it no longer reads, by partition. ``id``: the
    topic's; ``epochs``: partition → leader epoch of the record before that offset, where it is known."""

    id: str | None
    offsets: dict[int, int]
    epochs: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Position:
    """The content of a Kafka source's line. ``offsets``: where each partition ends, exclusive. ``ids`` is empty if the
    line has none; ``group`` and ``cluster`` are None. ``left``: topics, and partitions of topics, that the selection no
    longer includes or the cluster no longer has. ``epochs``: of the records before the offsets, where they are known.
    ``sink``: the table that the query writes to; empty where it writes to none, or the line does not say.
    """

    offsets: PartitionOffsets
    ids: TopicIds = field(default_factory=dict)
    group: str | None = None
    cluster: str | None = None
    copy: bool = False
    left: dict[str, LeftAt] = field(default_factory=dict)
    epochs: PartitionOffsets = field(default_factory=dict)
    sink: Mapping[str, str] = field(default_factory=dict)


def to_spark(position: Position) -> dict[str, dict[str, Any]]:
    """Return the line of a source, as Spark takes it: marks first, then topics by name, and partitions by number."""
    offsets = position.offsets
    ids = {topic: position.ids[topic] for topic in sorted(offsets) if topic in position.ids}
    topics = {topic: _by_text(offsets[topic]) for topic in sorted(offsets)}
    epochs = {
        topic: _by_text({p: epoch for p, epoch in position.epochs[topic].items() if p in offsets[topic] and epoch >= 0})
        for topic in sorted(offsets.keys() & position.epochs.keys())
    }
    noted = {_CLUSTER: position.cluster, _GROUP: position.group}
    marks: dict[str, dict[str, Any]] = {name: {"id": value} for name, value in noted.items() if value}
    if position.copy:
        marks[_COPY] = {}
    if position.sink:
        marks[SINK] = dict(position.sink)
    if position.left:
        marks[_LEFT] = {topic: _to_json(position.left[topic]) for topic in sorted(position.left)}
    if any(epochs.values()):
        marks[_EPOCHS] = {topic: found for topic, found in epochs.items() if found}
    return {**marks, IDS: ids, **topics} if ids else {**marks, **topics}


def from_spark(logged: Mapping[str, Mapping[str, Any]]) -> Position:
    """Return the position in a line that `to_spark` or Spark's own Kafka source has written."""
    offsets = {topic: _by_number(partitions) for topic, partitions in logged.items() if not is_mark(topic)}
    epochs = {topic: _by_number(found) for topic, found in logged.get(_EPOCHS, {}).items()}
    left = {
        topic: LeftAt(found.get("id"), _by_number(found["offsets"]), _by_number(found.get("epochs", {})))
        for topic, found in logged.get(_LEFT, {}).items()
    }
    cluster, group = (logged.get(name, {}).get("id") for name in (_CLUSTER, _GROUP))
    return Position(
        offsets, dict(logged.get(IDS, {})), group, cluster, _COPY in logged, left, epochs, dict(logged.get(SINK, {}))
    )


def position_of(logged: object) -> Position:
    """Return the position in the parsed line of any source. Raises ValueError, with a reason for a message to users, if
    neither `to_spark` nor Spark's own Kafka source has written it."""
    if not isinstance(logged, dict) or not all(_is_offsets(of) for topic, of in logged.items() if not is_mark(topic)):
        raise ValueError("it is the line of another source")
    try:
        position = from_spark(logged)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("the fields beside the offsets are incomplete") from error
    if any(not 0 <= at < 2**63 for partitions in position.offsets.values() for at in partitions.values()):
        raise ValueError("an offset is negative, or larger than any")
    return position


def is_mark(key: str) -> bool:
    """Return whether a key of a source's line is not a topic."""
    return key.startswith(_MARK)


def as_marks(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values that a source reports beside its offsets, under keys that cannot be topics."""
    return {_MARK + name: value for name, value in values.items()}


def marks_of(text: str | None) -> dict[str, Any]:
    """Return the values that a source's JSON has beside its topics, by name without the prefix; none if it is not JSON
    of this form. The inverse of `as_marks`."""
    raw = _parsed(text)
    return {key.removeprefix(_MARK): raw[key] for key in raw if is_mark(key)} if isinstance(raw, dict) else {}


# Lines of any source


@dataclass(frozen=True)
class SourceLine:
    """A source's line. ``kind``: `OURS`, `BUILT_IN` or `OTHER`. ``position``: the content of a Kafka source's line;
    empty for other sources. ``damaged``: it may have been a Kafka source's, and is cut off or overwritten."""

    text: str
    kind: str
    position: Position
    damaged: bool = False


def source_line(text: str) -> SourceLine:
    """Parse the line of any source. A source without an offset yet has a dash."""
    raw = _parsed(text)
    if raw is _NOT_JSON:
        damaged = text.startswith(("{", "\0"))  # a power cut may leave zeros
        return SourceLine(text, OTHER, Position({}), damaged)
    if not isinstance(raw, dict) or not raw:
        return SourceLine(text, OTHER, Position({}))
    if not all(_is_offsets(partitions) for topic, partitions in raw.items() if not is_mark(topic)):
        return SourceLine(text, OTHER, Position({}))
    try:
        position = position_of(raw)
    except ValueError:
        return SourceLine(text, OTHER, Position({}), damaged=True)
    return SourceLine(text, OURS if any(map(is_mark, raw)) else BUILT_IN, position)


def with_offsets(line: SourceLine, offsets: PartitionOffsets) -> str:
    """Return the text of a Kafka source's line with other offsets for some of its partitions, with blanks only if it
    had them. A partition that moves loses its leader epoch, which was that of the record before the old offset."""
    raw = json.loads(line.text)
    for topic, partitions in offsets.items():
        for p, offset in partitions.items():
            if offset != line.position.offsets[topic][p]:
                raw[topic][str(p)] = offset
                raw.get(_EPOCHS, {}).get(topic, {}).pop(str(p), None)
    return json.dumps(raw) if '": ' in line.text else json.dumps(raw, separators=(",", ":"))


def lowest_offsets(lines: Iterable[SourceLine]) -> PartitionOffsets:
    """Return the offsets of all sources together; of a partition that two of them read, the lower one."""
    offsets: PartitionOffsets = {}
    for line in lines:
        for topic, partitions in line.position.offsets.items():
            there = offsets.setdefault(topic, {})
            for p, at in partitions.items():
                there[p] = min(at, there.get(p, at))
    return offsets


def topic_twice(lines: Sequence[SourceLine]) -> str | None:
    """Return a topic that two sources read; None if there is none."""
    topics = [topic for line in lines for topic in line.position.offsets]
    return next((topic for topic in topics if topics.count(topic) > 1), None)


# Files


@dataclass(frozen=True)
class OffsetLogEntry:
    """The file of a micro-batch. ``lines``: of its sources, in the query's order."""

    version: str
    metadata: str
    lines: tuple[str, ...]


class UnknownVersion(Exception):
    """A file of another ``version`` than `VERSION`."""

    def __init__(self, version: str) -> None:
        super().__init__(version)
        self.version = version


def entry_of(text: str) -> OffsetLogEntry:
    """Parse the text of a file. Raises ValueError, with a reason for a message to users, if it is incomplete, and
    UnknownVersion: in version 2, which Spark 4.2 can write, a source's line begins with a name."""
    lines = text.splitlines()
    if len(lines) < 3 or not lines[0].startswith("v"):
        raise ValueError("it does not have a version, metadata and one line for each source")
    if lines[0].strip() != VERSION:
        raise UnknownVersion(lines[0].strip())
    return OffsetLogEntry(lines[0], lines[1], tuple(lines[2:]))


def with_text_keys(offsets: PartitionOffsets) -> dict[str, dict[str, int]]:
    """Return the offsets as JSON and the ledger have them, with partitions as text."""
    return {topic: _by_text(partitions) for topic, partitions in offsets.items()}


_NOT_JSON = object()


def _parsed(text: str | None) -> Any:  # noqa: ANN401  # any JSON value
    try:
        return json.loads(text or "null", object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return _NOT_JSON


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs as a dict. Raises ValueError for a repeated key: Spark writes none, and either value might be
    the right one."""
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise ValueError("a key is there twice")
    return unique


def _is_offsets(partitions: object) -> bool:
    return isinstance(partitions, dict) and all(
        p.isascii() and p.isdigit() and type(offset) is int for p, offset in partitions.items()
    )


def _to_json(left: LeftAt) -> dict[str, Any]:
    id_ = {} if left.id is None else {"id": left.id}
    epochs = {"epochs": _by_text(left.epochs)} if left.epochs else {}
    return {**id_, "offsets": _by_text(left.offsets), **epochs}


def _by_text(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(p): numbers[p] for p in sorted(numbers)}


def _by_number(numbers: Mapping[str, int]) -> dict[int, int]:
    """Return the numbers by partition. Raises ValueError for a key that is written otherwise than as `_by_text`
    does."""
    numbered = {plain_number(p): number for p, number in numbers.items()}
    if None in numbered:
        raise ValueError("a partition is not a number")
    return {p: number for p, number in numbered.items() if p is not None}
