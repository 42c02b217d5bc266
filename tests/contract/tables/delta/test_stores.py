"""Commits to a table in an object store that loses replies, or applies a request late."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.checkpoint.stores import open_store
from spark_eos.pipelines.tables.commit import Outcome
from spark_eos.pipelines.tables.delta.target import DeltaTarget
from spark_eos.pipelines.tables.files import DataFile
from spark_eos.pipelines.tables.micro_batch import RangeBatch
from tests.support.judges.conditions import raises
from tests.support.servers.s3_stand_in import FINE, LATE, LOSE_REPLY, S3StandIn, first_try
from tests.support.tables.delta_files import looked_after, micro_batch, read_by_log
from tests.support.tables.table_kinds import Places, expected, rows_of, written
from tests.support.waiting import TIMEOUT

BATCHES = [micro_batch(n, (0, 2 * n, 2 * n + 2)) for n in range(4)]


@pytest.fixture
def files_of(store, in_store, tmp_path):
    """``files_of(batch)``: the micro-batch's files, which are in the store."""

    def put(batch: RangeBatch) -> tuple[DataFile, ...]:
        files = written(open_store(str(tmp_path), HadoopSettings()), in_store.layout, rows_of(in_store.layout, batch))
        for file in files:
            store.keep(f"t/{file.path}", (tmp_path / file.path).read_bytes())
        return files

    return put


@pytest.fixture
def commit(in_store, files_of):
    """``commit(batch)``: the outcome for a micro-batch whose files were written just now."""

    def committed(batch: RangeBatch) -> Outcome:
        return in_store.commit(batch, files_of(batch), 2, patience_s=TIMEOUT)

    return committed


def rows(store: S3StandIn, in_store: DeltaTarget) -> Places:
    """By two readers, which agree."""
    location = in_store.table.location
    table = DeltaTable(location.uri, storage_options=dict(location.options)).to_pyarrow_table()
    found = Places(zip(*(table.column(name).to_pylist() for name in ("partition", "offset")), strict=True))
    of_table = {key.removeprefix("t/"): content for key, content in store.objects.items() if key.startswith("t/")}
    assert found == read_by_log(of_table)
    return found


def test_commits_whose_reply_is_lost_are_in_the_table_once(store, in_store, commit) -> None:
    """The client sends them again, and is told that the version is there: by its own commit."""
    store.fault = first_try(LOSE_REPLY)
    outcomes = [commit(batch) for batch in BATCHES]
    store.fault = lambda key: FINE
    assert rows(store, in_store) == expected(*BATCHES)
    assert all(outcome.again for outcome in outcomes)


def test_requests_that_are_applied_late_change_nothing(store, in_store, commit) -> None:
    """Each version was written again meanwhile, or is the late one."""
    store.fault = first_try(LATE)
    for batch in BATCHES:
        commit(batch)
        store.apply_late()
    store.fault = lambda key: FINE
    assert rows(store, in_store) == expected(*BATCHES)


def test_a_request_that_is_applied_after_the_query_has_given_up_is_found_by_the_next_start(
    store, in_store, files_of, commit
) -> None:
    """It lands between two starts."""
    store.fault = lambda key: LATE if "_delta_log/" in key else FINE
    batch = BATCHES[0]
    with raises("EOS_TABLE_UNCLEAR"):
        in_store.commit(batch, files_of(batch), 2, patience_s=0.01)
    store.fault = lambda key: FINE
    store.apply_late()
    assert commit(batch).again
    assert rows(store, in_store) == expected(batch)


def test_a_table_on_s3_is_looked_after(store, in_store, commit) -> None:
    """By the options that delta-rs has for it. The store says of all files that they are old."""
    for batch in BATCHES[:3]:
        commit(batch)
    store.keep("t/eos-q-1-0-1-0123456789abcdef.parquet", b"of a task that was killed")
    looked_after(in_store.table.location)
    assert "t/eos-q-1-0-1-0123456789abcdef.parquet" not in store.objects
    assert rows(store, in_store) == expected(*BATCHES[:3])
    assert in_store.commit(BATCHES[2], [], 0).again
