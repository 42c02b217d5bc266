"""Commits, of micro-batches and of columns, by a REST catalog that loses, delays and repeats requests, or never
answers: each is in the table once, and no request takes longer than it may."""

from __future__ import annotations

import gzip
import logging
import pickle
import random
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.types import IntegerType
from pyspark import cloudpickle

from spark_eos.base.metrics_events import NOWHERE
from spark_eos.datasource.ranges import RangeDataSource, RangeQuery, data_source_of
from spark_eos.errors import TableError
from spark_eos.options.parse import stream_options
from spark_eos.pipelines import deadline
from spark_eos.pipelines.copy.source import RangeStreamReader
from spark_eos.pipelines.copy.table.plan import TablePlan
from spark_eos.pipelines.copy.table.writer import to_table
from spark_eos.pipelines.tables.commit import Outcome
from spark_eos.pipelines.tables.iceberg import catalog, rest
from spark_eos.pipelines.tables.iceberg.target import IcebergTarget
from tests.support.judges.conditions import raises
from tests.support.servers.object_store import SECRET_KEY, object_store
from tests.support.servers.rest_catalog import CatalogServer, Fault, RestIceberg, serving
from tests.support.tables.delta_files import FIRST, QUERY, SCHEMA, SECOND, THIRD, micro_batch
from tests.support.tables.table_kinds import FOREIGN, beside_others, committed, expected, files_of
from tests.support.waiting import wait_for

SILENT = ("hung", "dripping")
#: Seconds until a request is over that the server has left without an answer.
SHORT_S = 0.05
WIDE = pa.schema([*SCHEMA, ("c", pa.string())])
LARGE = bytes(8 << 20)


@pytest.fixture
def kind(tmp_path) -> RestIceberg:
    return RestIceberg(tmp_path)


@pytest.fixture
def server(kind) -> Iterator[CatalogServer]:
    with serving(kind.server) as server:
        yield server


@pytest.fixture
def target(server, kind) -> IcebergTarget:
    return kind.target()


@pytest.fixture
def short(server, monkeypatch) -> list[float]:
    """The limits of requests so far. Each is over soon after the server has left it without an answer; any other has
    all its time, as a machine may be busy."""
    limits: list[float] = []

    def within(timeout_s: float, call: Callable[[], Any], thread: str) -> Any:
        limits.append(timeout_s)
        server.silent.clear()
        pool = ThreadPoolExecutor(1)
        future = pool.submit(call)
        pool.shutdown(wait=False)
        wait_for(lambda: future.done() or server.silent.is_set(), "neither answer nor silence")
        return future.result() if future.done() else deadline.within(SHORT_S, future.result, thread)

    monkeypatch.setattr(rest, "within", within)
    return limits


@pytest.mark.parametrize(
    ("before", "answer", "done"),
    [
        *((before, 504, done) for before in ((), (FIRST,)) for done in ("before", "never", "late")),
        *(((FIRST,), answer, "before") for answer in ("lost", 409, 500, 502, 503, "garbled", "hung")),
    ],
)
def test_a_micro_batch_is_in_the_table_once_whatever_becomes_of_the_request(
    kind, server, target, short, before, done, answer
) -> None:
    """Whether it is done before the error, not at all, or after the driver has moved on; then it is refused."""
    for batch in before:
        committed(target, batch)
    batch, after = (SECOND, THIRD) if before else (FIRST, SECOND)
    server.faults = [Fault("commit", answer, done)]
    assert committed(target, batch) == Outcome(again=done == "before", tries=2)
    assert not server.faults and server.is_read_between_commits()
    assert kind.places() == expected(*before, batch)
    assert server.catch_up() == ([409] if done == "late" else [])
    assert committed(target, after) == Outcome(again=False, tries=1)
    assert kind.places() == expected(*before, batch, after)


@pytest.mark.parametrize("before", [(), (FIRST,)], ids=["new table", "table with rows"])
def test_a_request_that_is_done_between_the_look_and_the_next_one_is_not_done_twice(
    kind, server, target, meanwhile, before
) -> None:
    """The driver has just seen that the table does not have the micro-batch: its second request is refused."""
    for batch in before:
        committed(target, batch)
    batch, caught_up = SECOND if before else FIRST, list[int]()
    meanwhile("table.asked", lambda: caught_up.extend(server.catch_up()), nth=2)
    server.faults = [Fault("commit", 504, "late")]
    assert committed(target, batch) == Outcome(again=True, tries=3)
    assert caught_up == [200]
    assert server.is_read_between_commits()
    assert kind.places() == expected(*before, batch)


