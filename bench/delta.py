"""Modes ``to-delta`` and ``from-delta``: topics into a Delta table (and one of Iceberg) and back, by `spark_eos.copy`,
by Spark's own Kafka connector, and into Iceberg by others' sinks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pyspark.sql.streaming import StreamingQuery

import spark_eos
from bench import lake, visible
from bench.drain import Run, measured, run_out
from bench.duel import BUILTIN_NAME, FILES, FILES_AT_ONCE, duel, into_topic
from bench.into_iceberg import INTO_ICEBERG
from bench.queries import BUILTIN_KAFKA, TUNED, Flow, copy_to_table, read_topic, write_delta
from bench.result import ModeResult
from bench.session import Bench
from bench.source import BATCHES, METRIC, inputs
from bench.turns import BenchPlan, Say
from bench.writes import rows_with_keys

#: Into a table, what the source has, with one column more than the others select; from a table, its columns.
COPY_NAME = "ours, copy"
ICEBERG_NAME = "ours, copy: Iceberg"
#: Of the rows of other modes: a table is on the same disk.
SHARE = 0.25


@dataclass(frozen=True)
class FromCase:
    """``value_bytes``: of a value; ``rows``: of the topic; ``changes``: whether the change data feed is read;
    ``updates``: whether it is that of updates, of which each is two rows, and not the table's rows as inserts."""

    value_bytes: int
    rows: int
    changes: bool = False
    updates: bool = False


#: From the table.
DELTA_CASES = {
    "100 B": FromCase(100, 1_000_000),
    "1024 B": FromCase(1024, 250_000),
    "100 B, changes": FromCase(100, 1_000_000, changes=True),
    "100 B, updates": FromCase(100, 1_000_000, changes=True, updates=True),
}
_INTO = ("key", "value", "topic", "partition", "offset", "timestamp")
_AT_ONCE = {"maxFilesPerTrigger": str(FILES_AT_ONCE)}


def measure_into(bench: Bench, plan: BenchPlan, say: Say) -> ModeResult:
    """From topics into a table. Raises WrongResult when one read or wrote other rows than there are."""
    found = ModeResult("to-delta", BUILTIN_NAME, METRIC)
    for topic, one, rows in inputs(bench, replace(plan, scale=plan.scale * SHARE), "to-delta", say):
        case = str(one)
        contenders = {name: partial(_into_table, bench, name, topic, rows) for name in _INTO_TABLE}
        contenders |= {name: partial(_into_iceberg, bench, name, topic, rows) for name in INTO_ICEBERG}
        duel(plan, found, case, rows, contenders, say)
    return found


def _into_iceberg(bench: Bench, name: str, topic: str, rows: int) -> tuple[Run, int]:
    """By a program that goes on until it is killed."""
    with tempfile.TemporaryDirectory(prefix="spark-eos-bench-", ignore_cleanup_errors=True) as folder:
        table = lake.table_in(Path(folder))
        command = INTO_ICEBERG[name](bench, topic, Path(folder))
        counts = partial(lake.rows_told, table), partial(lake.rows_read, table)
        counted, meter = visible.watched(name, command, bench, rows, *counts)
        return measured(rows, 1, counted, meter), lake.rows_read(table)


