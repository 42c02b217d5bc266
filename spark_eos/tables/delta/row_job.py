"""What the job kafka_to_delta notes with a commit that it makes by Spark, so that a query can move between it and files
past the JVM: both know a micro-batch again that the other one has committed just before."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.offset_log import IDS, is_mark
from spark_eos.tables.delta.commit import TakenOver
from spark_eos.tables.delta.memory import NOTE

#: Spark's line for a source that has had no offset.
_NOTHING_YET = "-"

#: What each source of a query has in the offset log: end offsets by topic and partition, and by names with # at their
#: head, what else it notes there.
Logged = list[dict[str, Any]]


def logged(checkpoint: Checkpoint, batch: int) -> Logged:
    """The sources in the offset log of a micro-batch. Raises CheckpointError."""
    try:
        found = [{} if line == _NOTHING_YET else json.loads(line) for line in checkpoint.sources(batch)]
    except ValueError:
        found = []
    if not found or not all(isinstance(source, dict) for source in found):
        raise checkpoint.damaged(f"offsets/{batch}", "it does not have the offsets of each source")
    return found


def around(checkpoint: Checkpoint, batch: int) -> tuple[Logged, Logged]:
    """Where a micro-batch begins and ends. Raises CheckpointError."""
    end = logged(checkpoint, batch)
    return (logged(checkpoint, batch - 1) if batch else [{} for _ in end]), end


def digest_of(start: Logged, end: Logged) -> str:
    """Equal for the same offsets of the same topics, whatever else the sources note."""
    known: Iterable[Mapping[str, Any]] = [
        {name: found for name, found in source.items() if not is_mark(name) or name == IDS} for source in (*start, *end)
    ]
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def noted_digest(text: str) -> str | None:
    """The digest in the ``userMetadata`` of a commit of the job; None where that is not its note."""
    try:
        note = json.loads(text)[NOTE]
        return str(note["digest"]) if "attempt" in note else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def taken_over(checkpoint: Checkpoint, batch: int) -> TakenOver:
    """For a query that has this checkpoint. The offset log is read only where the table has such a commit."""
    return TakenOver(noted_digest, partial(_digest, checkpoint, batch))


def _digest(checkpoint: Checkpoint, batch: int) -> str:
    return digest_of(*around(checkpoint, batch))
