"""The notes of the job kafka_to_delta in its commits by Spark. By these notes, a copy past the JVM recognizes a
micro-batch that the job has committed, and the other way round, so that a query can move between the two."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.offset_log import IDS, is_mark
from spark_eos.pipelines.tables.delta.commit import TakenOver
from spark_eos.pipelines.tables.delta.memory import NOTE

#: Spark's line for a source that has had no offset.
_NOTHING_YET = "-"

#: The line of each source in the offset log: end offsets by topic and partition, and marks whose names begin with #.
Logged = list[dict[str, Any]]


def logged(checkpoint: Checkpoint, batch: int) -> Logged:
    """The lines of the sources in the offset log of a micro-batch. Raises CheckpointError."""
    try:
        found = [{} if line == _NOTHING_YET else json.loads(line) for line in checkpoint.sources(batch)]
    except (ValueError, RecursionError):
        found = []
    if not found or not all(isinstance(source, dict) for source in found):
        raise checkpoint.damaged(f"offsets/{batch}", "it does not have the offsets of each source")
    return found


def around(checkpoint: Checkpoint, batch: int) -> tuple[Logged, Logged]:
    """The lines where a micro-batch begins, and where it ends. Raises CheckpointError."""
    end = logged(checkpoint, batch)
    return (logged(checkpoint, batch - 1) if batch else [{} for _ in end]), end


def digest_of(start: Logged, end: Logged) -> str:
    """A digest of the topics' ids and the offsets; other marks do not change it."""
    known: Iterable[Mapping[str, Any]] = [
        {name: found for name, found in source.items() if not is_mark(name) or name == IDS} for source in (*start, *end)
    ]
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def noted(text: str) -> tuple[str, str | None] | None:
    """The digest and the table's id in the ``userMetadata`` of one of the job's commits; None for another commit."""
    try:
        note = json.loads(text)[NOTE]
        return (str(note["digest"]), note.get("table")) if "attempt" in note else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def taken_over(checkpoint: Checkpoint, batch: int) -> TakenOver:
    """The notes for a micro-batch of the query with this checkpoint. The offset log is only read if needed."""
    return TakenOver(noted, partial(_digest, checkpoint, batch))


def _digest(checkpoint: Checkpoint, batch: int) -> str:
    return digest_of(*around(checkpoint, batch))
