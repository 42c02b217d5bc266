"""The two ways of a micro-batch's rows from their files to the topic: through Spark, or past the JVM.

Both write a file's rows in the same order and by the same tasks, under the ingest's one name in the ledger. So an
ingest may change its way at any start.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.options.writes import WriteOptions
from spark_eos.pipelines.copy.plan import RowTransform
from spark_eos.pipelines.copy.sql import check_sql
from spark_eos.pipelines.copy.start import name_of
from spark_eos.pipelines.copy.written import of_one_query
from spark_eos.pipelines.files.copying import LINES, FilesCopy
from spark_eos.pipelines.files.notes import Notes, Splits
from spark_eos.pipelines.files.source import source_for
from spark_eos.sink.job_write import write_frame
from spark_eos.sink.schema import check_columns
from spark_eos.sink.spark_rows import SparkRows

from ..runner.transform import transformed
from ..runner.transforms import SparkTransform
from .input import Files, accepted, malformed, parsed, rows_of

#: Prefix of the names of observations of the read rows.
_READ = "spark_eos_files_read_"
#: Excludes a rule of Spark's that, when a join turns out to be empty, drops scans that have not begun.
_AQE_RULES = "spark.sql.adaptive.optimizer.excludedRules"
_DROPS_READS = "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"


@dataclass(frozen=True)
class Way:
    """The way in which a job reads rows. ``past_jvm``: true if tasks read files themselves; ``why``: the reason, as
    text."""

    past_jvm: bool
    why: str

    def __str__(self) -> str:
        return f"rows are read {'past the JVM' if self.past_jvm else 'through Spark'}: {self.why}"


def way_of(files: Files, transform: SparkTransform | None) -> Way:
    """Return the way past the JVM, where nothing is left for Spark to do."""
    rows = "rows of Parquet" if files.format == "parquet" else f"lines of {files.format}"
    if transform is not None and transform.is_copy:
        by = "DuckDB runs 'transform.sql'" if transform.by_duckdb else "tasks call 'transform.arrow'"
        return Way(True, f"{by} with {rows} as they are")
    if transform is not None:
        parsed_first = f" of parsed {files.format}" if files.format in ("csv", "json") else ""
        return Way(False, f"it runs 'transform.{'sql' if transform.sql else 'function'}'{parsed_first}")
    if files.format == "parquet":
        return Way(True, "without 'transform', columns of Parquet are the topic's")
    return Way(True, f"without 'transform', {rows} are values as they are")


def check_before_spark(files: Files, transform: SparkTransform | None) -> None:
    """Check SQL for DuckDB. Of Parquet, only files tell the columns. Raises SchemaError."""
    if transform is not None and transform.by_duckdb and files.format != "parquet":
        check_sql(str(transform.sql), LINES)


@dataclass(frozen=True)
class FileCounts:
    """Numbers of rows of a micro-batch: read, left out as malformed, and written."""

    rows_in: int
    malformed: int
    rows_out: int


class Writing(Protocol):
    """Writes micro-batches."""

    def write(self, splits: Splits, options: WriteOptions, notes: Notes) -> FileCounts:
        """Write the rows of these files, and return when they are committed. ``options`` and ``notes``: see
        `spark_eos.pipelines.files.run.IngestRun`."""
        ...


class ThroughSpark:
    """Spark parses the records and runs the transform."""

    def __init__(self, spark: SparkSession, files: Files, transform: SparkTransform, settings: HadoopSettings) -> None:
        self._spark, self._files, self._transform, self._settings = spark, files, transform, settings
        spark.dataSource.register(source_for(settings))
        rules = spark.conf.get(_AQE_RULES, None)
        if _DROPS_READS not in (rules or ""):
            spark.conf.set(_AQE_RULES, ",".join(filter(None, (rules, _DROPS_READS))))
        spark.conf.set("spark.sql.legacy.timeParserPolicy", "CORRECTED")  # LEGACY takes 30 February for 2 March

    def write(self, splits: Splits, options: WriteOptions, notes: Notes) -> FileCounts:
        """See `Writing.write`."""
        read, written = Observation(f"{_READ}{uuid.uuid4()}"), Observation()
        rows = parsed(rows_of(self._spark, self._files, splits, self._settings), self._files)
        bad = F.count_if(malformed(self._files)).alias("malformed")
        rows = accepted(rows.observe(read, F.count(F.lit(1)).alias("rows"), bad), self._files)
        result = transformed(rows, self._transform).observe(written, F.count(F.lit(1)).alias("rows"))
        if not _reads_all(result):
            rows.write.format("noop").mode("overwrite").save()
        rows_out = SparkRows(check_columns(result.schema, options.sink.topic), notes)
        write_frame(result, options, rows_out)
        came = read.get
        return FileCounts(came["rows"], came["malformed"], written.get["rows"])


class PastJvm:
    """Spark's tasks read the files themselves, and write their rows as they are, or as the transform makes them."""

    def __init__(
        self,
        spark: SparkSession,
        files: Files,
        transform: SparkTransform | None,
        topic: str,
        settings: HadoopSettings,
    ) -> None:
        own = None if transform is None else row_transform(files, transform)
        self._copy = FilesCopy(spark, topic, files.form(), settings, of_one_query(), own)

    def write(self, splits: Splits, options: WriteOptions, notes: Notes) -> FileCounts:
        """See `Writing.write`. The counts are from the commit's note, and 0 where it has none."""
        self._copy.write(splits, options, notes)
        last = self._copy.written.last() or {}
        return FileCounts(last.get("read", 0), last.get("dropped", 0), last.get("rows", 0))


def row_transform(files: Files, transform: SparkTransform) -> RowTransform:
    """Return the transform that tasks run. Raises ConfigError for a function that cannot be imported."""
    function = transform.function_past_spark()
    assert function is not None  # just one is set
    return RowTransform(function, name_of(function), on_malformed=files.on_malformed)


def writing_of(
    spark: SparkSession, files: Files, transform: SparkTransform | None, topic: str, settings: HadoopSettings
) -> Writing:
    """Return the writing by `way_of`."""
    if way_of(files, transform).past_jvm:
        return PastJvm(spark, files, transform, topic, settings)
    assert transform is not None  # without one, nothing is left for Spark to do
    return ThroughSpark(spark, files, transform, settings)


def _reads_all(rows: DataFrame) -> bool:
    """Return whether Spark reads the files completely for these rows. It skips rows that are unnecessary due to a
    filter that is always false, an empty join or a limit: then malformed rows would not be noticed, nor digests
    compared."""
    plan = rows._jdf.queryExecution().optimizedPlan().toString()  # noqa: SLF001  # nothing public leads there
    return _READ in plan and "LocalLimit" not in plan
