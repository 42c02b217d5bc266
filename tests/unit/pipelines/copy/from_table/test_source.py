"""What Spark calls to plan a query from a table, over real tables and without Kafka; and its options."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_eos.checkpoint.stores import open_store
from spark_eos.errors import EosError, OptionError
from spark_eos.pipelines.copy.from_table import task
from spark_eos.pipelines.copy.from_table.plan import FromTablePlan
from spark_eos.pipelines.copy.from_table.source import FileStreamReader
from spark_eos.pipelines.copy.from_table.start import (
    SourceTableOptions,
    check,
    planned,
    source_table_options,
)
from spark_eos.pipelines.tables.reading import FileReader
from spark_eos.source.range_reader import RangesOfTask
from tests.support.judges.conditions import raises
from tests.support.servers.s3_stand_in import s3_stand_in

RECORDED = {"delta.enableChangeDataFeed": "true"}
SINK = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}


def append(path: Path, *values: str) -> None:
    write_deltalake(str(path), pa.table({"value": list(values)}), mode="append")


def plan_of(
    path: Path | str, transform: Any = None, sink: dict[str, str] | None = None, **options: Any
) -> FromTablePlan:
    given = SourceTableOptions(str(path), **options)
    folder = path.parent if isinstance(path, Path) else "/nowhere"
    writes = {**SINK, **(sink or {}), "checkpointLocation": f"{folder}/checkpoint"}
    return planned(given, writes, {}, transform, None if transform is None else "a name", 3)


def check_new(source: dict[str, str]) -> None:
    """As a job does before Spark starts, of a new query."""
    check(source, {**SINK, "checkpointLocation": f"{source['path']} checkpoint"}, {})


def keyed(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column("key", batch["value"]).select(["key", "value"])


class Queries:
    """A query of Spark's, in little: its offset log, and the values that its micro-batches have read."""

    def __init__(self, path: Path | str, **options: Any) -> None:
        self.path, self.options = path, options
        self.logged: list[str] = []
        self.values: list[list[str]] = []

    def start(self) -> FileStreamReader:
        reader = FileStreamReader(plan_of(self.path, **self.options))
        if self.logged:  # the last micro-batch is run again
            start = json.loads(self.logged[-2]) if len(self.logged) > 1 else reader.initialOffset()
            self.values[-1:] = [self._read(reader, start, json.loads(self.logged[-1]))]
        return reader

    def run(self, reader: FileStreamReader, batches: int = 100) -> None:
        """Until nothing is new, or so many micro-batches are run."""
        for _ in range(batches):
            start = json.loads(self.logged[-1]) if self.logged else reader.initialOffset()
            end = json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))
            if end == start:
                return
            self.logged.append(json.dumps(end))
            self.values.append(self._read(reader, start, end))

    def _read(self, reader: FileStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
        plan = plan_of(self.path, **self.options)
        files = FileReader(open_store(str(self.path), plan.storage), "t", plan.table.schema)
        in_task: FileStreamReader = pickle.loads(pickle.dumps(reader))
        found = []
        for partition in reader.partitions(start, end):
            for file in RangesOfTask.parse(in_task.read(partition)).ranges:
                found += [
                    value
                    for piece in files.pieces(file.path, file.size, file.partition)
                    for value in piece.rows["value"].to_pylist()
                ]
        return found

    def everything(self) -> list[str]:
        return sorted(value for values in self.values for value in values)


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "table"


def test_the_table_is_read_and_then_what_comes(path) -> None:
    """With restarts, each of which runs the last micro-batch again, and OPTIMIZE between them."""
    for n in range(5):
        append(path, f"a{n}")
    queries = Queries(path, files=2)
    queries.run(queries.start(), 1)
    first = queries.values[0]
    append(path, "b")
    queries.run(queries.start())
    assert queries.values[0] == first
    DeltaTable(str(path)).optimize.compact()
    append(path, "c")
    queries.run(queries.start())
    queries.start()
    assert queries.everything() == [*(f"a{n}" for n in range(5)), "b", "c"]


def test_the_first_micro_batch_is_the_same_when_it_is_run_again(path) -> None:
    """Though the table has other files by then: Spark asks for the initial offset anew."""
    append(path, "1")
    queries = Queries(path)
    queries.run(queries.start(), 1)
    append(path, "2")
    DeltaTable(str(path)).optimize.compact()
    queries.start()
    assert queries.values == [["1"]]


def test_a_query_begins_at_a_version(path) -> None:
    """With what that appended; one that is not there is refused."""
    for n in range(4):
        append(path, str(n))
    queries = Queries(path, starting_version=2)
    queries.run(queries.start())
    assert queries.everything() == ["2", "3"]
    later = Queries(path, starting_version=4)
    with raises("EOS_DELTA_NO_TABLE.version"):
        later.run(later.start())


@pytest.mark.parametrize("changes", [False, True])
def test_a_query_does_not_begin_while_columns_were_mapped(path, changes) -> None:
    """Not even if they no longer are: files of then have other names of columns, and would be read as nulls."""
    write_deltalake(str(path), pa.table({"key": ["k"], "value": ["1"]}), configuration=RECORDED)
    first = path / "_delta_log" / f"{0:020d}.json"
    (metadata,) = [line for line in map(json.loads, first.read_text().splitlines()) if "metaData" in line]
    mapped = json.loads(json.dumps(metadata))
    mapped["metaData"]["configuration"]["delta.columnMapping.mode"] = "name"
    schema = json.loads(mapped["metaData"]["schemaString"])
    for number, field in enumerate(schema["fields"], 1):
        names = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
        field["metadata"] = names
    mapped["metaData"]["schemaString"] = json.dumps(schema)
    add = {"path": "a.parquet", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
    protocol = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
    for version, actions in enumerate(([protocol, mapped], [{"add": add}], [metadata]), 1):
        first.with_name(f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    reader = Queries(path, starting_version=2, changes=changes).start()
    options = {"format": "delta", "path": str(path), "startingVersion": "2", "readChangeFeed": str(changes)}
    for begin in (reader.latestOffset, lambda: check_new(options)):
        with raises("EOS_DELTA_TABLE_SETTINGS.reading"):
            begin()


@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize("starting_version", [None, 1, 2])
def test_a_column_that_comes_before_the_first_micro_batch_stops_the_query(path, changes, starting_version) -> None:
    """Its values would be left out. The next start knows it."""
    rows = pa.table({"key": ["k"], "value": ["1"]})
    write_deltalake(str(path), rows, configuration=RECORDED)
    query = Queries(path, changes=changes, starting_version=starting_version)
    reader = query.start()
    wider = rows.append_column("timestamp", pa.array([0], pa.timestamp("us", "UTC")))
    write_deltalake(str(path), wider, mode="append", schema_mode="merge")
    write_deltalake(str(path), wider, mode="append")
    with pytest.raises(EosError, match=r"version [12] of") as error:
        query.run(reader)
    assert error.value.entry == "EOS_DELTA_SCHEMA_CHANGED"
    query.run(query.start())
    assert len(query.everything()) == 3 - (starting_version or 0)


def test_a_run_of_what_is_available_ends(path) -> None:
    """New versions wait for the next one."""
    append(path, "1")
    queries = Queries(path, files=1)
    reader = queries.start()
    reader.prepareForTriggerAvailableNow()
    append(path, "2")
    queries.run(reader)
    assert queries.everything() == ["1"]
    queries.run(queries.start())
    assert queries.everything() == ["1", "2"]


def test_a_table_on_s3_is_read_as_one_on_a_disk() -> None:
    """By the session's settings of the store."""
    with s3_stand_in() as store:
        place = store.location("t")
        options = dict(place.options)
        for n in range(3):
            write_deltalake(place.uri, pa.table({"value": [str(n)]}), mode="append", storage_options=options)
        queries = Queries(place.path, files=2, storage=place.settings)
        queries.run(queries.start())
        DeltaTable(place.uri, storage_options=options).optimize.compact()
        write_deltalake(place.uri, pa.table({"value": ["3"]}), mode="append", storage_options=options)
        queries.run(queries.start())
        assert queries.everything() == ["0", "1", "2", "3"]
        another = Queries(place.path, starting_version=2, storage=place.settings).start()
        del store.objects["t/_delta_log/00000000000000000003.json"]
        end = another.latestOffset()  # of what comes before
        assert end["version"] == 3
        with raises("EOS_DELTA_DATA_LOSS"):
            another.latestOffset(end)


def test_a_table_without_rows_is_waited_for(path) -> None:
    """Where the query begins is fixed all the same."""
    DeltaTable.create(str(path), pa.schema({"value": pa.string()}))
    queries = Queries(path)
    queries.run(queries.start())
    assert len(queries.logged) == 1 and queries.everything() == []
    append(path, "1")
    queries.run(queries.start())
    assert queries.everything() == ["1"]


def test_a_spark_that_names_no_start_gets_the_next_micro_batch(path) -> None:
    """As Spark 4.1 does: it has run the last one before."""
    append(path, "1")
    reader = FileStreamReader(plan_of(path))
    end = reader.latestOffset()
    reader.partitions(reader.initialOffset(), end)
    assert reader.latestOffset() == end
    append(path, "2")
    assert reader.latestOffset() != end


def test_a_recreated_table_is_refused(path, tmp_path) -> None:
    """By a running query, and by the next start."""
    append(path, "1")
    queries = Queries(path)
    reader = queries.start()
    queries.run(reader)
    path.rename(tmp_path / "old")
    append(path, "1")
    append(path, "2")
    with raises("EOS_OTHER_TABLE"):
        queries.run(reader)
    with raises("EOS_OTHER_TABLE"):
        queries.start()


def test_files_of_a_repair_are_found_in_the_log(path) -> None:
    """Whatever Spark gave to the task."""
    for n in range(3):
        append(path, str(n))
    plan = plan_of(path)
    reader = FileStreamReader(plan)
    end = reader.latestOffset()
    append(path, "3")
    later = reader.latestOffset(end)
    given = [
        file
        for start, stop in ((reader.initialOffset(), end), (end, later))
        for partition in reader.partitions(start, stop)
        for file in RangesOfTask.parse(reader.read(partition)).ranges
    ]
    assert [(file.version, file.at_first, file.number) for file in given] == [
        *((2, True, number) for number in range(3)),
        (3, False, 0),
    ]
    found = list(task.files_of([file.range(plan.table) for file in given], plan.table, {}))
    assert [vars(file) for file in found] == [vars(file) for file in given]
    gone = given[-1].range(plan.table).cut(5, 6)
    with raises("EOS_DELTA_DATA_LOSS"):
        list(task.files_of([gone], plan.table, {}))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "[EOS_OPTION_MISSING] Option 'path'"),
        ({"path": "t", "ignoreChanges": "true"}, "[EOS_OPTION_UNKNOWN] There is no option 'ignoreChanges'"),
        ({"path": "t", "startingVersion": "latest"}, "'startingVersion' is latest, which is no version"),
        ({"path": "t", "maxFilesPerTrigger": "0"}, "[EOS_OPTION_INVALID] Option 'maxFilesPerTrigger' is '0'"),
    ],
)
def test_options_that_a_table_does_not_have_are_refused(options, says) -> None:
    """By name."""
    with pytest.raises(OptionError) as error:
        source_table_options({"format": "delta", **options}, {})
    assert says in str(error.value)


