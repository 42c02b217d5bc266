"""Topics → Delta table by merges: the last row of each key by its offset, tombstones delete, a replay does nothing."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import NewPartitions
from deltalake import DeltaTable

from tests.support.delta import ToDelta, versions_of
from tests.support.source_calls import Writer
from tests.support.waiting import wait_for

#: The hint spreads the rows over tasks anew: they arrive in any order.
SQL = (
    "SELECT /*+ REPARTITION(3) */ string(key) AS k, string(value) AS v, topic, partition, offset, "
    "value IS NULL AS deleted FROM input"
)
MERGE = ", merge: {keys: [k]}"


@pytest.mark.chaos
def test_the_last_row_of_each_key_wins_and_tombstones_delete(job: ToDelta, write):
    """Within a micro-batch and from one to the next, whatever the order in which the rows arrive."""
    for n in range(20):
        write(job.topic, f"a{n}", key="a")
        write(job.topic, f"b{n}", partition=1, key="b")
    write(job.topic, None, "c again", key="c")
    write(job.topic, "d", None, key="d")
    write(job.topic, None, key="never there")
    write(job.topic, b"", key="")
    assert job.run(SQL, target=MERGE) is None
    assert job.rows() == [("", ""), ("a", "a19"), ("b", "b19"), ("c", "c again")]
    write(job.topic, "a20", None, key="a")
    write(job.topic, "b20", partition=1, key="b")
    write(job.topic, "new", partition=1, key="e")
    assert job.run(SQL, target=MERGE) is None
    assert job.rows() == [("", ""), ("b", "b20"), ("c", "c again"), ("e", "new")]


@pytest.mark.chaos
def test_a_merge_that_is_in_the_table_is_not_done_again(job: ToDelta, write):
    """As after a kill between Delta's commit and Spark's: what others have done to the rows since then stays, and the
    next micro-batch is merged, not skipped."""
    write(job.topic, "1", "2", key="a")
    assert job.run(SQL, target=MERGE) is None
    DeltaTable(str(job.table)).delete("k = 'a'")
    version = versions_of(job.table)
    job.forget_the_last_commit()
    assert job.run(SQL, target=MERGE) is None
    assert job.rows() == [] and versions_of(job.table) == version
    write(job.topic, "3", key="a")
    assert job.run(SQL, target=MERGE) is None
    assert job.rows() == [("a", "3")]


@pytest.mark.chaos
def test_rows_that_no_key_or_no_order_is_known_of_are_refused(job: ToDelta, write):
    """A null key, and a key whose rows are in two partitions: an error that names the rows, and nothing is merged."""
    write(job.topic, "1", key="a")
    assert job.run(SQL, target=MERGE) is None
    write(job.topic, "2", key="a")
    write(job.topic, "no key")
    null = job.run(SQL, target=MERGE)
    assert null.condition == "EOS_DELTA_NULL_KEY"
    assert f"by k has no key: topic {job.topic}, partition 0, offset 2. Hint: Leave such rows out" in null.text
    some = SQL + " WHERE key IS NOT NULL"
    write(job.topic, "3", partition=1, key="a")
    two = job.run(some, target=MERGE)
    assert two is None  # the micro-batch of before has its end: the new row comes in the next one, and is the last
    write(job.topic, "4", key="a")
    write(job.topic, "5", partition=1, key="a")
    two = job.run(some, target=MERGE)
    assert two.condition == "EOS_DELTA_KEY_IN_TWO_PLACES"
    assert f"topic {job.topic}, partition 0, and topic {job.topic}, partition 1, so it is not known" in two.text
    assert job.rows() == [("a", "3")]


@pytest.mark.chaos
def test_a_topic_that_is_given_partitions_ends_the_merge(job: ToDelta, cluster, write, admin):
    """Keys move to other partitions then. The error comes back at each start; nothing of the micro-batch is there."""
    write(job.topic, "1", key="a")
    assert job.run(SQL, target=MERGE) is None
    admin.create_partitions([NewPartitions(job.topic, 3)])[job.topic].result(30)
    wait_for(lambda: len(admin.list_topics(job.topic, timeout=30).topics[job.topic].partitions) == 3, "the partition")
    Writer(cluster, transactional=False).put(job.topic, "2", partition=2, key="a")  # write knows two partitions
    for _ in range(2):
        grew = job.run(SQL, target=MERGE)
        assert grew.condition == "EOS_DELTA_TOPIC_GREW" and "has 3 partitions, no longer 2" in grew.text
    assert job.rows() == [("a", "1")]


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("sql", "says"),
    [
        (SQL.replace("offset,", "string(offset) AS offset,"), "its column 'offset' is of type string"),
        (SQL.replace(", value IS NULL AS deleted", ""), "its column 'deleted' is missing"),
        (SQL.replace(" AS k", " AS key"), "has no column 'k', which 'target.merge.keys' names"),
    ],
    ids=["type", "missing", "key"],
)
def test_a_merge_without_its_columns_is_refused_at_the_start(job: ToDelta, sql: str, says: str):
    """Before there is a table."""
    refused = job.run(sql, target=MERGE)
    assert refused.condition == "EOS_DELTA_MERGE_COLUMNS" and says in refused.text
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
    assert job.run(wider, target=MERGE + ", schemaChanges: evolve") is None
    assert job.rows("k", "v", "n") == [("a", "2", 1), ("b", "1", None)]


def outside_of_a_query() -> str:
    from jobs.delta_merge import MergeConfig, Merger
    from spark_eos.errors import UnsupportedError
    from tests.support.delta import session

    try:
        Merger("table", MergeConfig(("k",)), "checkpoint").merge(session().range(1), 0)
    except UnsupportedError as error:
        return error.condition
    return "merged"


@pytest.mark.chaos
def test_a_merge_needs_to_know_its_query(delta):
    """No identity is invented for it, as a replay would not have the same."""
    assert delta(outside_of_a_query) == "EOS_DELTA_WITHOUT_QUERY"
