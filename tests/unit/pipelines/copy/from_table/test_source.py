"""What Spark calls to plan a query from a table, over real tables and without Kafka; its options; and random histories
of a table's changes, against those that delta-rs reads, in each key's order, whatever is cut and run again."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_eos.errors import EosError, OptionError
from spark_eos.pipelines.copy.from_table import task
from spark_eos.pipelines.copy.from_table.plan import TableFile
from spark_eos.pipelines.copy.from_table.source import FileStreamReader
from spark_eos.pipelines.copy.from_table.start import check, source_table_options
from tests.support.judges.conditions import raises
from tests.support.models.table_query import SINK, Query, Row, plan_of
from tests.support.servers.s3_stand_in import s3_stand_in
from tests.support.tables.change_feed import RECORDED, Change, ChangedTable, by_library, check_order, state_after


def append(path: Path, *values: str) -> None:
    write_deltalake(str(path), pa.table({"value": list(values)}), mode="append")


def check_new(source: dict[str, str]) -> None:
    """As a job does before Spark starts, of a new query."""
    check(source, {**SINK, "checkpointLocation": f"{source['path']} checkpoint"}, {})


def keyed(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column("key", batch["value"]).select(["key", "value"])


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "table"


def test_the_table_is_read_and_then_what_comes(path) -> None:
    """With restarts, each of which runs the last micro-batch again, and OPTIMIZE between them: the first one, too, for
    which Spark asks for the initial offset anew, is the same."""
    for n in range(5):
        append(path, f"a{n}")
    query = Query(path, files=2)
    query.run(query.start(), 1)
    for value in "bc":
        append(path, value)
        DeltaTable(str(path)).optimize.compact()
        query.run(query.start())
    query.start()
    assert query.values() == [*(f"a{n}" for n in range(5)), "b", "c"]


def test_a_query_begins_at_a_version(path) -> None:
    """With what that appended; one that is not there is refused."""
    for n in range(4):
        append(path, str(n))
    query = Query(path, starting_version=2)
    query.run(query.start())
    assert query.values() == ["2", "3"]
    later = Query(path, starting_version=4)
    with raises("EOS_DELTA_NO_TABLE.version"):
        later.run(later.start())


#: What a table needs of readers and writers where that is named: nothing.
PLAIN = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": []}


def test_a_query_does_not_begin_where_the_table_could_not_be_read(path) -> None:
    """Not even if it can be now: here, it had a feature then that nobody knows."""
    append(path, "1")
    add = {"path": "a.parquet", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
    unknown = PLAIN | {"writerFeatures": ["unheardOf"]}
    for version, action in enumerate(({"protocol": unknown}, {"add": add}, {"protocol": PLAIN}), 1):
        (path / "_delta_log" / f"{version:020d}.json").write_text(json.dumps(action))
    reader = Query(path, starting_version=2).start()
    options = {"format": "delta", "path": str(path), "startingVersion": "2"}
    for begin in (reader.latestOffset, lambda: check_new(options)):
        with raises("EOS_DELTA_TABLE_SETTINGS.reading"):
            begin()


@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize("starting_version", [None, 1, 2])
def test_a_column_that_comes_before_the_first_micro_batch_stops_the_query(path, changes, starting_version) -> None:
    """Its values would be left out. The next start knows it."""
    rows = pa.table({"key": ["k"], "value": ["1"]})
    write_deltalake(str(path), rows, configuration=RECORDED)
    query = Query(path, changes=changes, starting_version=starting_version)
    reader = query.start()
    wider = rows.append_column("timestamp", pa.array([0], pa.timestamp("us", "UTC")))
    write_deltalake(str(path), wider, mode="append", schema_mode="merge")
    write_deltalake(str(path), wider, mode="append")
    with pytest.raises(EosError, match=r"version [12] of") as error:
        query.run(reader)
    assert error.value.entry == "EOS_DELTA_SCHEMA_CHANGED"
    query.run(query.start())
    assert len(query.values()) == 3 - (starting_version or 0)


def test_a_run_of_what_is_available_ends(path) -> None:
    """New versions wait for the next one."""
    append(path, "1")
    query = Query(path, files=1)
    reader = query.start()
    reader.prepareForTriggerAvailableNow()
    append(path, "2")
    query.run(reader)
    assert query.values() == ["1"]
    query.run(query.start())
    assert query.values() == ["1", "2"]


def test_a_table_on_s3_is_read_as_one_on_a_disk() -> None:
    """By the session's settings of the store."""
    with s3_stand_in() as store:
        place = store.location("t")
        options = dict(place.options)
        for n in range(3):
            write_deltalake(place.uri, pa.table({"value": [str(n)]}), mode="append", storage_options=options)
        query = Query(place.path, files=2, storage=place.settings)
        query.run(query.start())
        DeltaTable(place.uri, storage_options=options).optimize.compact()
        write_deltalake(place.uri, pa.table({"value": ["3"]}), mode="append", storage_options=options)
        query.run(query.start())
        assert query.values() == ["0", "1", "2", "3"]
        another = Query(place.path, starting_version=2, storage=place.settings).start()
        del store.objects["t/_delta_log/00000000000000000003.json"]
        end = another.latestOffset()  # of what comes before
        assert end["version"] == 3
        with raises("EOS_DELTA_DATA_LOSS"):
            another.latestOffset(end)


