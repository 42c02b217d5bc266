"""Mode ``writes``: a batch job's output, ``df.write``, from files into a topic. Ours, and Spark's own sink."""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bench.drain import Run, Stretch, measured
from bench.duel import duel, into_topic
from bench.meter import Meter
from bench.queries import BUILTIN_KAFKA, EOS_KAFKA
from bench.result import ModeResult
from bench.session import Bench
from bench.source import METRIC, PARTITIONS, WORKLOADS
from bench.turns import BenchPlan, Say


def measure(bench: Bench, plan: BenchPlan, say: Say) -> ModeResult:
    """Both contenders, for each size. Raises WrongResult when one wrote other rows than there are."""
    result = ModeResult("writes", BUILTIN_KAFKA, METRIC)
    for value_bytes, full in ((one.value_bytes, one.rows) for one in WORKLOADS):
        rows = plan.rows(full, PARTITIONS)
        with tempfile.TemporaryDirectory(prefix="spark-eos-bench-") as folder:
            files = str(Path(folder, "input"))
            say(f"writes: {rows:,} rows of {value_bytes} bytes into files")
            rows_with_keys(bench, rows, value_bytes, PARTITIONS).write.parquet(files)
            contenders = {name: partial(_write, bench, name, files, rows) for name in (EOS_KAFKA, BUILTIN_KAFKA)}
            duel(plan, result, f"{value_bytes} B", rows, contenders, say)
    return result


def rows_with_keys(bench: Bench, rows: int, value_bytes: int, files: int) -> DataFrame:
    """Keys of 20 digits, and values that a file's encoding does not make small; so many files, when they are saved."""
    numbers = bench.spark.range(0, rows, numPartitions=files)
    digests = [F.sha2(F.concat(F.col("id").cast("string"), F.lit(str(n))), 256) for n in range(-(-value_bytes // 64))]
    key = F.lpad(F.col("id").cast("string"), 20, "0").cast("binary").alias("key")
    return numbers.select(key, F.substring(F.concat(*digests), 1, value_bytes).cast("binary").alias("value"))


def _write(bench: Bench, name: str, files: str, rows: int) -> tuple[Run, int]:
    """The whole of one write counts, from its call to its return."""

    def write(output: str) -> Run:
        writer = bench.spark.read.parquet(files).write.format(name).mode("append")
        with Meter(bench.roots) as meter:
            began = time.time()
            writer.option("kafka.bootstrap.servers", bench.bootstrap_servers).option("topic", output).save()
            whole = Stretch(1, rows, began, time.time())
        return measured(rows, 1, whole, meter)

    return into_topic(bench, write)
