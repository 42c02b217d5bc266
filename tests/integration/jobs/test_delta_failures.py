"""What a table refuses ends a merge by name: never an exception of Java's or Python's by itself."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.support.runs.case_cover import one_for_every_day
from tests.support.tables.delta import DeltaSpark, Failed, ToDelta, session

OFFSETS = 'v1\n{"batchWatermarkMs":0}\n{"topic":{"0":1}}'
FROM = "'topic' AS topic, 0 AS partition, 0L AS offset, false AS deleted"


def outcome(path: str, checkpoint: str, rows: str, meanwhile: str = "") -> Failed | None:
    """In the process: how a micro-batch of these rows ends. ``meanwhile``: what somebody does before its commit."""
    from jobs.delta.batches import Batches
    from jobs.delta.merge import Merger
    from spark_eos.errors import EosError

    spark = session()
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", "a query")
    try:
        if meanwhile:
            work = {"dropped": lambda: shutil.rmtree(path), "recreated": lambda: _recreated(path), "nothing": dict}
            work["landed"] = lambda: (_recreated(path), spark.sql(rows).write.format("delta").mode("append").save(path))
            Batches(path, checkpoint).once(spark, 0, work[meanwhile], dict, lambda *_: None)
        else:
            Merger(path, ("k",), checkpoint).merge(spark.sql(f"{rows}, {FROM}"), 0)
    except EosError as error:
        return Failed(error.condition, str(error))
    except Exception as error:  # none of them is to come through
        return Failed(type(error).__name__, str(error))
    return None


def _recreated(path: str) -> None:
    shutil.rmtree(path)
    session().sql(f"CREATE TABLE delta.`{path}` (k STRING) USING delta")


def prepared(path: str, properties: dict[str, str], partition_by: tuple[str, ...] = ()) -> Failed | None:
    """In the process: how the start of a job ends; it creates the table where there is none."""
    from jobs.delta.table import MergedTable
    from jobs.kafka_to_delta import TableTarget, prepare
    from spark_eos.errors import EosError

    try:
        target = TableTarget(path=path, partitionBy=partition_by, **properties)
        prepare(MergedTable(session(), path), session().sql(f"SELECT 'a' AS k, 1 AS n, {FROM}"), target, ("k",))
    except EosError as error:
        return Failed(error.entry, str(error))
    return None


@dataclass(frozen=True)
class Micro:
    """A table, and one micro-batch for it. ``{t}`` stands for the table."""

    delta: DeltaSpark
    folder: Path

    @property
    def table(self) -> Path:
        return self.folder / "table"

    def sql(self, *texts: str) -> None:
        for text in texts:
            self.delta.sql(text.format(t=f"delta.`{self.table}`"))

    def outcome(self, rows: str, *, meanwhile: str = "") -> Failed | None:
        return self.delta(outcome, str(self.table), str(self.folder / "checkpoint"), rows, meanwhile)

    def commit(self, **actions: object) -> None:
        """Another writer's, by hand."""
        log = self.table / "_delta_log"
        version = len(list(log.glob("*.json")))
        (log / f"{version:020d}.json").write_text("\n".join(json.dumps({name: it}) for name, it in actions.items()))


@pytest.fixture
def micro(delta, tmp_path) -> Iterator[Micro]:
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    (tmp_path / "checkpoint" / "offsets" / "0").write_text(OFFSETS)
    yield Micro(delta, tmp_path)


LEFT = [[], ["_delta_log"], ["_delta_log", "_delta_log/.0.json.tmp"], ["_delta_log/_commits"]]


