"""Copies of a merge's checkpoint that go on beside the first one, each in its turn: every row is in the table, or it
stops."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.tables.delta import DeltaSpark, Failed, ToDelta, rows_of, session

MERGE = "SELECT string(key) AS k, string(value) AS v, topic, partition, offset, false AS deleted FROM input"
BY_KEY = ", merge: [k]"
FROM = "'topic' AS topic, 0 AS partition, 0L AS offset, false AS deleted"


def turn(path: str, checkpoint: str, batch: int, key: str) -> Failed | None:
    """In the process: how a micro-batch of the one query with this key ends."""
    from jobs.delta.merge import Merger
    from spark_eos.errors import EosError

    spark = session()
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", "a query")
    rows = spark.sql(f"SELECT '{key}' AS k, {FROM}")
    try:
        Merger(path, ("k",), checkpoint).merge(rows, batch)
    except EosError as error:
        return Failed(error.condition, str(error))
    return None


@dataclass
class Copies:
    """A table, and checkpoints of one query, each with its own offset log."""

    delta: DeltaSpark
    folder: Path

    def turn(self, name: str, batch: int, end: int, key: str, topic_id: str = "id") -> Failed | None:
        """A micro-batch of the query with this checkpoint, up to this offset."""
        self.plan(name, batch, end, topic_id)
        return self.delta(turn, str(self.folder / "table"), str(self.folder / name), batch, key)

    def plan(self, name: str, batch: int, end: int, topic_id: str = "id") -> None:
        """A micro-batch in the offset log."""
        offsets = self.folder / name / "offsets"
        offsets.mkdir(parents=True, exist_ok=True)
        (offsets / str(batch)).write_text(f'v1\n{{}}\n{{"#ids":{{"topic":"{topic_id}"}},"topic":{{"0":{end}}}}}')

    def keys(self) -> list[str]:
        return [key for (key,) in rows_of(self.folder / "table")]


def test_a_copy_that_goes_on_over_other_rows_is_refused(delta, tmp_path: Path):
    """Over more rows, over those of a topic of the same name, and when it is a micro-batch behind, or one ahead. Over
    the same rows, it skips what the other has written."""
    delta.sql(f"CREATE TABLE delta.`{tmp_path / 'table'}` (k STRING) USING delta")
    copies = Copies(delta, tmp_path)
    assert copies.turn("first", 0, 1, "a") is None
    copies.plan("copy", 0, 1)
    assert copies.turn("copy", 1, 3, "b") is None
    for end, topic_id in ((4, "id"), (3, "another")):
        refused = copies.turn("first", 1, end, "not b", topic_id)
        assert refused is not None and refused.condition == "EOS_TABLE_TWO_QUERIES", refused
        assert f"micro-batch 1 has offsets topic/0 1 to 3 in the table {tmp_path / 'table'}, and " in refused.text
    assert copies.turn("first", 1, 3, "b") is None
    assert copies.turn("first", 2, 4, "c") is None
    behind = copies.turn("copy", 1, 3, "b")
    assert behind is not None and behind.condition == "EOS_TABLE_TWO_QUERIES"
    assert "has micro-batch 2, and this job is at 1: offsets topic/0 1 to 3" in behind.text
    copies.plan("copy", 3, 5)
    ahead = copies.turn("copy", 4, 6, "f")
    assert ahead is not None and ahead.condition == "EOS_OTHER_TABLE"
    assert copies.keys() == ["a", "b", "c"]


@pytest.mark.chaos
def test_a_commit_that_says_nothing_of_its_rows_is_not_taken_for_them(job: ToDelta, write):
    """As after a crash whose commit the log's retention has removed before the job was started again."""
    write(job.topic, "1", key="a")
    assert job.run(MERGE, target=BY_KEY) is None
    job.sql("INSERT INTO {t} VALUES ('x', 'of somebody else')")
    commits = sorted((job.table / "_delta_log").glob("*.json"))
    job.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    job.sql("INSERT INTO {t} VALUES ('y', 'of somebody else')")
    for commit in commits:
        commit.unlink()
        commit.with_name(f".{commit.name}.crc").unlink(missing_ok=True)
    job.forget_the_last_commit()
    unknown = job.run(MERGE, target=BY_KEY)
    assert unknown.condition == "EOS_DELTA_BATCH_UNKNOWN", unknown
    assert f"is no longer in the log. In this run, the micro-batch has offsets {job.topic}/0 0 to 1" in unknown.text
