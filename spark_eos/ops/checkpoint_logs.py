"""The logs of a checkpoint as Spark writes them, and what makes one unfit for being changed or taken over.

A file of ``offsets`` is a version, a line of metadata, and a line for each source; one of ``commits`` a version and a
line of metadata. Spark keeps the newest 100 (spark.sql.streaming.minBatchesToRetain).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from spark_eos.checkpoint.files import Checkpoint
from spark_eos.errors import stop
from spark_eos.protocol.head import Offsets

_KNOWN = "v1"
OURS, BUILT_IN, OTHER = "eos-kafka", "kafka", "another"


@dataclass(frozen=True)
class OffsetLogEntry:
    """A micro-batch in the offset log."""

    batch: int
    version: str
    metadata: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class QuerySource:
    """A line of the offset log. ``kind``: `OURS`, `BUILT_IN` or `OTHER`; topic → id in ``ids``, if they are there;
    ``cluster``: the id of the cluster, where it is noted; ``left``: where the query has left topics, and partitions of
    topics, that it no longer reads."""

    line: str
    kind: str
    offsets: Offsets
    ids: Mapping[str, str]
    cluster: str | None = None
    left: Offsets = field(default_factory=dict)


class Logs:
    """The logs of one checkpoint, each file read once."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self._entries: dict[int, OffsetLogEntry] = {}

    @cached_property
    def planned(self) -> list[int]:
        """Numbers of the micro-batches in the offset log, ascending."""
        return self.checkpoint.batches("offsets")

    @cached_property
    def done(self) -> list[int]:
        """Numbers of those in the commit log, ascending."""
        return self.checkpoint.batches("commits")

    @cached_property
    def stateful(self) -> bool:
        """Whether the query keeps state, as aggregations do."""
        return bool(self.checkpoint.names("state"))

    def entry(self, batch: int) -> OffsetLogEntry:
        """Raises CheckpointError (EOS_CHECKPOINT_DAMAGED)."""
        if batch not in self._entries:
            name = f"offsets/{batch}"
            lines = (self.checkpoint.read(name) or "").splitlines()
            if len(lines) < 3 or not lines[0].startswith("v"):
                raise self.checkpoint.damaged(name, "it does not have a version, metadata and a line for each source")
            self._entries[batch] = OffsetLogEntry(batch, lines[0], lines[1], tuple(lines[2:]))
        return self._entries[batch]

    def commit_entry(self, batch: int) -> Sequence[str]:
        """Version and metadata. Raises CheckpointError (EOS_CHECKPOINT_DAMAGED)."""
        name = f"commits/{batch}"
        lines = (self.checkpoint.read(name) or "").splitlines()
        if len(lines) < 2 or not lines[0].startswith("v"):
            raise self.checkpoint.damaged(name, "it does not have a version and metadata")
        return lines

    def sources(self, batch: int) -> list[QuerySource]:
        """By the entry of a micro-batch in the offset log, in the query's order. Raises what `entry` does."""
        return [source_of(line) for line in self.entry(batch).lines]


def source_of(line: str) -> QuerySource:
    """What a source's line of the offset log says."""
    try:
        raw: Any = json.loads(line)
    except ValueError:
        raw = None
    marks = {key: raw[key] for key in raw if key.startswith("#")} if isinstance(raw, dict) else {}
    topics = {key: raw[key] for key in raw if not key.startswith("#")} if isinstance(raw, dict) else {}
    shaped = bool(topics or marks) and all(
        isinstance(partitions, dict) and all(p.isdigit() and type(at) is int for p, at in partitions.items())
        for partitions in topics.values()
    )
    if not shaped:
        return QuerySource(line, OTHER, {}, {})
    cluster = marks.get("#cluster", {}).get("id")
    left = {topic: at["offsets"] for topic, at in marks.get("#left", {}).items()}
    return QuerySource(line, OURS if marks else BUILT_IN, topics, marks.get("#ids", {}), cluster, left)


def merged(sources: Sequence[QuerySource]) -> dict[str, dict[str, int]]:
    """The offsets of all sources together; of a topic that two of them read, the lower ones."""
    found: dict[str, dict[str, int]] = {}
    for source in sources:
        for topic, partitions in source.offsets.items():
            there = found.setdefault(topic, {})
            for p, at in partitions.items():
                there[p] = min(at, there.get(p, at))
    return found


def topic_twice(sources: Sequence[QuerySource]) -> str | None:
    """A topic that two sources read."""
    topics = [topic for source in sources for topic in source.offsets]
    return next((topic for topic in topics if topics.count(topic) > 1), None)


def check_known(logs: Logs) -> None:
    """Raise ReplayError unless the logs are what Spark writes for a query in plain micro-batches: versions that are
    known, and no gaps, which asynchronous progress tracking leaves (EOS_REPLAY_REFUSED)."""
    where = logs.checkpoint.location
    for log, batches in (("offsets", logs.planned), ("commits", logs.done)):
        missing = sorted(set(range(batches[0], batches[-1] + 1)) - set(batches)) if batches else []
        if missing:
            raise stop(
                "EOS_REPLAY_REFUSED.gaps",
                folder=where,
                kind=log,
                missing=missing[0],
                before=batches[0],
                after=batches[-1],
            )
    for log, batches in (("offsets", logs.planned), ("commits", logs.done)):
        for batch in batches[-1:]:
            version = (logs.entry(batch).version if log == "offsets" else logs.commit_entry(batch)[0]).strip()
            if version != _KNOWN:
                raise stop("EOS_REPLAY_REFUSED.version", folder=where, kind=log, batch=batch, version=version)
