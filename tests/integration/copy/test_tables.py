"""`spark_eos.copy` to a Delta table: each record once, with all its parts, whoever else writes and however often it
starts."""

from __future__ import annotations

import shutil
import time
import uuid
from collections import Counter

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from deltalake import DeltaTable, write_deltalake

from spark_eos.errors import EosError
from tests.support.session_faults import armed
from tests.support.sink_queries import SECONDS
from tests.support.table_queries import IntoTable, parts, places


@pytest.fixture
def query(spark, view, topic, tmp_path):
    yield IntoTable(spark, view, tmp_path / uuid.uuid4().hex, topic(3))
    for running in spark.streams.active:
        running.stop()


def refused(query: IntoTable, **sink) -> EosError:
    """Why it does not start."""
    with pytest.raises(EosError) as error:
        query.start(**sink)
    return error.value


def test_a_table_has_every_part_of_every_record(query, transactions, write, view) -> None:
    """Whatever is null or empty; not what was aborted. In several micro-batches, and again in a second run."""
    query.reads |= {"maxOffsetsPerTrigger": 400}
    before = int(time.time() * 1000) - 60_000
    for p in range(3):
        write(query.topic, b"plain", None, b"", partition=p, key=b"k%d" % p, timestamp=before + p)
        write(query.topic, b"x", partition=p, key=b"", headers=[("a", b"1"), ("a", None), ("", b"")])
        transactions.commit(query.topic, "committed", partition=p)
        transactions.abort(query.topic, "aborted", partition=p)
        write(query.topic, *(b"%d" % i for i in range(300)), partition=p)
    id_ = query.run()
    write(query.topic, b"more", partition=1)
    assert query.run() == id_
    expected = sorted(map(parts, view.rows(query.topic)), key=lambda row: (row["partition"], row["offset"]))
    found = query.rows()
    assert len(found) == 3 * 305 + 1 and {row["topic"] for row in found} == {query.topic}
    names = set(expected[0]) - {"timestamp"}
    assert [{name: row[name] for name in names} for row in found] == [
        {name: row[name] for name in names} for row in expected
    ]
    assert [round(row["timestamp"].timestamp() * 1000) for row in found] == [row["timestamp"] for row in expected]
    assert DeltaTable(str(query.table)).transaction_version(id_) == max(
        int(file.name) for file in (query.checkpoint / "commits").iterdir() if file.name.isdigit()
    )


def test_a_micro_batch_that_is_in_the_table_is_not_written_again(query, write) -> None:
    """As after a death between the table's commit and Spark's: the replay writes no file, and the next one goes on."""
    write(query.topic, *(b"%d" % i for i in range(10)), partition=0)
    query.run()
    version, files = query.versions(), set(query.table.glob("*.parquet"))
    query.forget(1)
    query.run()
    assert query.versions() == version and set(query.table.glob("*.parquet")) == files
    write(query.topic, b"more", partition=0)
    query.run()
    assert places(query.table) == Counter({(0, offset): 1 for offset in range(11)})


def test_a_replay_needs_no_record_that_the_table_has(query, write, view) -> None:
    """They may be gone from the topic by then."""
    write(query.topic, *(b"%d" % i for i in range(10)), partition=0)
    query.run()
    query.forget(1)
    (deleted,) = view.admin.delete_records([TopicPartition(query.topic, 0, 10)]).values()
    assert deleted.result(30).low_watermark == 10
    write(query.topic, b"more", partition=0)
    query.run()
    assert places(query.table) == Counter({(0, offset): 1 for offset in range(11)})


def test_tasks_and_commits_that_fail_are_repeated_without_a_row_twice(spark, query, write, tmp_path) -> None:
    """A task after it has written its files, and the driver after its commit has landed."""
    write(query.topic, *(b"%d" % i for i in range(30)), partition=0)
    with armed(spark, "table.committed=fail@2", tmp_path / "faults") as fault:
        query.run()
        assert fault.marker.exists()
    assert places(query.table) == Counter({(0, offset): 1 for offset in range(30)})