@pytest.mark.parametrize("left", one_for_every_day("what a killed start left of a table", LEFT))
def test_a_table_is_created_where_a_killed_start_left_no_version(micro: Micro, left: list[str]):
    """Whatever its folder has by then, with the properties and partition columns of the job."""
    micro.table.mkdir()
    for name in left:
        (micro.table / name).mkdir(parents=True) if "tmp" not in name else (micro.table / name).write_text("{")
    given = {"delta.deletedFileRetentionDuration": "interval 3 days", "delta.enableChangeDataFeed": "true"}
    assert micro.delta(prepared, str(micro.table), given, ("k",)) is None
    assert micro.outcome("SELECT 'a' AS k, 1 AS n") is None
    table = DeltaTable(str(micro.table))
    assert given.items() <= table.metadata().configuration.items() and table.metadata().partition_columns == ["k"]
    assert table.to_pyarrow_table().to_pylist() == [{"k": "a", "n": 1}]


def test_no_table_is_created_that_each_later_start_would_refuse(micro: Micro):
    """As it would forget which micro-batches it has."""
    refused = micro.delta(prepared, str(micro.table), {"delta.setTransactionRetentionDuration": "interval 1 day"})
    assert refused is not None and refused.condition == "EOS_DELTA_TABLE_SETTINGS.new" and not micro.table.exists()
    assert micro.delta(prepared, str(micro.table), {}) is None


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("table", "rows", "condition"),
    [
        ("(k STRING, n INT NOT NULL)", "SELECT 'a' AS k, int(null) AS n", "EOS_DELTA_CONSTRAINT"),
        ("(k VARCHAR(2))", "SELECT 'long' AS k", "EOS_DELTA_CONSTRAINT"),
        ("(k STRING, n INT GENERATED ALWAYS AS (length(k)))", "SELECT 'a' AS k, 5 AS n", "EOS_DELTA_CONSTRAINT"),
        ("(k STRING, n TINYINT)", "SELECT 'a' AS k, 1000 AS n", "EOS_DELTA_CONSTRAINT|EOS_DELTA_COLUMNS"),
        ("(k STRING, n INT)", "SELECT 'a' AS k, array(1) AS n", "EOS_DELTA_COLUMNS"),
        ("(k STRING)", "SELECT 'a' AS k, 1 AS n", "EOS_DELTA_COLUMNS"),
        ("(k STRING, n BIGINT GENERATED ALWAYS AS IDENTITY)", "SELECT 'a' AS k, 5L AS n", "EOS_DELTA_COLUMNS"),
    ],
    ids=["not null", "length", "generated", "overflow", "type", "missing", "identity"],
)
def test_rows_that_the_table_does_not_take_are_named(micro: Micro, table: str, rows: str, condition: str):
    """As it is after a change of the table while the query runs, which the look at the start has not seen."""
    micro.sql(f"CREATE TABLE {{t}} {table} USING delta")
    refused = micro.outcome(rows)
    assert refused is not None and refused.condition in condition.split("|"), refused
    assert str(micro.table) in refused.text and "\n" not in refused.text and "o557" not in refused.text


@pytest.mark.chaos
def test_a_table_of_appends_only_is_named(micro: Micro):
    """A merge that updates a row of it."""
    micro.sql("CREATE TABLE {t} (k STRING, n INT) USING delta TBLPROPERTIES (delta.appendOnly = true)")
    micro.sql("INSERT INTO {t} VALUES ('a', 1)")
    refused = micro.outcome("SELECT 'a' AS k, 2 AS n")
    assert refused is not None and refused.condition == "EOS_DELTA_CONSTRAINT", refused


@pytest.mark.chaos
def test_a_table_that_needs_a_newer_delta_is_named(micro: Micro):
    """And one whose log has been damaged, or is gone."""
    micro.sql("CREATE TABLE {t} (k STRING) USING delta")
    features = {"readerFeatures": ["ofTheFuture"], "writerFeatures": ["ofTheFuture"]}
    micro.commit(protocol={"minReaderVersion": 3, "minWriterVersion": 7, **features})
    too_new = micro.outcome("SELECT 'a' AS k")
    assert too_new is not None and too_new.condition == "EOS_DELTA_TOO_NEW" and "ofTheFuture" in too_new.text, too_new
    newest = max((micro.table / "_delta_log").glob("*.json"))
    newest.write_text('{"protocol": {"minRe')
    damaged = micro.outcome("SELECT 'a' AS k")
    assert damaged is not None and damaged.condition in ("EOS_DELTA_LOG_DAMAGED", "EOS_DELTA_FAILED"), damaged
    assert str(micro.table) in damaged.text and "\n" not in damaged.text


