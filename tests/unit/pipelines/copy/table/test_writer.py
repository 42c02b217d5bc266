"""Tasks and commits of a query to a table, without Spark and Kafka: what travels between them, and what is written."""

from __future__ import annotations

import json
import pickle
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry

from spark_eos.base.metrics_events import Events
from spark_eos.base.topic_partition import OffsetRange
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.checkpoint.stores import open_store
from spark_eos.errors import EosError, OptionError, RowError
from spark_eos.ops.metrics.exporter import Exporter
from spark_eos.options.parse import stream_options
from spark_eos.pipelines.copy.sql import SqlTransform
from spark_eos.pipelines.copy.table import task
from spark_eos.pipelines.copy.table.options import table_options
from spark_eos.pipelines.copy.table.plan import TablePlan
from spark_eos.pipelines.copy.table.rows import TableTransform
from spark_eos.pipelines.copy.table.writer import TableStreamWriter
from spark_eos.pipelines.copy.written import LastWritten
from spark_eos.pipelines.tables.delta.table import location_of
from spark_eos.pipelines.tables.delta.target import DeltaReference
from spark_eos.pipelines.tables.files import FileLayout
from spark_eos.pipelines.tables.iceberg.catalog import Properties, TableName
from spark_eos.pipelines.tables.iceberg.target import IcebergReference
from spark_eos.pipelines.tables.keys import Key
from spark_eos.pipelines.tables.partitions import NULL
from spark_eos.sink.job import Identity
from spark_eos.source import readable
from spark_eos.source.range_reader import RangesOfTask, TaskRangeReader
from spark_eos.source.schema import arrow_schema
from tests.support.judges.conditions import raises
from tests.support.tables.table_kinds import KINDS, TableKind

SOURCE = stream_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})
COLUMNS = arrow_schema(include_headers=False)


class Broker:
    """Has each record of every range that is asked for: those ``without_values``, or what stands in their place."""

    def __init__(self) -> None:
        self.records: Callable[[OffsetRange], pa.RecordBatch] = without_values

    def read(self, _: object, range_: OffsetRange) -> Iterator[pa.RecordBatch]:
        yield self.records(range_)


@pytest.fixture(autouse=True)
def broker(monkeypatch) -> Broker:
    """What tasks read from."""
    broker = Broker()
    monkeypatch.setattr(readable.ReadableRanges, "parts", lambda self, ranges: iter(ranges))
    monkeypatch.setattr(readable, "read_range", broker.read)
    return broker


def without_values(range_: OffsetRange) -> pa.RecordBatch:
    one = {"key": b"k", "value": None, "topic": range_.topic, "partition": range_.partition, "timestamp": 0}
    rows = [one | {"offset": offset, "timestampType": 0} for offset in range(range_.start, range_.end)]
    return pa.RecordBatch.from_pylist(rows, COLUMNS)


@pytest.fixture(params=KINDS)
def table(request, tmp_path) -> TableKind:
    return KINDS[request.param](tmp_path / "of_this_kind")


@pytest.fixture
def plan(table, tmp_path) -> TablePlan:
    return planned(table, tmp_path)


def planned(table: TableKind, folder: Path, last: int | None = None, columns: pa.Schema = COLUMNS) -> TablePlan:
    target = table.place().target(columns, create=True)
    return TablePlan(SOURCE, "c", target, last, written=LastWritten(str(folder)))


def run(plan: TablePlan, batch: int, *tasks: list[OffsetRange]) -> list[task.TableMessage]:
    """The messages of the tasks, as they come to the driver."""
    found = []
    for number, ranges in enumerate(tasks):
        batches = TaskRangeReader().read(RangesOfTask(tuple(ranges), len(tasks)))
        message = task.write_files(pickle.loads(pickle.dumps(plan)), Identity("q", "r", batch, number, 0), batches)
        found.append(pickle.loads(pickle.dumps(message)))
    return found


def written_by(table: TableKind) -> list[Path]:
    """The files of tasks."""
    return list(table.folder.rglob("eos-q-*.parquet"))


FIRST = [[OffsetRange("t", 0, 0, 3, "id")], [OffsetRange("t", 1, 0, 2, "id"), OffsetRange("t", 2, 5, 6, "id")]]


def test_a_store_that_a_task_cannot_write_to_is_named(plan, table) -> None:
    """With the table; a restart helps, as it may answer then. Here, a file is where its folder should be."""
    folder = Path(plan.table.store().root)
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.exists():
        shutil.rmtree(folder)
    folder.write_text("no folder")
    with raises("EOS_TABLE_STORE") as error:
        run(plan, 0, *FIRST)
    assert error.value.restart_helps
    assert plan.table.name in error.value.message and "FileExistsError" in error.value.message