@pytest.mark.parametrize("done", ["before", "never", "late"])
@pytest.mark.parametrize("other", ["driver", "writer"])
def test_a_catalog_that_ignores_requirements_takes_no_micro_batch_twice(
    kind, server, target, meanwhile, other, done
) -> None:
    """Nor does it lose one: a snapshot is numbered after the last one that its writer has read, and refused where there
    is another one with its number."""
    committed(target, FIRST)
    server.conditions, foreign = False, {"topic": "foreign", "partition": 9, "offset": 0}
    meanwhile("table.asked", lambda: committed(target, SECOND) if other == "driver" else kind.append(foreign))
    server.faults = [Fault("commit", 504, done)]
    committed(target, SECOND)
    assert not server.faults and set(server.catch_up()) <= {409}
    committed(target, THIRD)
    assert kind.places() == expected(FIRST, SECOND, THIRD) + Counter({(9, 0): 1} if other == "writer" else {})


@pytest.mark.parametrize(("before", "others"), [((), 0), ((), 1), ((FIRST,), 0), ((FIRST,), 1), ((FIRST,), 2)])
def test_a_driver_that_wakes_up_in_front_of_another_table_is_stopped(
    kind, server, target, meanwhile, before, others
) -> None:
    """By the commit itself, where a catalog does not check which table it is for; the next start is refused, too."""
    for batch in before:
        committed(target, batch)
    batch, server.conditions = SECOND if before else FIRST, False

    def recreated() -> None:
        kind.drop()
        other = kind.target()
        for number in range(others):
            committed(other, micro_batch(number, (9, number, number + 1), query="another"))

    meanwhile("table.asked", recreated)
    with pytest.raises(TableError) as error:
        committed(target, batch)
    if others > len(before) > 0:  # a snapshot's number is not taken twice
        assert error.value.entry == "EOS_OTHER_TABLE.recreated"
        assert kind.places() == Counter({(9, number): 1 for number in range(others)})
        return
    assert error.value.entry == "EOS_OTHER_TABLE.landed"
    with raises("EOS_OTHER_TABLE.landed"):
        kind.place().remembered(QUERY)


@pytest.mark.parametrize("status", [401, 419])
@pytest.mark.parametrize("done", ["before", "never"])
def test_what_pyiceberg_sends_again_for_a_new_token_is_refused_where_it_was_done(
    kind, server, target, status, done
) -> None:
    """It is the same request, with the same requirements."""
    committed(target, FIRST)
    server.faults = [Fault("commit", status, done)]
    outcome = Outcome(again=True, tries=2) if done == "before" else Outcome(again=False, tries=1)
    assert committed(target, SECOND) == outcome
    assert kind.places() == expected(FIRST, SECOND)


@pytest.mark.parametrize("answer", ["lost", 503, "garbled", *SILENT])
def test_a_table_that_cannot_be_read_is_read_again(kind, server, target, short, answer) -> None:
    """Nothing is committed without it."""
    committed(target, FIRST)
    server.faults, server.kinds = [Fault("load", answer)], []
    assert committed(target, SECOND) == Outcome(again=False, tries=2)
    assert [kind for kind in server.kinds if kind in ("load", "commit")] == ["load", "load", "commit"]
    assert kind.places() == expected(FIRST, SECOND)


def test_drivers_at_once_commit_each_micro_batch_once_by_a_faulty_catalog(kind, server, target) -> None:
    """Requests are lost, done late and refused at random, while others append and expire snapshots."""
    chance, drivers, batches = random.Random(5), 3, [micro_batch(n, (0, 2 * n, 2 * n + 2)) for n in range(6)]
    together, outcomes = threading.Barrier(drivers), list[bool]()

    def drive() -> None:
        for batch in batches:
            files = files_of(target, batch)
            if together.wait() == 0:
                ways = [(answer, done) for answer in ("lost", 503, 409) for done in ("before", "never", "late")]
                server.faults += [Fault("commit", *way) for way in chance.sample(ways, 3)]
                server.catch_up()
            outcomes.append(target.commit(batch, files, 2, is_there=False).again)

    beside_others(kind, drive, drivers)
    assert set(server.catch_up()) <= {409}
    assert len(outcomes) == len(batches) * drivers and outcomes.count(False) <= len(batches)
    assert kind.places() == expected(*batches) + FOREIGN
    assert kind.last(QUERY) == 5