def test_a_table_without_rows_is_waited_for(path) -> None:
    """Where the query begins is fixed all the same."""
    DeltaTable.create(str(path), pa.schema({"value": pa.string()}))
    query = Query(path)
    query.run(query.start())
    assert len(query.logged) == 1 and query.values() == []
    append(path, "1")
    query.run(query.start())
    assert query.values() == ["1"]


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
    query = Query(path)
    reader = query.start()
    query.run(reader)
    path.rename(tmp_path / "old")
    append(path, "1")
    append(path, "2")
    with raises("EOS_OTHER_TABLE"):
        query.run(reader)
    with raises("EOS_OTHER_TABLE"):
        query.start()


def test_a_file_of_a_repair_that_is_not_in_the_log_is_data_loss(path) -> None:
    """Whatever Spark gave to the task."""
    append(path, "0")
    plan = plan_of(path)
    gone = TableFile(0, False, 5, "a.parquet", 1, "[]", "insert").range(plan.table)
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
    query = Query(path, changes=began)
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


def test_changes_are_read_where_they_are_recorded(path) -> None:
    """By the options, before anything is read."""
    append(path, "0")
    options = {"format": "delta", "path": str(path), "readChangeFeed": "true"}
    with raises("EOS_DELTA_TABLE_SETTINGS.change_feed"):
        check_new(options)
    DeltaTable(str(path)).alter.set_table_properties(RECORDED)
    check_new(options)


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


# Random histories of changes


def _columns(batch: Any) -> Any:
    return batch.select(["key", "value"])


def _change(row: Row) -> Change:
    return row["_commit_version"], row["_change_type"], row["key"], row["value"]


@pytest.mark.parametrize("seed", range(8))
def test_changes_are_those_that_another_reader_finds(tmp_path, seed) -> None:
    """Each once, by whole versions, and the same ones in each replay, though the query is started again and again."""
    table = ChangedTable(tmp_path / "table", seed, ["p"] if seed % 2 else [])
    chance = table.chance
    table.change(chance.randint(0, 6))
    at_first = table.version
    begins = None if chance.random() < 0.5 else chance.randint(0, at_first)
    query, snapshot = Query(table.path, _columns, changes=True, starting_version=begins), dict(table.state)

    def run(files: int, size: int, batches: int) -> None:
        query.options |= {"files": files, "size": size}
        query.run(query.start(), batches)

    run(chance.randint(1, 4), 1 << 30, 1)
    for _ in range(4):
        table.change(chance.randint(0, 4))
        run(chance.randint(1, 12), chance.choice([1, 4000, 1 << 30]), chance.randint(0, 2))
    run(100, 1 << 30, 100)
    expected = (
        by_library(table.path, begins if begins is not None else at_first + 1)
        if (begins is not None or table.version > at_first)
        else Counter()
    )
    if begins is None:
        expected += Counter((at_first, "insert", key, value) for key, value in snapshot.items())
    changes = list(map(_change, query.rows()))
    assert Counter(changes) == expected, seed
    check_order(changes)
    for tasks in query.tasks:  # else the order of the tasks above would be one that nobody promises
        assert len(tasks) <= 1 or len({_change(row)[:2] for rows in tasks for row in rows}) == 1
    if begins in (None, 0):
        assert state_after(changes) == table.state, seed