def test_files_of_all_tasks_are_committed_together(plan, table) -> None:
    """Micro-batch 0 reads nothing, and is committed, too."""
    writer = TableStreamWriter(plan)
    writer.commit(run(plan, 0, []), 0)
    writer.commit(run(plan, 1, *FIRST), 1)
    assert table.places() == Counter({(0, 0): 1, (0, 1): 1, (0, 2): 1, (1, 0): 1, (1, 1): 1, (2, 5): 1})
    assert table.last("q") == 1
    assert plan.written.last()["rows"] == 6
    assert len(written_by(table)) == 2


def test_columns_of_a_table_may_be_in_any_order(table, tmp_path) -> None:
    """Records as they are have the source's."""
    table.place().target(pa.schema(list(COLUMNS)[::-1]), create=True)
    plan = planned(table, tmp_path)
    writer = TableStreamWriter(plan)
    writer.commit(run(plan, 0, []), 0)
    writer.commit(run(plan, 1, *FIRST), 1)
    assert len(table.places()) == 6


def test_attempts_that_are_not_committed_are_seen_by_nobody(plan, table) -> None:
    """A second attempt writes files of its own; an abort leaves both."""
    writer = TableStreamWriter(plan)
    writer.commit(run(plan, 0, []), 0)
    lost, done = run(plan, 1, *FIRST), run(plan, 1, *FIRST)
    writer.abort([*lost, None], 1)
    writer.commit(done, 1)
    assert set(table.places().values()) == {1}
    assert len(written_by(table)) == 4


def test_a_micro_batch_that_the_table_had_at_the_start_is_not_read(plan, table, tmp_path, broker) -> None:
    """Its tasks write nothing; the commit compares its offsets."""
    writer = TableStreamWriter(plan)
    writer.commit(run(plan, 0, []), 0)
    writer.commit(run(plan, 1, *FIRST), 1)
    again = planned(table, tmp_path, last=1)
    broker.records = lambda range_: pytest.fail("it was read")
    messages = run(again, 1, FIRST[0] + FIRST[1])
    assert [(message.files, message.skipped) for message in messages] == [((), True)]
    TableStreamWriter(again).commit(messages, 1)
    with raises("EOS_TABLE_TWO_QUERIES"):
        TableStreamWriter(again).commit(run(again, 1, FIRST[0]), 1)


def test_nothing_is_committed_for_a_micro_batch_that_was_not_read_and_is_gone(plan) -> None:
    """The table was put back after the query had started."""
    TableStreamWriter(plan).commit(run(plan, 0, []), 0)
    again = replace(plan, last=1)
    with raises("EOS_OTHER_TABLE.behind"):
        TableStreamWriter(again).commit(run(again, 1, *FIRST), 1)


def test_records_that_a_transform_rejects_are_counted(table, tmp_path) -> None:
    """In the message, the query's progress, the log and the metrics; by default the first one stops the task."""
    columns = pa.schema({"partition": pa.int32(), "offset": pa.int64()})
    sql = """SELECT "partition", "offset", CASE WHEN "offset" = 1 THEN 'one' END AS error FROM input"""
    names = frozenset([*columns.names, "error"])
    transform = TableTransform(SqlTransform(sql), "f", names, columns, on_malformed="drop")
    plan = replace(planned(table, tmp_path, columns=columns), transform=transform)
    told = Told()
    writer = TableStreamWriter(plan, told)
    writer.commit(run(plan, 0, []), 0)
    writer.commit(run(plan, 1, *FIRST), 1)
    assert table.places() == Counter({(0, 0): 1, (0, 2): 1, (1, 0): 1, (2, 5): 1})
    assert plan.written.last() == {**plan.written.last(), "rows": 4, "dropped": 2}
    registry = CollectorRegistry()
    exporter = Exporter(registry)
    for event in told.events:
        exporter.take(event)
    labels = {"query": "q", "sink": ""}
    counted = {
        name: registry.get_sample_value(f"spark_eos_{name}_total", labels) for name in ("rows", "dropped_records")
    }
    assert counted == {"rows": 4.0, "dropped_records": 2.0}
    with pytest.raises(RowError, match="offset 1 of t-0: one"):
        run(replace(plan, transform=replace(transform, on_malformed="fail")), 2, *FIRST)


class Told(Events):
    """Events that nobody sends."""

    def __init__(self) -> None:
        super().__init__("nowhere")
        object.__setattr__(self, "events", [])

    def tell(self, event: str, **values: object) -> None:
        self.events.append(json.loads(json.dumps({"event": event, "at": 1.0, **values})))


def test_a_commit_without_every_tasks_message_is_refused(plan) -> None:
    """Its rows would be missing."""
    with raises("EOS_TASK_SILENT"):
        TableStreamWriter(plan).commit([None, *run(plan, 0, [])], 0)


def test_options_of_a_table() -> None:
    """In any case; settings of file systems are the query's before the session's."""
    given = {"format": "delta", "PATH": "s3a://b/t", "partitionby": "topic, partition", "afterRestore": "7"}
    storage = {"fs.s3a.access.key": "own", "delta.appendOnly": "true"}
    found = table_options(given | storage, {"fs.s3a.access.key": "session's"})
    assert found.storage == HadoopSettings({"fs.s3a.access.key": "own"}) and not found.evolves
    location = location_of("s3a://b/t", found.storage)
    assert found.reference(found.storage) == DeltaReference(
        location, ("topic", "partition"), {"delta.appendOnly": "true"}, 7
    )
    assert found.mark == {"format": "delta", "path": "s3a://b/t"}