@pytest.mark.parametrize(
    ("to", "answer"),
    [(to, "lost") for to in ("config", "exists", "namespace", "create", "load")]
    + [("config", "dripping"), ("create", "hung"), ("create", 503), ("load", 429), ("exists", 500)],
)
def test_a_query_starts_in_time_or_not_at_all(kind, server, short, to, answer) -> None:
    """And starts again once the catalog answers, whatever was created of the table."""
    server.faults = [Fault(to, answer, "never" if to in ("config", "exists", "load") else "before")]
    with pytest.raises(TableError) as error:
        kind.target()
    assert error.value.condition == "EOS_ICEBERG_UNREACHABLE" and error.value.restart_helps
    assert (f"no answer within {SHORT_S} s" in error.value.message) == (answer in SILENT)
    target = kind.target()
    committed(target, FIRST)
    assert kind.places() == expected(FIRST)


def test_a_request_that_took_too_long_leaves_no_thread_and_no_catalog(kind, server, target, monkeypatch) -> None:
    """What it has locked is not waited for: the next request is sent by another catalog; none for the message."""
    before = catalog.opened(target.table.name)
    monkeypatch.setattr(rest, "REQUEST_S", 1.5)
    server.faults = [Fault("load", "hung")]
    with pytest.raises(deadline.Overdue) as error:
        target.table.name.load()
    asked = list(server.kinds)
    assert target.table.name.cause(error.value) == "Overdue: no answer within 1.5 s" and server.kinds == asked
    assert catalog.opened(target.table.name) is not before

    def is_over() -> bool:
        return "spark-eos-iceberg" not in {thread.name for thread in threading.enumerate()}

    wait_for(is_over, "the thread is still there")


def test_every_request_that_pyiceberg_sends_is_limited(kind, server, short) -> None:
    """By its session, which is private: this fails where a new version sends requests in another way."""
    server.token = "rosebud"
    target = RestWith(kind, credential="user:swordfish").target()
    assert isinstance(catalog.opened(target.table.name), RestCatalog)
    opening = server.kinds.index("exists")
    assert set(server.kinds[:opening]) == {"token", "config"} and short[0] == rest.REQUEST_S == 30
    committed(target, FIRST)
    server.token = "another"  # as when it has expired: pyiceberg asks for a new one
    committed(target, SECOND)
    assert len(short) - 1 == len(server.kinds) - opening
    assert server.kinds.count("token") == 3
    assert kind.places() == expected(FIRST, SECOND)


def test_an_answer_may_be_packed(server, target) -> None:
    """As large catalogs do it."""
    server.packed = ("gzip", gzip.compress)
    assert committed(target, FIRST) == Outcome(again=False, tries=1)


@pytest.mark.parametrize(
    ("encoding", "pack", "said"),
    [
        ("gzip", lambda _: gzip.compress(LARGE), "more than 1 MiB"),
        ("identity", lambda _: LARGE, "more than 1 MiB"),
        ("gzip, gzip", lambda body: gzip.compress(gzip.compress(body)), "packed as 'gzip, gzip'"),
        ("deflate", zlib.compress, "packed as 'deflate'"),
    ],
    ids=["packed", "plain", "packed twice", "deflate"],
)
def test_an_answer_that_would_fill_the_memory_is_not_read(
    kind, server, target, monkeypatch, encoding, pack, said
) -> None:
    """Two megabytes of gzip can be two gigabytes."""
    monkeypatch.setattr(rest, "MOST_BYTES", 1 << 20)
    server.packed = (encoding, pack)
    with pytest.raises(TableError, match=said) as error:
        kind.place().remembered(QUERY)
    assert error.value.condition == "EOS_ICEBERG_FAILED" and not error.value.restart_helps


@pytest.mark.parametrize(
    ("answer", "done"),
    [*((504, done) for done in ("before", "never", "late")), ("hung", "before"), ("lost", "late"), (409, "never")],
)
def test_columns_are_added_once_whatever_becomes_of_the_request(kind, server, target, short, done, answer) -> None:
    """Whether it is done before the error, not at all, or after the driver has moved on; then it is refused."""
    server.faults = [Fault("commit", answer, done)]
    assert target.evolved(WIDE).layout.schema.equals(WIDE)
    assert not server.faults and server.is_read_between_commits()
    assert server.catch_up() == ([409] if done == "late" else [])
    assert kind.load().schema().column_names == WIDE.names and len(kind.load().metadata.schemas) == 2


