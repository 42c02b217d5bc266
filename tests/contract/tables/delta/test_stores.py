"""Commits to a table in an object store that loses replies, or applies a request late."""

from __future__ import annotations

from collections import Counter

import pytest

from spark_eos.errors import TableError
from spark_eos.pipelines.tables.delta.creation import known
from spark_eos.pipelines.tables.delta.table import Table
from tests.support.servers.s3_stand_in import FINE, LATE, LOSE_REPLY, S3StandIn, s3_stand_in
from tests.support.tables.delta_files import (
    SCHEMA,
    committed,
    expected,
    files_of,
    micro_batch,
    read_by_deltalake,
    read_by_log,
    targeted,
)

BATCHES = [micro_batch(n, (0, 2 * n, 2 * n + 2)) for n in range(4)]


@pytest.fixture
def store():
    with s3_stand_in() as store:
        yield store


@pytest.fixture
def table(store) -> Table:
    return known(store.location("t"), SCHEMA)


def kept_in(store: S3StandIn):
    """Files of the table."""
    return lambda path, content: store.keep(f"t/{path}", content)


def rows(store: S3StandIn, table: Table) -> Counter:
    """By both readers, which agree."""
    found = read_by_deltalake(table.location)
    of_table = {key.removeprefix("t/"): content for key, content in store.objects.items() if key.startswith("t/")}
    assert found == read_by_log(of_table)
    return found


def commit(store: S3StandIn, table: Table, batch):
    return committed(table, batch, kept_in(store))


def first_try(action: str):
    """This, for the first put of each version of the log."""
    seen: set[str] = set()

    def fault(key: str) -> str:
        if "_delta_log/" not in key or not key.endswith(".json") or key in seen:
            return FINE
        seen.add(key)
        return action

    return fault


def test_commits_whose_reply_is_lost_are_in_the_table_once(store, table) -> None:
    """The client sends them again, and is told that the version is there: by its own commit."""
    store.fault = first_try(LOSE_REPLY)
    outcomes = [commit(store, table, batch) for batch in BATCHES]
    store.fault = lambda key: FINE
    assert rows(store, table) == expected(*BATCHES)
    assert all(outcome.again for outcome in outcomes)


def test_requests_that_are_applied_late_change_nothing(store, table) -> None:
    """Each version was written again meanwhile, or is the late one."""
    store.fault = first_try(LATE)
    for batch in BATCHES:
        commit(store, table, batch)
        store.apply_late()
    store.fault = lambda key: FINE
    assert rows(store, table) == expected(*BATCHES)


def test_a_request_that_is_applied_after_the_query_has_given_up_is_found_by_the_next_start(store, table) -> None:
    """It lands between two starts."""
    store.fault = lambda key: LATE if "_delta_log/" in key else FINE
    batch = BATCHES[0]
    with pytest.raises(TableError) as error:
        targeted(table).commit(batch, files_of(kept_in(store), batch), 2, patience_s=0.01)
    assert error.value.condition == "EOS_TABLE_UNCLEAR"
    store.fault = lambda key: FINE
    store.apply_late()
    assert commit(store, table, batch).again
    assert rows(store, table) == expected(batch)
