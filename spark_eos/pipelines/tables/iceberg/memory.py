"""Memory of a query in an Iceberg table: a tag, ``eos-QUERY``, on the snapshot of its last micro-batch.

The snapshot's summary says which one that is. The tag is moved in the commit of the files, and keeps its snapshot when
others expire.

========================  =======================================================
key of the summary        value
========================  =======================================================
``spark-eos.query``       the query's id
``spark-eos.batch``       number of the micro-batch
``spark-eos.digest``      digest of the micro-batch's number and offsets, in hex
``spark-eos.rows``        number of rows
``spark-eos.ranges``      ``topic/partition`` → first offset and end, as JSON
``spark-eos.table``       id of the table that the commit was meant for
========================  =======================================================

The ranges are of all partitions that the query has read, as earlier snapshots may have expired: where the micro-batch
has read nothing, the first offset is the end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from spark_eos.errors import stop
from spark_eos.pipelines.tables.micro_batch import RangeBatch, Remembered, landed

_PREFIX = "spark-eos."
_QUERY, _BATCH, _DIGEST = f"{_PREFIX}query", f"{_PREFIX}batch", f"{_PREFIX}digest"
_ROWS, _RANGES, _TABLE = f"{_PREFIX}rows", f"{_PREFIX}ranges", f"{_PREFIX}table"


def tag_of(query: str) -> str:
    return f"eos-{query}"


def summary_of(batch: RangeBatch, rows: int, ends: Mapping[str, int], table: str) -> dict[str, str]:
    """Return further entries for the summary of the micro-batch's snapshot. ``ends``: `Memory.ends` before it;
    ``table``: the table's id."""
    ranges = {partition: (end, end) for partition, end in ends.items()} | batch.places
    return {
        _QUERY: batch.query,
        _BATCH: str(batch.number),
        _DIGEST: f"{batch.digest:x}",
        _ROWS: str(rows),
        _RANGES: json.dumps(ranges, separators=(",", ":")),
        _TABLE: table,
    }


@dataclass(frozen=True)
class Memory:
    """A table's memory of a query. ``snapshot``: of the last micro-batch, None without one; ``is_in_main``: whether the
    main branch still descends from it, as far as the snapshots that have not expired can tell; ``ends``:
    ``topic/partition`` → end offset."""

    remembered: Remembered
    snapshot: int | None = None
    is_in_main: bool = True
    ends: Mapping[str, int] = field(default_factory=dict)


def memory_of(metadata: TableMetadata, query: str, path: str) -> Memory:
    """Return the query's memory. ``path``: the table, for messages. Raises TableError (EOS_ICEBERG_TAG) where the tag
    was removed or moved by another program, and EOS_OTHER_TABLE where its snapshot was meant for another table: some
    catalogs do not check for which one a commit is."""
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    tag, main = metadata.refs.get(tag_of(query)), metadata.refs.get(MAIN_BRANCH)
    tagged = None if tag is None else snapshots[tag.snapshot_id]
    if tagged is not None and not _own(tagged, query):
        raise stop("EOS_ICEBERG_TAG.foreign", path=path, tag=tag_of(query), snapshot=tagged.snapshot_id)
    last = None if tagged is None else int(_summary(tagged, _BATCH))
    table = str(metadata.table_uuid)
    if tagged is not None and _summary(tagged, _TABLE) not in ("", table):  # earlier versions have not noted it
        raise landed(path, last, table, query)
    # From the newest snapshot back to the tag's: no later micro-batch of the query may be among them.
    newest = None if main is None else snapshots[main.snapshot_id]
    snapshot = newest
    while snapshot is not None and (tagged is None or _sequence(snapshot) > _sequence(tagged)):
        if _own(snapshot, query):
            batch = _summary(snapshot, _BATCH)
            raise stop(
                "EOS_ICEBERG_TAG.behind", path=path, tag=tag_of(query), batch=batch, snapshot=snapshot.snapshot_id
            )
        # None, too, where the parent has expired: some writers then commit as if there were no parent.
        snapshot = None if snapshot.parent_snapshot_id is None else snapshots.get(snapshot.parent_snapshot_id)
    if tagged is None:
        return Memory(Remembered(None, None))
    remembered = Remembered(last, int(_summary(tagged, _DIGEST), 16))
    is_gone = newest is None or (snapshot is not None and snapshot.snapshot_id != tagged.snapshot_id)
    ends = {partition: end for partition, (_, end) in json.loads(_summary(tagged, _RANGES)).items()}
    return Memory(remembered, tagged.snapshot_id, not is_gone, ends)


def check_in_main(memory: Memory, path: str, batch: int, after_rollback: int | None) -> None:
    """Check that no rollback has removed the query's last micro-batch before this one is committed, but for a snapshot
    ``after_rollback``. Raises TableError (EOS_OTHER_TABLE)."""
    if not memory.is_in_main and memory.snapshot != after_rollback:
        raise stop(
            "EOS_OTHER_TABLE.restored",
            batch=batch,
            what=(
                f"the main branch of the table {path} no longer has the query's last snapshot {memory.snapshot}, as "
                "after a rollback"
            ),
            option="afterRollback",
            value=memory.snapshot,
        )


def _sequence(snapshot: Snapshot) -> int:
    """Return the snapshot's number among all commits of the table, which version 2 of the format always has."""
    return snapshot.sequence_number or 0


def _own(snapshot: Snapshot, query: str) -> bool:
    return snapshot.summary is not None and snapshot.summary[_QUERY] == query


def _summary(snapshot: Snapshot, key: str) -> str:
    return "" if snapshot.summary is None else str(snapshot.summary[key] or "")
