"""`spark_eos.run` on real queries of Spark: what is started again, how often, and when."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from delta.exceptions.captured import ConcurrentAppendException
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import spark_eos
from jobs.delta.errors import named
from spark_eos.errors import ConnectionFailed, EosError, Superseded

AWAY = ConnectionFailed("EOS_KAFKA_UNREACHABLE", "No answer from h:1.", hint="Start it.")
OTHER = Superseded("EOS_SUPERSEDED", "Another run has taken over.", hint="Stop one of them.")
SHORT = 0.05


class Script:
    """A query whose micro-batches do what a script says, one after the other: an error is raised, None is well.

    After its last line, the next micro-batch ends the query. ``began``: ids of micro-batches by start.
    """

    def __init__(self, spark: SparkSession, folder: Path, *script: EosError | Exception | None) -> None:
        self._spark, self._folder, self._script = spark, folder, list(script)
        self._input = folder / "input"
        self._input.mkdir()
        self.began: list[list[int]] = []
        self.told: list[spark_eos.Restart] = []
        self.done = False

    def start(self) -> StreamingQuery:
        self.began.append([])
        self._feed()
        rows = self._spark.readStream.schema("value STRING").option("maxFilesPerTrigger", 1).text(str(self._input))
        writer = rows.writeStream.foreachBatch(self._batch).option("checkpointLocation", str(self._folder / "c"))
        return writer.trigger(processingTime="0 seconds").start()

    def run(self, **options: object) -> None:
        options = {"pause_s": SHORT, "stop": lambda: self.done, "on_restart": self.told.append} | options
        spark_eos.run(self.start, **options)

    def _feed(self) -> None:
        """A file for the next micro-batch."""
        number = sum(1 for _ in self._input.iterdir())
        (self._input / f"{number}.txt").write_text("row")

    def _batch(self, rows: DataFrame, batch: int) -> None:
        self.began[-1].append(batch)
        says = self._script.pop(0) if self._script else None
        if says is not None:
            raise says
        self.done = not self._script
        self._feed()


@pytest.fixture
def script(spark: SparkSession, tmp_path: Path) -> Callable[..., Script]:
    return lambda *said: Script(spark, tmp_path, *said)


def test_a_query_is_started_again_where_that_helps(script):
    """The micro-batch that failed runs again, the query goes on, and each restart is told with its reason."""
    query = script(None, AWAY, AWAY, None, None)
    query.run(attempts=2)
    assert query.began[:3] == [[0, 1], [1], query.began[2]]
    assert query.began[2][:2] == [1, 2]
    assert [(r.attempt, r.attempts, r.reason.condition) for r in query.told] == [
        (1, 2, "EOS_KAFKA_UNREACHABLE"),
        (2, 2, "EOS_KAFKA_UNREACHABLE"),
    ]


def test_when_the_restarts_are_used_up_the_error_is_raised(script):
    """With pauses that double, and nothing left running."""
    query = script(AWAY, AWAY, AWAY, None)
    with pytest.raises(StreamingQueryException) as raised:
        query.run(attempts=2)
    assert spark_eos.reason(raised.value).condition == "EOS_KAFKA_UNREACHABLE"
    assert [r.pause_s for r in query.told] == [SHORT, 2 * SHORT]
    assert len(query.began) == 3
    assert query._spark.streams.active == []


@pytest.mark.parametrize("error", [OTHER, ValueError("no such plane")], ids=["needs somebody", "unknown"])
def test_an_error_after_which_no_restart_helps_is_raised_at_once(script, error):
    """Of two runs of a query, the one that was replaced must not come back; what is not known is left to a person."""
    query = script(error, None)
    with pytest.raises(StreamingQueryException):
        query.run()
    assert (query.told, len(query.began)) == ([], 1)


def test_errors_of_others_count_where_somebody_explains_them(script):
    """As the Delta jobs do: a merge that another writer got in the way of is done again, as nothing of it is there."""
    conflict = ConcurrentAppendException(desc="[DELTA_CONCURRENT_APPEND] Transaction conflict detected.", stackTrace="")
    query = script(conflict, None)
    query.run(explain=lambda error: spark_eos.reason(named(error) or error))
    assert [restart.reason.condition for restart in query.told] == ["EOS_DELTA_CONFLICT"]
    assert query.began[1][0] == 0


def test_a_query_that_cannot_be_started_counts_as_one_that_failed():
    """As when the source asks a cluster that is away: the factory's error is treated like the query's."""
    tries = []

    def start() -> StreamingQuery:
        tries.append(1)
        raise AWAY

    with pytest.raises(ConnectionFailed):
        spark_eos.run(start, attempts=2, pause_s=SHORT)
    assert len(tries) == 3


def test_caches_do_not_outlive_a_failed_run(script, spark):
    """Else a replay would see less than a query that begins in a new process."""
    table = spark.range(1).cache()
    assert table.storageLevel.useMemory
    script(AWAY, None).run()
    assert not spark.range(1).storageLevel.useMemory
