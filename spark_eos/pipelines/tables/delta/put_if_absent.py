"""Tries whether a store lets only one of several writers create a version of a Delta table."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from spark_eos.errors import stop
from spark_eos.pipelines.tables.delta.table import Location

#: Rounds in which a store is tried, and commits at once in each.
_ROUNDS, _AT_ONCE = 3, 4


def check_put_if_absent(location: Location) -> None:
    """Check that the store lets only one of several commits of the same version succeed. Raises TableError
    (EOS_DELTA_STORE_UNSAFE).

    Tried by commits at once to a table of its own, in a folder of this one that neither readers nor VACUUM look into.
    Each has seen that there is no such version yet when it writes it, so on a store without conditions several succeed:
    as a rule all of them, and in `_ROUNDS` rounds more than one at least once.
    """
    folder = f"_spark_eos_{uuid.uuid4().hex}"
    try:
        for number in range(_ROUNDS):
            uri = f"{location.uri}/{folder}/{number}"
            if _successes(replace(location, uri=uri)) != 1:
                raise stop("EOS_DELTA_STORE_UNSAFE", path=location.path)
    finally:
        with suppress(Exception):
            location.drop(folder)


def _successes(place: Location) -> int:
    """Return how many of several commits of version 1, at once, succeed in a new table."""
    from deltalake import CommitProperties, DeltaTable, Transaction

    schema = pa.schema([("n", pa.int32())])
    DeltaTable.create(place.uri, schema, storage_options=dict(place.options))
    together = threading.Barrier(_AT_ONCE)

    def commit(number: int) -> bool:
        handle = place.open()
        once = CommitProperties(max_commit_retries=0, app_transactions=[Transaction("one of them", number)])
        together.wait()
        try:
            handle.create_write_transaction([], "append", schema, commit_properties=once)
        except Exception:  # as it has to be for all but one
            return False
        return True

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return sum(pool.map(commit, range(_AT_ONCE)))
