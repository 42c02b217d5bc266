"""`spark_eos.run` on real queries of Spark: what is started again, how often, and when."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import spark_eos
from spark_eos.errors import ConnectionFailed, EosError

AWAY = ConnectionFailed("EOS_KAFKA_UNREACHABLE", "No answer from h:1.", hint="Start it.")
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


def test_a_query_is_started_again_where_that_helps(spark, tmp_path):
    """The micro-batch that failed runs again, the query goes on, and each restart is told with its reason. Caches do
    not outlive a failed run: else a replay would see less than a query that begins in a new process."""
    assert spark.range(1).cache().storageLevel.useMemory
    query = Script(spark, tmp_path, None, AWAY, AWAY, None, None)
    query.run(attempts=2)
    assert not spark.range(1).storageLevel.useMemory
    assert query.began[:3] == [[0, 1], [1], query.began[2]]
    assert query.began[2][:2] == [1, 2]
    assert [(r.attempt, r.attempts, r.reason.condition) for r in query.told] == [
        (1, 2, "EOS_KAFKA_UNREACHABLE"),
        (2, 2, "EOS_KAFKA_UNREACHABLE"),
    ]
