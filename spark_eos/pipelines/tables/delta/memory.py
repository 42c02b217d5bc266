"""Memory of a query in a Delta table: transactions (``txn``) in its log, which survive checkpoints and clean-ups.

=====================  ==================================================================================
application id         version
=====================  ==================================================================================
``QUERY``              number of the last micro-batch, as written by Delta's own sink
``QUERY#digest``       digest of the micro-batch's number and offsets
``QUERY#read``         the table's version before the commit
``QUERY#table``        digest of the id of the table that the commit was meant for
``QUERY#TOPIC-N``      end offset in partition N, if the micro-batch has read from it
=====================  ==================================================================================

They are in one commit with the files. If a driver is paused before its commit, and somebody recreates the table, the
commit lands in a table that it was not meant for.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from spark_eos.base.topic_partition import name_of_partition
from spark_eos.pipelines.tables.micro_batch import RangeBatch, Remembered, digest_of, landed

_DIGEST, _READ, _TABLE = "#digest", "#read", "#table"
#: The key of the note in a commit's ``userMetadata``.
NOTE = "spark-eos"
#: The application id under which the job kafka_to_delta merges a query's micro-batches.
MERGES = "spark-eos merge {}"

#: Gets the version of an application id in a table; None if the table does not have it.
TransactionVersion = Callable[[str], int | None]


def transactions_of(batch: RangeBatch, read_version: int, table: str) -> list[tuple[str, int]]:
    """Return application ids and versions, Delta's transactions, for the commit of a micro-batch on ``read_version`` of
    the table with this id."""
    query = batch.query
    ends = [(f"{query}#{name_of_partition(place)}", end) for place, (_, _, end) in batch.spans.items()]
    known = [(_DIGEST, batch.digest), (_READ, read_version), (_TABLE, digest_of(table))]
    return [(query, batch.number), *((query + name, version) for name, version in known), *ends]


def note_of(batch: RangeBatch, rows: int) -> str:
    """Return the commit's ``userMetadata``, for people; the log's clean-up removes it."""
    noted = {"query": batch.query, "batch": batch.number, "digest": f"{batch.digest:x}", "rows": rows}
    return json.dumps({NOTE: noted | {"ranges": batch.places}}, separators=(",", ":"))


def remembered(version_of: TransactionVersion, query: str) -> Remembered:
    """Return the query's transactions in a table."""
    return Remembered(version_of(query), *(version_of(query + name) for name in (_DIGEST, _READ, _TABLE)))


def is_meant_for(memory: Remembered, table: str) -> bool:
    """Return whether the query's last commit says that it was meant for the table with this id."""
    return memory.table == digest_of(table)


def check_meant(path: str, memory: Remembered, table: str, query: str) -> None:
    """Check that the table with this id has no commit of the query that was meant for another one. Commits of earlier
    versions do not say which one they were meant for. Raises TableError (EOS_OTHER_TABLE)."""
    if memory.table is not None and not is_meant_for(memory, table):
        raise landed(path, memory.last, table, query)
