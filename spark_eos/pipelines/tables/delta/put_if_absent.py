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

#: Rounds in which a store is tried, and commits at once in each; and the most rounds where some prove nothing.
_ROUNDS, _AT_ONCE, _MOST_ROUNDS = 3, 4, 6


def check_put_if_absent(location: Location) -> None:
    """Check that the store lets only one of several commits of the same version succeed. Raises TableError
    (EOS_DELTA_STORE_UNSAFE), and errors of delta-rs and the store.

    Tried by commits at once to a table of its own, in a folder of this one that neither readers nor VACUUM look into.
    Each has seen that there is no such version yet when it writes it, so on a store without conditions several succeed:
    as a rule all of them, and in `_ROUNDS` rounds more than one at least once. A round without a known success, as
    where the winner's reply was lost, proves nothing.
    """
    folder = f"_spark_eos_{uuid.uuid4().hex}"
    proved = 0
    try:
        for number in range(_MOST_ROUNDS):
            errors = _errors(replace(location, uri=f"{location.uri}/{folder}/{number}"))
            if len(errors) < _AT_ONCE - 1:
                raise stop("EOS_DELTA_STORE_UNSAFE", path=location.path)
            proved += len(errors) < _AT_ONCE
            if proved == _ROUNDS:
                return
        raise errors[0]
    finally:
        with suppress(Exception):
            location.drop(folder)


def _errors(place: Location) -> list[Exception]:
    """Return the errors of several commits of version 1, at once, in a new table: of all but one, as it has to be."""
    from deltalake import CommitProperties, DeltaTable, Transaction

    schema = pa.schema([("n", pa.int32())])
    DeltaTable.create(place.uri, schema, storage_options=dict(place.options))
    together = threading.Barrier(_AT_ONCE)
    handles = [place.open() for _ in range(_AT_ONCE)]  # an error here leaves no thread waiting

    def commit(number: int) -> Exception | None:
        once = CommitProperties(max_commit_retries=0, app_transactions=[Transaction("one of them", number)])
        together.wait()
        try:
            handles[number].create_write_transaction([], "append", schema, commit_properties=once)
        except Exception as error:
            return error
        return None

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [error for error in pool.map(commit, range(_AT_ONCE)) if error is not None]
