"""Mode ``ingest``: the files of a folder into a topic, by the job ingest_files, and by Spark's file source and sink."""

from __future__ import annotations

import tempfile
import time
import uuid
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from bench.drain import Run, judge_transactions, run_out
from bench.duel import BUILTIN_NAME, FILES, FILES_AT_ONCE, OURS_NAME, duel, into_topic
from bench.loop import TimedTransaction
from bench.meter import CLIENT, Meter
from bench.queries import BUILTIN_KAFKA, TUNED
from bench.result import ModeResult
from bench.session import Bench
from bench.source import METRIC
from bench.turns import BenchPlan, Say
from jobs.files.ingest import FolderIngest
from jobs.ingest_files import IngestFiles
from jobs.runner.job import JobContext
from jobs.runner.lines import Batch, BatchLines
from jobs.runner.query import Stop
from jobs.runner.transform import transformed
from jobs.runner.transforms import SparkTransform

ROWS = 1_000_000
FileFormat = Literal["json", "parquet"]
_VALUE = "to_json(struct(id, customer, total, note)) AS value"


@dataclass(frozen=True)
class IngestCase:
    """What is in the files, and what is done with it. ``columns``: of the files; ``transform``: SQL; None for rows that
    go on as they are, of which Spark's own source reads ``own_format``; ``duckdb``: what ours has DuckDB do instead."""

    format: FileFormat
    columns: str
    transform: str | None
    own_format: str
    duckdb: str | None = None

    @property
    def is_parsed_json(self) -> bool:
        """Whether ours has Spark parse lines."""
        return self.format == "json" and self.transform is not None and self.duckdb is None


_SCHEMA = "id STRING, customer BIGINT, total DOUBLE, note STRING"
_SQL = f"SELECT id AS key, {_VALUE} FROM input"
_DUCKDB = "SELECT id AS key, to_json(struct_pack(id, customer, total, note)) AS value FROM {}"
_FIELDS = """(SELECT value ->> '$.id' AS id, (value ->> '$.customer')::BIGINT AS customer,
    (value ->> '$.total')::DOUBLE AS total, value ->> '$.note' AS note FROM input)"""
INGEST_CASES = {
    "JSON lines, parsed": IngestCase("json", _SCHEMA, _SQL, "json"),
    "JSON lines, as they are": IngestCase("json", "value STRING", None, "text"),
    "JSON lines, by DuckDB": IngestCase("json", _SCHEMA, _SQL, "json", _DUCKDB.format(_FIELDS)),
    "Parquet, transformed": IngestCase("parquet", _SCHEMA, _SQL, "parquet"),
    "Parquet, by DuckDB": IngestCase("parquet", _SCHEMA, _SQL, "parquet", _DUCKDB.format("input")),
    "Parquet, as it is": IngestCase("parquet", "key STRING, value STRING", None, "parquet"),
}


def measure(bench: Bench, plan: BenchPlan, say: Say) -> ModeResult:
    """Both contenders, for each format. Raises WrongResult when one wrote other rows than there are."""
    result = ModeResult("ingest", BUILTIN_NAME, METRIC)
    rows = plan.rows(ROWS, FILES)
    for name, case in INGEST_CASES.items():
        if not plan.has(name):
            continue
        with tempfile.TemporaryDirectory(prefix="spark-eos-bench-") as folder:
            files = str(Path(folder, "input"))
            say(f"ingest: {rows:,} rows into {FILES} files, {name}")
            _rows(bench, rows, case).write.format(case.format).save(files)
            contenders = {
                OURS_NAME: partial(into_topic, bench, partial(_ours, bench, files, case)),
                BUILTIN_NAME: partial(into_topic, bench, partial(_builtin, bench, files, case)),
            }
            duel(plan, result, name, rows, contenders, say)
    return result


def _rows(bench: Bench, rows: int, case: IngestCase) -> DataFrame:
    """About 100 bytes each as JSON."""
    number = F.col("id")
    made = bench.spark.range(0, rows, numPartitions=FILES).select(
        F.lpad(number.cast("string"), 12, "0").alias("id"),
        (number * 7919 % 100_003).alias("customer"),
        (F.col("customer") / 100).alias("total"),
        F.substring(F.sha2(F.col("id").cast("string"), 256), 1, 32).alias("note"),
    )
    return made.selectExpr("id AS key", _VALUE) if case.columns.startswith("key") else made


class _Noted(BatchLines):
    """Notes how many rows each micro-batch had, instead of saying so."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []

    def add(self, batch: Batch) -> None:
        self.rows.append(batch.rows_in)

    def idle(self) -> None:
        """Nothing is said of it."""


def _ours(bench: Bench, files: str, case: IngestCase, output: str) -> Run:
    """A micro-batch counts from the look at the folder on: its files are read for their rows, and for their digests
    before, unless they were while the micro-batch before it was written. That, and the commits, are this process's."""
    transform = None if case.transform is None else {"sql": case.transform}
    if case.duckdb is not None:
        transform = {"sql": case.duckdb, "engine": "duckdb"}
    config = IngestFiles.model_validate(
        {
            "kafka": {"bootstrap.servers": bench.bootstrap_servers},
            "name": f"bench-{uuid.uuid4().hex[:8]}",
            "files": {
                "path": files,
                "format": case.format,
                "pattern": f"*.{case.format}",
                "schema": case.columns if case.is_parsed_json else None,
                "unchangedFor": "0 seconds",
                "maxFilesPerTrigger": FILES_AT_ONCE,
            },
            "transform": transform,
            "sink": {"topic": output},
            "trigger": "availableNow",
        }
    )
    noted, done = _Noted(), list[TimedTransaction]()
    with Meter(bench.roots, own=CLIENT) as meter:
        context = JobContext(bench.spark, Stop(), noted)
        ingest = FolderIngest(context, config)
        while not ingest.finished:
            began = time.time()
            ingest.take()
            if len(noted.rows) > len(done):
                done.append(TimedTransaction(began, time.time(), noted.rows[-1]))
    return judge_transactions(done, meter)


def _builtin(bench: Bench, files: str, case: IngestCase, output: str) -> Run:
    def start(checkpoint: str) -> StreamingQuery:
        reader = bench.spark.readStream.format(case.own_format).schema(case.columns)
        reader = reader.option("maxFilesPerTrigger", FILES_AT_ONCE)
        if case.own_format == "json":
            reader = reader.option("mode", "FAILFAST")  # as ours, where a row does not parse
        rows = reader.load(files)
        if case.transform is not None:
            rows = transformed(rows, SparkTransform(sql=case.transform))
        writer = rows.writeStream.format(BUILTIN_KAFKA).options(**TUNED)
        writer = writer.option("kafka.bootstrap.servers", bench.bootstrap_servers).option("topic", output)
        return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()

    return run_out(start, bench.roots)