def _into_table(bench: Bench, name: str, topic: str, rows: int) -> tuple[Run, int]:
    with tempfile.TemporaryDirectory(prefix="spark-eos-bench-") as made:
        folder = Path(made)
        run = run_out(partial(_INTO_TABLE[name], bench, topic, rows // BATCHES, folder), bench.roots)
        if name == ICEBERG_NAME:
            return run, lake.rows_read(lake.table_in(folder))
        return run, bench.spark.read.format("delta").load(str(lake.table_in(folder))).count()


def _builtin_into(bench: Bench, topic: str, at_once: int, folder: Path, checkpoint: str) -> StreamingQuery:
    source = read_topic(bench.spark, bench.bootstrap_servers, Flow(BUILTIN_KAFKA, "delta", topic, None, at_once))
    return write_delta(source.select(*_INTO), str(lake.table_in(folder)), checkpoint)


def _copy_into(kind: str, bench: Bench, topic: str, at_once: int, folder: Path, checkpoint: str) -> StreamingQuery:
    sink = lake.sink_in(folder, kind)
    return copy_to_table(bench.spark, bench.bootstrap_servers, topic, sink, checkpoint, max_offsets=at_once)


_INTO_TABLE: dict[str, Callable[[Bench, str, int, Path, str], StreamingQuery]] = {
    COPY_NAME: partial(_copy_into, "delta"),
    ICEBERG_NAME: partial(_copy_into, "iceberg"),
    BUILTIN_NAME: _builtin_into,
}


def measure_from(bench: Bench, plan: BenchPlan, say: Say) -> ModeResult:
    """From a table into a topic. Raises WrongResult when one read or wrote other rows than there are."""
    found = ModeResult("from-delta", BUILTIN_NAME, METRIC)
    for name, case in DELTA_CASES.items():
        if not plan.has(name):
            continue
        rows = plan.rows(case.rows, 2 * FILES)
        with tempfile.TemporaryDirectory(prefix="spark-eos-bench-") as folder:
            path = str(Path(folder, "table"))
            say(f"from-delta: {rows:,} rows from a table of {FILES} files, {name}")
            files = _fill(bench, path, case, rows)
            starts = {
                COPY_NAME: (_copy_from, rows // files),
                BUILTIN_NAME: (_builtin_from, 1),
            }
            contenders = {
                who: partial(into_topic, bench, partial(_run, bench, partial(start, bench, path, case), rows_each))
                for who, (start, rows_each) in starts.items()
            }
            duel(plan, found, name, rows, contenders, say)
    return found


def _fill(bench: Bench, path: str, case: FromCase, rows: int) -> int:
    """A table from which so many rows come, and how many files they are in."""
    keys = rows // 2 if case.updates else rows
    writer = rows_with_keys(bench, keys, case.value_bytes, FILES).write.format("delta")
    writer.option("delta.enableChangeDataFeed", str(case.changes).lower()).save(path)
    if not case.updates:
        return FILES
    for number in range(BATCHES):
        low, high = (f"binary(lpad('{keys * n // BATCHES}', 20, '0'))" for n in (number, number + 1))
        turned = "concat(substring(value, 2), substring(value, 1, 1))"
        bench.spark.sql(f"UPDATE delta.`{path}` SET value = {turned} WHERE key >= {low} AND key < {high}")
    return len(list(Path(path, "_change_data").glob("*.parquet")))


def _run(bench: Bench, start: Callable[[str, str], StreamingQuery], rows_each: int, output: str) -> Run:
    return run_out(partial(start, output), bench.roots, rows_each=rows_each)


def _reads(path: str, case: FromCase) -> dict[str, object]:
    begins = {"startingVersion": 1} if case.updates else {}
    return {"path": path, "readChangeFeed": case.changes, **begins, **_AT_ONCE}


def _copy_from(bench: Bench, path: str, case: FromCase, output: str, checkpoint: str) -> StreamingQuery:
    sink = {"kafka.bootstrap.servers": bench.bootstrap_servers, "topic": output}
    return spark_eos.copy(
        bench.spark,
        source={"format": "delta", **_reads(path, case)},
        sink=sink,
        checkpoint=checkpoint,
        trigger={"availableNow": True},
    )


def _builtin_from(bench: Bench, path: str, case: FromCase, output: str, checkpoint: str) -> StreamingQuery:
    """Changes go to the topic as they come, whatever their order, without headers."""
    reads = {name: str(value).lower() for name, value in _reads(path, case).items() if name != "path"}
    rows = bench.spark.readStream.format("delta").options(**reads).load(path).select("key", "value")
    writer = rows.writeStream.format(BUILTIN_KAFKA).options(**TUNED).option("topic", output)
    writer = writer.option("kafka.bootstrap.servers", bench.bootstrap_servers)
    return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