def test_options_of_an_iceberg_table() -> None:
    """Properties of the catalog, some of which are secrets, are in no text of the options."""
    given = {"format": "ICEBERG", "TABLE": "a.b", "catalog": "lake", "partitionby": "topic, day(timestamp)"}
    found = table_options(given | {"catalog.token": "secret", "afterRollback": "7"}, {})
    assert found.mark == {"format": "iceberg", "table": "a.b", "catalog": "lake"}
    table = TableName("a.b", "lake", Properties({"token": "secret"}))
    assert found.reference(HadoopSettings()) == IcebergReference(table, ("topic", "day(timestamp)"), 7)
    assert "secret" not in repr(found) + repr(found.reference(HadoopSettings()))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "Option 'path' is missing"),
        ({"path": " "}, "Option 'path' is empty"),
        ({"path": "/t", "topic": "t"}, "There is no option 'topic'"),
        ({"path": "/t", "afterRestore": "-1"}, "Option 'afterRestore' is '-1'"),
        ({"format": "iceberg"}, "Option 'table' is missing"),
        ({"format": "iceberg", "table": "nowhere"}, "Option 'table' is nowhere"),
        ({"format": "iceberg", "table": "a.b", "path": "/t"}, "There is no option 'path'"),
    ],
)
def test_other_options_are_refused(given, says) -> None:
    """By name."""
    with pytest.raises(OptionError) as error:
        table_options(given, {})
    assert says in error.value.message


SCHEMA = pa.schema({"p": pa.string(), "v": pa.int64()})


def written_by_one(
    folder: Path,
    broker: Broker,
    ranges: Iterable[OffsetRange],
    layout: FileLayout,
    column: Callable[[OffsetRange, int], object],
) -> task.TableMessage:
    """By a task with these ranges. ``column``: the value of ``p`` of the record at an offset."""

    def records(range_: OffsetRange) -> pa.RecordBatch:
        offsets = list(range(range_.start, range_.end))
        values = pa.array([column(range_, at) for at in offsets], layout.schema.field("p").type)
        places = {"topic": ["t"] * len(offsets), "partition": [range_.partition] * len(offsets), "offset": offsets}
        return pa.RecordBatch.from_pydict({"p": values, "v": offsets, **places})

    broker.records = records
    store = open_store(str(folder), HadoopSettings({}))
    table: Any = SimpleNamespace(store=lambda: store, layout=layout)
    spark = TaskRangeReader().read(RangesOfTask(tuple(ranges), 1))
    return task.write_files(TablePlan(SOURCE, "c", table), Identity("q", "r", 0, 0, 0), spark)


def test_ranges_that_share_a_task_have_as_many_partitions_of_the_table_as_apart(tmp_path, broker):
    """How many share one depends on the cores. One range may not have more."""
    layout = FileLayout(SCHEMA, ("p",), most_partitions=3)

    def each(range_: OffsetRange, at: int) -> str:
        return f"{range_.partition}-{at}"

    shared = written_by_one(tmp_path, broker, [OffsetRange("t", p, 0, 3) for p in range(4)], layout, each)
    assert (shared.rows, len(shared.files)) == (12, 12)
    with pytest.raises(EosError, match="more than 3 partitions"):
        written_by_one(tmp_path, broker, [OffsetRange("t", 0, 0, 4)], layout, each)


TIMES = pa.schema({"p": pa.timestamp("us", "UTC"), "v": pa.int64()})
NUMBERS = pa.schema({"p": pa.int32(), "v": pa.int64()})


@pytest.mark.parametrize(
    ("layout", "worst", "says"),
    [
        (FileLayout(TIMES), 253_402_300_800_000_000, "year is not between"),
        (FileLayout(NUMBERS, keys=(Key("p_trunc", "p", "truncate[10]"),)), -(1 << 31), "rounded down"),
        (FileLayout(SCHEMA, ("p",)), NULL, "take it for null"),
    ],
)
def test_a_record_that_cannot_be_in_a_table_or_a_partition_is_named(tmp_path, broker, layout, worst, says):
    """By its offset, also where records are written as they are."""
    good = "a" if layout.schema is SCHEMA else 5
    with pytest.raises(EosError, match=r"offset 7 of t-3: the table cannot hold its row: column p: ") as error:
        ranges = [OffsetRange("t", 3, 0, 20)]
        written_by_one(tmp_path, broker, ranges, layout, lambda _, at: worst if at in (7, 11) else good)
    assert error.value.condition == "EOS_RECORD_REJECTED" and says in error.value.message
    assert not list(tmp_path.rglob("*.parquet"))