@pytest.mark.chaos
def test_a_table_that_goes_away_is_named(micro: Micro):
    """It is not there, goes while a micro-batch is written, or is another one afterwards; and a micro-batch that wrote
    nothing, which no job does."""
    gone = micro.outcome("SELECT 'a' AS k")
    assert gone is not None and gone.condition == "EOS_DELTA_NO_TABLE", gone
    for meanwhile, condition in (
        ("dropped", "EOS_OTHER_TABLE"),
        ("recreated", "EOS_OTHER_TABLE"),
        ("nothing", "EOS_DELTA_BATCH_UNKNOWN"),
    ):
        shutil.rmtree(micro.table, ignore_errors=True)
        micro.sql("CREATE TABLE {t} (k STRING) USING delta")
        found = micro.outcome("SELECT 'a' AS k", meanwhile=meanwhile)
        assert found is not None and found.condition == condition, (meanwhile, found)


def test_a_table_that_took_a_commit_meant_for_another_one_is_refused_at_each_start(micro: Micro):
    """The driver was about to commit when somebody recreated the table."""
    micro.sql("CREATE TABLE {t} (k STRING) USING delta")
    for meanwhile in ("landed", "", ""):
        refused = micro.outcome("SELECT 'a' AS k", meanwhile=meanwhile)
        assert refused is not None and refused.condition == "EOS_OTHER_TABLE", (meanwhile, refused)
        assert "was meant for another table" in refused.text


@pytest.mark.chaos
def test_a_job_says_what_the_table_refuses_in_one_line(job: ToDelta, write):
    """From the row in a topic to the job's last words."""
    sql = "SELECT string(key) AS k, int(string(value)) AS n, topic, partition, offset, false AS deleted FROM input"
    write(job.topic, "1", key="a")
    assert job.run(sql, target=", merge: [k]") is None
    job.sql("ALTER TABLE {t} ADD CONSTRAINT positive CHECK (n > 0)")
    write(job.topic, "-1", key="a")
    broken = job.run(sql, target=", merge: [k]")
    assert broken is not None and broken.condition == "EOS_DELTA_CONSTRAINT", broken
    assert all(part in broken.text for part in ("positive", str(job.table), "DROP CONSTRAINT")), broken
    assert "Py4J" not in broken.text and "\n" not in broken.text, broken


def condition_of(name: str, wrapped: bool) -> str | None:
    """In the process: what `named` makes of Delta's exception of this class, as py4j brings it to Python."""
    import delta.tables  # noqa: F401  # as merges do; it has Delta's exceptions known by their classes
    from pyspark.errors.exceptions.captured import convert_exception

    from jobs.delta.errors import named

    jvm = session()._jvm
    thrown = getattr(jvm.io.delta.exceptions, name)("Somebody was faster.")
    error = convert_exception(jvm.java.lang.RuntimeException("The query has failed.", thrown) if wrapped else thrown)
    found = named(error)
    return found.condition if found else None


@pytest.mark.parametrize("wrapped", [False, True], ids=["itself", "as a cause"])
def test_exceptions_without_a_condition_in_their_text(wrapped: bool, delta: DeltaSpark) -> None:
    """Conflicts with other writers, and with another run of the same query; all others keep their own words."""
    conflicts = ("ConcurrentAppendException", "ConcurrentDeleteReadException", "ConcurrentWriteException")
    for name in (*conflicts, "MetadataChangedException", "ProtocolChangedException"):
        assert delta(condition_of, name, wrapped) == "EOS_DELTA_CONFLICT"
    assert delta(condition_of, "ConcurrentTransactionException", wrapped) == "EOS_TABLE_TWO_QUERIES"
