"""Copies of a checkpoint that go on beside the first one, each in its turn: every row is in the table, or it stops."""

from __future__ import annotations

import shutil

import pytest

from tests.support.delta import ToDelta

APPEND = "SELECT string(key) AS k, string(value) AS v FROM input"
MERGE = "SELECT string(key) AS k, string(value) AS v, topic, partition, offset, value IS NULL AS deleted FROM input"
WAYS = pytest.mark.parametrize(
    ("sql", "target"), [(APPEND, ""), (MERGE, ", merge: {keys: [k]}")], ids=["append", "merge"]
)


def as_copy(job: ToDelta, name: str) -> None:
    """Let the job go on with its checkpoint as it is now, under another name."""
    shutil.copytree(job.checkpoint, job.checkpoint.with_name(name))
    job.checkpoint = job.checkpoint.with_name(name)


@pytest.mark.chaos
@WAYS
def test_a_copy_that_goes_on_over_other_rows_is_refused(job: ToDelta, write, sql: str, target: str):
    """Both take the next number, the second one over more rows; neither before nor after a restart is it skipped."""
    write(job.topic, "1", key="a")
    assert job.run(sql, target=target) is None
    first = job.checkpoint
    as_copy(job, "copy")
    write(job.topic, "2", key="b")
    assert job.run(sql, target=target) is None  # the copy
    job.checkpoint = first
    write(job.topic, "3", key="c")
    for _ in range(2):
        refused = job.run(sql, target=target)
        assert refused.condition == "EOS_DELTA_TWO_QUERIES", refused
        assert f"{job.topic}/0 1 to 2, and here it has offsets {job.topic}/0 1 to 3" in refused.text
    job.checkpoint = first.with_name("copy")
    assert job.run(sql, target=target) is None
    assert job.rows() == [("a", "1"), ("b", "2"), ("c", "3")]


@pytest.mark.chaos
@WAYS
def test_copies_over_the_same_rows_go_on_side_by_side(job: ToDelta, write, sql: str, target: str):
    """What one has written, the other one skips, as it does after a crash of its own."""
    write(job.topic, "1", key="a")
    assert job.run(sql, target=target) is None
    first = job.checkpoint
    as_copy(job, "copy")
    for n in range(2):
        write(job.topic, "2", key=f"b{n}")
        for checkpoint in (first, first.with_name("copy")):
            job.checkpoint = checkpoint
            assert job.run(sql, target=target) is None
    assert job.rows() == [("a", "1"), ("b0", "2"), ("b1", "2")]


@pytest.mark.chaos
def test_a_commit_that_says_nothing_of_its_rows_is_not_taken_for_them(job: ToDelta, write):
    """As after a crash whose commit the log's retention has removed before the job was started again."""
    write(job.topic, "1", key="a")
    assert job.run(APPEND) is None
    job.sql("INSERT INTO {t} VALUES ('x', 'of somebody else')")
    commits = sorted((job.table / "_delta_log").glob("*.json"))
    job.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    job.sql("INSERT INTO {t} VALUES ('y', 'of somebody else')")
    for commit in commits:
        commit.unlink()
        commit.with_name(f".{commit.name}.crc").unlink(missing_ok=True)
    job.forget_the_last_commit()
    unknown = job.run(APPEND)
    assert unknown.condition == "EOS_DELTA_BATCH_UNKNOWN", unknown
    assert f"is no longer in the log. Here, it has offsets {job.topic}/0 0 to 1" in unknown.text