def test_others_write_to_the_table_and_compact_it_meanwhile(spark, query, write, tmp_path) -> None:
    """Just before the commit of a micro-batch, for which the table was already asked."""
    write(query.topic, *(b"%d" % i for i in range(30)), partition=0)
    query.run()
    write(query.topic, *(b"%d" % i for i in range(30)), partition=1)
    with armed(spark, "table.asked=hold@1", tmp_path / "faults") as fault:
        running = query.start()
        fault.wait()
        table = DeltaTable(str(query.table))
        foreign = pa.Table.from_pylist([{"topic": "foreign", "partition": 9, "offset": 9}])
        write_deltalake(str(query.table), foreign, mode="append", schema_mode="merge")
        table = DeltaTable(str(query.table))
        table.optimize.compact()
        fault.release()
        assert running.awaitTermination(SECONDS)
    assert places(query.table) == Counter({(p, n): 1 for p in (0, 1) for n in range(30)} | {(9, 9): 1})


def test_a_table_and_a_checkpoint_that_do_not_belong_together_are_refused(query, write, tmp_path) -> None:
    """One of them was put back or is gone; a RESTORE is named, and let pass by its version."""
    write(query.topic, b"1", partition=0)
    query.run()
    shutil.copytree(query.checkpoint, tmp_path / "of yesterday")
    write(query.topic, b"2", partition=0)
    query.run()
    today = query.checkpoint
    query.checkpoint = tmp_path / "of yesterday"
    assert refused(query).condition == "EOS_TABLE_CHECKPOINT_BEHIND"
    query.checkpoint = today
    shutil.move(query.table, tmp_path / "the table")
    assert refused(query).condition == "EOS_DELTA_NO_TABLE" and not query.table.exists()
    DeltaTable.create(str(query.table), DeltaTable(str(tmp_path / "the table")).schema())
    assert refused(query).condition == "EOS_OTHER_TABLE"
    shutil.rmtree(query.table)
    shutil.move(tmp_path / "the table", query.table)
    DeltaTable(str(query.table)).restore(2)
    write(query.topic, b"3", partition=0)
    version = query.versions()
    assert f"'afterRestore' = {version}" in query.stopped_by("EOS_OTHER_TABLE")
    query.run(afterRestore=version)
    assert places(query.table) == Counter({(0, 0): 1, (0, 2): 1})


@pytest.mark.parametrize(
    ("sink", "entry"),
    [
        ({"path": "hdfs://host/t"}, "EOS_OPTION_INVALID.table_path"),
        ({"path": None}, "EOS_OPTION_MISSING.table_path"),
        ({"topic": "t"}, "EOS_OPTION_UNKNOWN.table"),
        ({"afterRestore": "-1"}, "EOS_OPTION_INVALID.batch"),
        ({"delta.constraints.small": "partition < 3"}, "EOS_DELTA_"),
    ],
)
def test_options_that_a_table_does_not_have_are_refused(query, sink, entry) -> None:
    """Before anything runs."""
    assert refused(query, **sink).entry.startswith(entry)


def test_a_new_table_gets_partitions_and_properties(query, write) -> None:
    """Rows go to their folders, and a later run keeps them."""
    write(query.topic, b"1", partition=0)
    write(query.topic, b"2", partition=2)
    query.run(**{"partitionBy": "topic, partition", "delta.logRetentionDuration": "interval 60 days"})
    write(query.topic, b"3", partition=2)
    query.run()
    table = DeltaTable(str(query.table))
    assert table.metadata().partition_columns == ["topic", "partition"]
    assert table.metadata().configuration["delta.logRetentionDuration"] == "interval 60 days"
    assert [(row["partition"], row["offset"]) for row in query.rows()] == [(0, 0), (2, 0), (2, 1)]
    assert list((query.table / f"topic={query.topic}" / "partition=2").glob("*.parquet"))