def test_a_late_request_gives_no_id_that_another_column_had(kind, server, target) -> None:
    """The columns are by then those that it was made for, and another one has come and gone: it would have had the id
    that the request gives, and its values would come back under the new name."""
    server.faults = [Fault("commit", 504, "late")]
    with pytest.raises(TableError):
        target.evolved(WIDE, patience_s=0.001)
    with kind.load().update_schema() as update:
        update.add_column("gone", IntegerType())
    with kind.load().update_schema() as update:
        update.delete_column("gone")
    assert kind.load().metadata.current_schema_id == 0
    assert server.catch_up() == [409]
    assert kind.load().schema().column_names == SCHEMA.names


class RestWith(RestIceberg):
    """The table of another kind, by its server, with further properties of the catalog."""

    def __init__(self, kind: RestIceberg, **properties: str) -> None:
        super().__init__(kind.folder, properties)
        self.server = kind.server


def test_credentials_that_the_catalog_hands_out_open_the_store(tmp_path, caplog) -> None:
    """For the catalog, and those of the table for tasks. None of them is in a plan's text, the log or an error."""
    caplog.set_level(logging.DEBUG, "spark-eos")
    with object_store(tmp_path) as store:
        kind = RestIceberg(tmp_path)
        kind.more = store.catalog
        place = {"s3.endpoint": store.catalog["s3.endpoint"]}
        properties = {name: store.catalog[name] for name in ("s3.access-key-id", "s3.secret-access-key", "s3.region")}
        with serving(kind.server) as server:
            server.config = {"token": "rosebud"}
            server.token = "rosebud"
            server.of_table = place | {"s3.access-key-id": "of nobody", "s3.secret-access-key": "swordfish"}
            server.storage_credentials = [{"prefix": f"s3://{store.bucket}", "config": properties}]
            with pytest.raises(TableError):
                kind.target()
            target = pickle.loads(pickle.dumps(RestWith(kind, token="rosebud").target()))
            assert dict(target.properties) == properties | place
            server.faults = [Fault("commit", "garbled", "before")]
            assert committed(target, FIRST).again
            server.faults = [Fault("load", "garbled") for _ in range(100)]
            with pytest.raises(TableError) as error:
                target.commit(SECOND, (), 0, is_there=False, patience_s=0.1)
        read = kind.load().scan().to_arrow().select(["partition", "offset"]).to_pylist()
    assert Counter((row["partition"], row["offset"]) for row in read) == expected(FIRST)
    for text in (repr(target), caplog.text, str(error.value)):
        assert not {secret for secret in ("rosebud", "swordfish", SECRET_KEY) if secret in text}


def source_of(target: IcebergTarget) -> RangeDataSource:
    """The data source of a query to the table, as Spark makes one for each micro-batch."""
    source = stream_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})
    query = RangeQuery(TablePlan(source, "c", target), RangeStreamReader, to_table)
    return data_source_of(query, "of-the-test", NOWHERE)({})


def for_tasks(source: RangeDataSource) -> IcebergTarget:
    """The table as the tasks of the next micro-batch get it."""
    writer = pickle.loads(pickle.dumps(source.streamWriter(None, False)))
    return writer._plan.table


def test_only_for_tasks_is_a_catalog_asked_for_credentials_and_asked_again(kind, server) -> None:
    """Not for a commit, to which the data source is sent; and as long as for a commit."""
    server.of_table = {"s3.session-token": "of yesterday"}
    source = source_of(kind.target())
    server.kinds.clear()
    cloudpickle.loads(cloudpickle.dumps(source)).streamWriter(None, False)
    assert not server.kinds
    server.of_table = {"s3.session-token": "of today"}
    server.faults = [Fault("load", "lost"), Fault("load", 503)]
    fresh = for_tasks(source)
    assert fresh.properties["s3.session-token"] == "of today" and not server.faults
    assert "of today" not in repr(fresh) + fresh.cause(OSError("of today has expired"))


def test_a_catalog_that_hands_out_nothing_with_a_table_is_not_asked_for_each_micro_batch(kind, server, target) -> None:
    """Tasks have the properties of the query."""
    server.kinds.clear()
    assert for_tasks(source_of(target)) == target and not server.kinds


def test_an_answer_that_is_not_as_it_has_to_be_is_named_without_what_it_has(kind, server, target) -> None:
    """It may have credentials."""
    server.of_table = {"s3.secret-access-key": "swordfish"}
    server.storage_credentials = [{"config": {"s3.session-token": "swordfish"}}]
    with pytest.raises(TableError) as error:
        target.commit(FIRST, (), 0, is_there=False, patience_s=0.1)
    assert "ValidationError: storage-credentials.0.prefix: Field required" in error.value.message
    assert "swordfish" not in str(error.value)