def test_options_in_any_spelling_of_capitals() -> None:
    """As Spark takes them, with settings of the store."""
    given = {"format": "delta", "PATH": "t", "maxbytespertrigger": "1m", "fs.s3a.endpoint": "e"}
    found = source_table_options(given, {"fs.s3a.region": "r"})
    assert (found.path, found.size) == ("t", 1 << 20)
    assert dict(found.storage) == {"fs.s3a.endpoint": "e", "fs.s3a.region": "r"}


def test_columns_that_are_none_of_the_sinks_need_a_transform(path) -> None:
    """Which gets the table's columns."""
    write_deltalake(str(path), pa.table({"id": ["1"], "n": [1]}))
    with raises("EOS_SCHEMA_INVALID"):
        plan_of(path)
    plan = plan_of(path, lambda batch: batch.select(["id"]).rename_columns(["value"]))
    assert plan.transform.name == "a name" and not plan.columns.key


def test_a_group_of_consumers_is_refused(path) -> None:
    """A table has no offsets of Kafka's."""
    append(path, "1")
    with raises("EOS_CHECKPOINT_WITHOUT_OFFSETS"):
        plan_of(path, sink={"offsets.group.id": "g"})


def test_a_checkpoint_of_a_query_through_spark_is_refused(path) -> None:
    """Its offsets are Delta's own."""
    append(path, "1")
    log = path.parent / "checkpoint" / "offsets"
    log.mkdir(parents=True)
    theirs = {"sourceVersion": 3, "reservoirId": "x", "reservoirVersion": 4, "index": -1, "isStartingVersion": False}
    (log / "0").write_text(f"v1\n{{}}\n{json.dumps(theirs)}\n")
    sink = {**SINK, "checkpointLocation": str(log.parent)}
    for begin in (lambda: plan_of(path), lambda: check({"format": "delta", "path": str(path)}, sink, {})):
        with raises("EOS_DELTA_OTHER_SOURCE.through_spark"):
            begin()


