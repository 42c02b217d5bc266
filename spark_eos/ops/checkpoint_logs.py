"""The offset log and the commit log of a checkpoint, and whether commands can change them.

`spark_eos.checkpoint.offset_log` has the format of ``offsets``; a file of ``commits`` is a version and a line of
metadata. Spark keeps the newest 100 (spark.sql.streaming.minBatchesToRetain).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.offset_log import OffsetLogEntry, SourceLine, source_line
from spark_eos.errors import stop

_KNOWN = "v1"


class Logs:
    """The logs of one checkpoint, each file read once."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self._entries: dict[int, OffsetLogEntry] = {}

    @cached_property
    def planned(self) -> list[int]:
        """The micro-batches in the offset log, ascending."""
        return self.checkpoint.batches("offsets")

    @cached_property
    def done(self) -> list[int]:
        """The micro-batches in the commit log, ascending."""
        return self.checkpoint.batches("commits")

    @cached_property
    def stateful(self) -> bool:
        """True if the query keeps state, as aggregations do."""
        return bool(self.checkpoint.names("state"))

    def entry(self, batch: int) -> OffsetLogEntry:
        """Return the file of a micro-batch in the offset log. Raises CheckpointError (EOS_CHECKPOINT_DAMAGED)."""
        if batch not in self._entries:
            self._entries[batch] = self.checkpoint.entry(batch)
        return self._entries[batch]

    def commit_entry(self, batch: int) -> Sequence[str]:
        """Return the version and metadata of a micro-batch in the commit log. Raises CheckpointError
        (EOS_CHECKPOINT_DAMAGED)."""
        name = f"commits/{batch}"
        lines = (self.checkpoint.read(name) or "").splitlines()
        if len(lines) < 2 or not lines[0].startswith("v"):
            raise self.checkpoint.damaged(name, "it does not have a version and metadata")
        return lines

    def source_lines(self, batch: int) -> list[SourceLine]:
        """Return the lines of the sources in `entry`, in the query's order. Raises as `entry`."""
        return [source_line(text) for text in self.entry(batch).lines]


def check_known(logs: Logs) -> None:
    """Raise ReplayError (EOS_REPLAY_REFUSED) or CheckpointError (EOS_CHECKPOINT_FORMAT) unless the logs have a known
    version, and no gaps, as asynchronous progress tracking leaves them."""
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
    for batch in logs.planned[-1:]:
        logs.entry(batch)
    for batch in logs.done[-1:]:
        version = logs.commit_entry(batch)[0].strip()
        if version != _KNOWN:
            raise stop("EOS_REPLAY_REFUSED.version", folder=where, kind="commits", batch=batch, version=version)
