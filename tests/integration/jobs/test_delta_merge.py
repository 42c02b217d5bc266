"""Topics → Delta table by merges: the last row of each key by its offset, tombstones delete, a replay does nothing."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions

from jobs.delta.table import check_session
from spark_eos import cli
from spark_eos.errors import UnsupportedError
from tests.support.queries.source_calls import Writer
from tests.support.tables.delta import ToDelta, noted
from tests.support.waiting import TIMEOUT, wait_for

#: The hint spreads the rows over tasks anew: they arrive in any order.
SQL = (
    "SELECT /*+ REPARTITION(3) */ string(key) AS k, string(value) AS v, topic, partition, offset, "
    "value IS NULL AS deleted FROM input"
)
MERGE = ", merge: [k]"


@pytest.mark.chaos
def test_a_topic_that_is_given_partitions_ends_the_merge(job: ToDelta, cluster, write, admin):
    """Keys move to other partitions then. The error comes back at each start; nothing of the micro-batch is there."""
    write(job.topic, "1", key="a")
    assert job.run(SQL, target=MERGE) is None
    admin.create_partitions([NewPartitions(job.topic, 3)])[job.topic].result(TIMEOUT)
    wait_for(
        lambda: len(admin.list_topics(job.topic, timeout=TIMEOUT).topics[job.topic].partitions) == 3, "the partition"
    )
    Writer(cluster, transactional=False).put(job.topic, "2", partition=2, key="a")  # write knows two partitions
    for _ in range(2):
        grew = job.run(SQL, target=MERGE)
        assert grew.condition == "EOS_DELTA_TOPIC_GREW" and "has 3 partitions now, and had 2" in grew.text
    assert job.rows() == [("a", "1")]


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("sql", "says"),
    [
        (SQL.replace("offset,", "string(offset) AS offset,"), "its column 'offset' is of type string"),
        (SQL.replace(", value IS NULL AS deleted", ""), "its column 'deleted' is missing"),
        (SQL.replace(" AS k", " AS key"), "has no column 'k', which 'target.merge' names"),
    ],
    ids=["type", "missing", "key"],
)
def test_a_merge_without_its_columns_is_refused_at_the_start(job: ToDelta, sql: str, says: str):
    """Before there is a table."""
    refused = job.run(sql, target=MERGE)
    assert refused.condition == "EOS_DELTA_COLUMNS" and says in refused.text
    assert not job.table.exists()


@pytest.mark.chaos
def test_new_columns_are_merged_when_asked(job: ToDelta, write):
    """Rows that are not touched have null there; without being asked it is an error."""
    write(job.topic, "1", key="a")
    write(job.topic, "1", key="b")
    assert job.run(SQL, target=MERGE) is None
    write(job.topic, "2", key="a")
    wider = SQL.replace("topic,", "length(value) AS n, topic,")
    assert job.run(wider, target=MERGE).condition == "EOS_DELTA_COLUMNS"
    assert job.run(wider, target=MERGE + ", schema: evolve") is None
    assert job.rows("k", "v", "n") == [("a", "2", 1), ("b", "1", None)]


@pytest.mark.chaos
def test_a_session_without_delta_or_with_unsafe_settings_is_refused(job: ToDelta, spark, delta):
    """Whatever spark-submit has set: what is missing, and a setting by which missing files are passed over."""
    with pytest.raises(UnsupportedError, match=r"EOS_NOT_INSTALLED.*spark.jars.packages: io.delta:delta-spark_4.2"):
        check_session(spark)
    delta.sql("SET spark.sql.files.ignoreMissingFiles = true")
    try:
        unsafe = job.run(SQL, target=MERGE)
    finally:
        delta.sql("RESET spark.sql.files.ignoreMissingFiles")
    assert unsafe.condition == "EOS_DELTA_TABLE_SETTINGS" and not job.table.exists()


@pytest.mark.chaos
def test_a_table_or_a_checkpoint_that_was_put_back_is_an_error(job: ToDelta, write, delta, tmp_path):
    """Otherwise Delta would skip micro-batches that it does not have, or take one twice."""
    write(job.topic, "1", key="a")
    assert job.run(SQL, target=MERGE) is None
    shutil.copytree(job.checkpoint, tmp_path / "checkpoint of yesterday")
    write(job.topic, "2", key="b")
    assert job.run(SQL, target=MERGE) is None

    shutil.move(job.checkpoint, tmp_path / "checkpoint of today")
    shutil.copytree(tmp_path / "checkpoint of yesterday", job.checkpoint)
    behind = job.run(SQL, target=MERGE)
    assert behind.condition == "EOS_TABLE_CHECKPOINT_BEHIND" and "has micro-batch 2 of the query" in behind.text
    assert job.rows() == [("a", "1"), ("b", "2")]

    shutil.rmtree(job.checkpoint)
    shutil.move(tmp_path / "checkpoint of today", job.checkpoint)
    shutil.move(job.table, tmp_path / "table of today")
    nothing_there = job.run(SQL, target=MERGE)
    assert nothing_there.condition == "EOS_OTHER_TABLE" and "has none of it" in nothing_there.text
    shutil.rmtree(job.table)
    shutil.move(tmp_path / "table of today", job.table)
    delta.sql(f"RESTORE TABLE delta.`{job.table}` TO VERSION AS OF 1")
    assert job.run(SQL, target=MERGE) is None  # Delta keeps what it knows of queries when rows are restored

    delta.sql(f"ALTER TABLE delta.`{job.table}` SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = '1 day')")
    forgets = job.run(SQL, target=MERGE)
    assert forgets.condition == "EOS_DELTA_TABLE_SETTINGS" and "UNSET TBLPROPERTIES" in forgets.text


def test_a_row_of_which_it_is_not_known_whether_it_deletes_deletes_nothing(job: ToDelta, write):
    """``deleted`` is NULL: of a new key, of one that is there, and beside a row that does delete. The commit holds how
    many rows there were, and its metrics add up to them."""
    sql = SQL.replace("value IS NULL AS deleted", "string(value) = 'd' AS deleted")
    write(job.topic, "1", None, key="a")
    write(job.topic, "d", None, key="b")
    write(job.topic, None, "d", key="c")
    write(job.topic, "d", key="d")
    assert job.run(sql, target=MERGE) is None
    assert job.rows() == [("a", None), ("b", None)]
    note, metrics = noted(job.table)[0]
    assert note["counts"] == {"rows": 7, "keys": 4, "deletes": 2}
    assert note["ranges"] == {f"{job.topic}/0": [0, 7]}
    assert int(metrics["numTargetRowsInserted"]) == 2 and int(metrics["numTargetRowsDeleted"]) == 0


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("sql", "condition", "says"),
    [
        (SQL.replace("offset,", "nullif(offset, 1) AS offset,"), "EOS_DELTA_NULL_ORDER", "partition 0, offset NULL. H"),
        (SQL.replace("topic,", "nullif(topic, topic) AS topic,"), "EOS_DELTA_NULL_ORDER", "topic NULL, partition 0, "),
        (
            SQL.replace("partition,", "nullif(partition, 0) AS partition,").replace("string(key)", "nullif(key, key)"),
            "EOS_DELTA_NULL_KEY",
            "partition NULL, offset ",
        ),
        (
            SQL.replace("partition,", "int(offset) AS partition,"),
            "EOS_DELTA_KEY_IN_TWO_PLACES",
            ", partition 1, so it is",
        ),
        (SQL + " LATERAL VIEW explode(array(1, 2)) AS twice", "EOS_DELTA_KEY_TWICE", "partition 0, offset 1. Hint"),
        (SQL.replace("input", "(SELECT * FROM input UNION ALL SELECT * FROM input)"), "EOS_DELTA_KEY_TWICE", "offset"),
    ],
    ids=["offset", "topic", "key and partition", "two partitions", "exploded", "union"],
)
def test_rows_whose_order_is_not_known_are_refused(job: ToDelta, write, sql: str, condition: str, says: str):
    """An error that names the row, or one of them; nothing is merged."""
    write(job.topic, "1", "2", key="a")
    refused = job.run(sql, target=MERGE)
    assert refused.condition == condition and says in refused.text, refused
    assert job.rows() == []


@pytest.mark.chaos
def test_keys_of_any_kind_are_told_apart_as_the_table_does(job: ToDelta, write):
    """NaN is one key and 0.0 is -0.0, within a micro-batch and from one to the next; blanks and letters count; names
    that the job uses itself are columns like any others."""
    sql = (
        "SELECT double(string(key)) AS `one`, concat(string(key), ' ') AS `row`, named_struct('n', string(key), 'x', "
        "nullif(1, 1)) AS `__t`, string(value) AS n, topic, partition, offset, value IS NULL AS deleted FROM input"
    )
    merge = ", merge: [one, row, __t]"
    for key in ("NaN", "0.0", "-0.0", "1"):
        write(job.topic, "old", "first", key=key)
    assert job.run(sql, target=merge) is None
    for key in ("NaN", "0.0", "-0.0"):
        write(job.topic, "new", key=key)
    write(job.topic, None, key="1")
    assert job.run(sql, target=merge) is None
    assert [(row[1], row[-1]) for row in sorted(job.rows("one", "row", "__t", "n"), key=lambda row: row[1])] == [
        ("-0.0 ", "new"),
        ("0.0 ", "new"),
        ("NaN ", "new"),
    ]


@pytest.mark.chaos
def test_zeros_of_both_signs_and_nan_are_one_key_each(job: ToDelta, write):
    """The last row of it is the one that stays."""
    sql = SQL.replace("string(key) AS k", "double(string(key)) AS k")
    for batch in ("first", "second"):
        for key in ("NaN", "0.0", "nan", "-0.0"):
            write(job.topic, f"{batch} {key}", key=key)
        assert job.run(sql, target=MERGE) is None
        assert sorted(row[0] for row in job.rows("v")) == [f"{batch} -0.0", f"{batch} nan"]


@pytest.mark.chaos
def test_a_key_that_is_in_the_table_twice_is_told(job: ToDelta, write):
    """Somebody has inserted it: the job stops after the merge, and goes on when it is started again, until it meets
    such a key once more."""
    write(job.topic, "1", key="a")
    write(job.topic, "1", key="b")
    assert job.run(SQL, target=MERGE) is None
    job.sql("INSERT INTO {t} VALUES ('a', 'again')")
    write(job.topic, "2", key="a")
    write(job.topic, None, key="b")
    twice = job.run(SQL, target=MERGE)
    assert twice.condition == "EOS_DELTA_MERGE_COUNTS", twice
    assert "0 of its keys are not in the table, 1 are there in more than one row" in twice.text
    assert job.run(SQL, target=MERGE) is None
    assert job.rows() == [("a", "2"), ("a", "2")]


def counts_that_do_not_add_up(path: str, metrics: dict[str, int]) -> str | None:
    """In the process: what `Proof` says of a merge of keys 1 to 3, of which 3 is deleted, into a table with 1 and 2."""
    from jobs.delta.batches import BatchNote
    from jobs.delta.merge import Proof
    from jobs.delta.table import TableCommit
    from spark_eos.errors import TableError
    from tests.support.tables.delta import session

    spark = session()
    source = spark.sql("SELECT id AS k, id = 3 AS deleted, 1L AS __eos_rows FROM range(1, 4)")
    note = BatchNote(0, "", {}, {"rows": 3, "keys": 3, "deletes": 1}, "", "")
    try:
        Proof(path, ["k"], source).check(TableCommit(1, {"operationMetrics": metrics}), note, False)
    except TableError as error:
        return error.message
    return None


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("keys", "inserted", "deleted", "there", "says"),
    [
        (3, 2, 0, (1, 2), None),
        (6, 4, 2, (1, 2), None),
        (6, 4, 2, (1, 3), "1 of its keys are not in the table, 0 are there in more than one row, and 1"),
        (3, 1, 0, (1, 2), "inserted or updated 1 rows"),
        (2, 2, 0, (1, 2), "Delta has merged 2 keys"),
    ],
)
def test_a_merge_that_does_not_add_up_is_an_error(tmp_path, delta, keys, inserted, deleted, there, says):
    """Fewer than there are at once. More, as by tasks that run again, only if the keys are not in the table."""
    table = f"delta.`{tmp_path / 'table'}`"
    delta.sql(f"CREATE TABLE {table} (k BIGINT) USING delta")
    delta.sql(f"INSERT INTO {table} VALUES {', '.join(f'({k})' for k in there)}")
    metrics = {"numSourceRows": keys, "numTargetRowsInserted": inserted, "numTargetRowsUpdated": 0}
    found = delta(counts_that_do_not_add_up, str(tmp_path / "table"), metrics | {"numTargetRowsDeleted": deleted})
    assert found is None if says is None else says in found


def test_the_commands_know_the_table_of_a_merge(job: ToDelta, write, cluster, capsys):
    """By the offset log and the table alone, before and after a crash; a start that would append is refused."""

    def state() -> Any:
        capsys.readouterr()
        words = ["--bootstrap-servers", cluster.bootstrap_servers, "status", str(job.checkpoint), "--watch", "0"]
        assert cli.main([*words, "--format", "json"]) == 0
        return json.loads(capsys.readouterr().out)[0]

    write(job.topic, "a", key="k")
    assert job.run(SQL, target=MERGE) is None
    found = state()
    assert found["table"] == {
        "format": "delta",
        "path": str(job.table),
        "last_batch": found["checkpoint"]["committed"][-1],
        "stop": None,
        "problem": None,
    }
    assert found["next"].startswith("plans micro-batch ")
    job.forget_the_last_commit()
    assert state()["next"].endswith("if its offsets are the same, no row is added")
    refused = job.run("SELECT decode(key) AS k, decode(value) AS v FROM input", engine="duckdb")
    assert refused is not None and refused.condition == "EOS_OTHER_TABLE" and "passed through Spark" in refused.text