@pytest.mark.parametrize("began", [False, True])
def test_a_query_reads_what_it_has_read_before(path, began) -> None:
    """Changes or what is appended: a version has other files for the one than for the other."""
    write_deltalake(str(path), pa.table({"key": ["k"], "value": ["1"]}), configuration=RECORDED)
    query = Queries(path, changes=began)
    reader = query.start()
    query.run(reader)
    log = path.parent / "checkpoint" / "offsets"
    log.mkdir(parents=True)
    (log / "0").write_text(f"v1\n{{}}\n{query.logged[-1]}\n")
    plan_of(path, changes=began)
    with raises("EOS_DELTA_OTHER_SOURCE.changes"):
        plan_of(path, changes=not began)
    (log / "0").unlink()
    other = FileStreamReader(plan_of(path, changes=not began))
    with raises("EOS_DELTA_OTHER_SOURCE.changes"):
        other.latestOffset(json.loads(query.logged[-1]))


def test_changes_begin_where_they_are_recorded(path) -> None:
    """Not before, and not in a table that does not record them."""
    append(path, "0")
    options = {"format": "delta", "path": str(path), "readChangeFeed": "true"}
    with raises("EOS_DELTA_TABLE_SETTINGS.change_feed"):
        check_new(options)
    DeltaTable(str(path)).alter.set_table_properties(RECORDED)
    for more in ({}, {"startingVersion": "1"}):
        check_new({**options, **more})
    with raises("EOS_DELTA_TABLE_SETTINGS.changes"):
        check_new({**options, "startingVersion": "0"})
    query = Queries(path, changes=True, starting_version=0, transform=keyed)
    reader = query.start()
    with raises("EOS_DELTA_TABLE_SETTINGS.changes"):
        query.run(reader)


def test_changes_need_a_key(path) -> None:
    """They are in the order of each."""
    append(path, "0")
    DeltaTable(str(path)).alter.set_table_properties(RECORDED)
    with raises("EOS_SCHEMA_INVALID.value") as error:
        plan_of(path, changes=True)
    assert "'key'" in error.value.message
    assert plan_of(path, keyed, changes=True).columns.headers
    with raises("EOS_OPTION_CONFLICT.partitioner") as error:
        plan_of(path, keyed, sink={"kafka.partitioner": "random"}, changes=True)
    assert "readChangeFeed" in error.value.message


def test_a_table_is_looked_at_as_a_new_query_would_begin(path) -> None:
    """With the files that it has then, or with what a version appends."""
    options = {"format": "delta", "path": str(path)}
    with raises("EOS_DELTA_NO_TABLE"):
        check_new(options)
    append(path, "1")
    check_new(options)
    version = path / "_delta_log" / f"{1:020d}.json"
    add = {"path": "/elsewhere.parquet", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
    version.write_text(json.dumps({"add": add}))
    check_new({**options, "startingVersion": "0"})
    for more in ({}, {"startingVersion": "1"}):
        with raises("EOS_DELTA_TABLE_SETTINGS.outside"):
            check_new({**options, **more})
