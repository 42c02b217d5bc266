"""Mode ``freshness``: how long a row takes from the call that writes it to Kafka until it is in a table."""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.streaming import StreamingQuery

from bench import lake, steady
from bench.child import Child, python_child, started
from bench.into_iceberg import INTO_ICEBERG
from bench.lake import table_in
from bench.latency import percentiles
from bench.queries import AT_ONCE, BUILTIN_KAFKA, Flow, copy_to_table, read_topic, write_delta
from bench.result import ModeResult, WrongResult
from bench.session import Bench
from bench.source import PARTITIONS
from bench.steady import SteadySpec
from bench.turns import BenchPlan, Say, take_turns

RATE, VALUE_BYTES = 10_000, 100
SECONDS, LEAST_SECONDS = 40, 8
#: Of the seconds at the beginning, the share that does not count. Rows of a second come before: when they are in the
#: table, the contender is up.
LEFT_OUT = 0.25
BASELINE = "built-in"
CASE = f"{RATE:,} rows/s"
_METRIC = "latency_ms_p50"
_POLL_S = 0.05
_MORE_S = 120


def measure(bench: Bench, plan: BenchPlan, say: Say) -> ModeResult:
    """All contenders. Raises WrongResult when a table has other rows than were written."""
    result = ModeResult("freshness", BASELINE, _METRIC)
    length_s = max(LEAST_SECONDS, round(SECONDS * plan.scale))
    contenders = {name: partial(_run, bench, name, length_s) for name in CONTENDERS}
    take_turns(replace(plan, warm_ups=0), result, CASE, contenders, say)
    return result


def _run(bench: Bench, name: str, length_s: int) -> dict[str, Any]:
    topic = f"in-{uuid.uuid4().hex[:8]}"
    bench.cluster.create_topic(topic, PARTITIONS)
    first, spec = (
        SteadySpec(bench.bootstrap_servers, topic, PARTITIONS, RATE, seconds, VALUE_BYTES) for seconds in (1, length_s)
    )
    contender = CONTENDERS[name]
    with tempfile.TemporaryDirectory(prefix="spark-eos-bench-", ignore_cleanup_errors=True) as folder:
        table = table_in(Path(folder))
        with contender.run(bench, topic, Path(folder)) as until_done:
            rows = _written(first)
            until_done(rows)
            begin = time.time()
            rows += _written(spec)
            until_done(rows)
        files = [(at, times_in(file), size) for at, file, size in contender.added(table)]
    bench.delete_topic(topic)
    arrived = sum(len(times) for _, times, _ in files)
    if arrived != rows:
        raise WrongResult(f"{name}: {arrived:,} of {rows:,} rows are in the table")
    return judge(files, begin)


def _written(spec: SteadySpec) -> int:
    with python_child(steady.__name__, spec.to_json()) as writer:
        return int(writer.result(spec.length_s + _MORE_S))


def added_to_delta(table: Path) -> Iterator[tuple[float, str, int]]:
    """Of each file that was added: when its version was there, in seconds since the epoch, its path, its bytes."""
    for version in sorted((table / "_delta_log").glob("?" * 20 + ".json")):
        for action in map(json.loads, version.read_text().splitlines()):
            if "add" in action:
                yield version.stat().st_mtime, str(table / action["add"]["path"]), action["add"]["size"]


def times_in(file: str) -> list[float]:
    """Its rows' timestamps, in seconds since the epoch."""
    times = pq.ParquetFile(file).read(columns=["timestamp"])["timestamp"]
    return [at / 1e6 for at in times.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()]


#: When a file's version was there, its rows' timestamps, both in seconds since the epoch; and its bytes.
File = tuple[float, list[float], int]


def judge(files: list[File], begin: float) -> dict[str, Any]:
    """Latencies in milliseconds, of the rows that count; the median size of a file in KiB. ``begin``: what was written
    before is not of the run."""
    of_run = [(seen, times, size) for seen, times, size in files if max(times) >= begin]
    all_times = [at for _, times, _ in of_run for at in times]
    first, last = min(all_times), max(all_times)
    since = first + LEFT_OUT * (last - first)
    counted = [(seen - at) * 1000 for seen, times, _ in of_run for at in times if at >= since]
    return {
        "rows": len(all_times),
        "counted_rows": len(counted),
        "commits": len({seen for seen, _, _ in of_run}),
        "file_kib": median(size for _, _, size in of_run) / 1024,
        **percentiles(counted),
    }


#: Waits until so many rows are in the table.
UntilDone = Callable[[int], None]


@dataclass(frozen=True)
class Contender:
    """``run``: is given the topic and an empty folder, in which its table is `table_in`; what it does ends with the
    block. ``added``: the files of such a table."""

    run: Callable[[Bench, str, Path], AbstractContextManager[UntilDone]]
    added: Callable[[Path], Iterator[tuple[float, str, int]]] = added_to_delta


@contextmanager
def _query(
    start: Callable[[Bench, str, Path], StreamingQuery], bench: Bench, topic: str, folder: Path
) -> Iterator[UntilDone]:
    query = start(bench, topic, folder)
    try:
        yield lambda _: query.processAllAvailable()
    finally:
        query.stop()


def _copy(kind: str, trigger: str, bench: Bench, topic: str, folder: Path) -> StreamingQuery:
    sink, checkpoint = lake.sink_in(folder, kind), str(folder / "checkpoint")
    return copy_to_table(
        bench.spark, bench.bootstrap_servers, topic, sink, checkpoint, trigger={"processingTime": trigger}
    )


def _builtin(bench: Bench, topic: str, folder: Path) -> StreamingQuery:
    rows = read_topic(bench.spark, bench.bootstrap_servers, Flow(BUILTIN_KAFKA, "delta", topic))
    return write_delta(rows, str(table_in(folder)), str(folder / "checkpoint"), AT_ONCE)


@contextmanager
def _program(name: str, bench: Bench, topic: str, folder: Path) -> Iterator[UntilDone]:
    """One that says nothing, and is killed."""
    with started(name, INTO_ICEBERG[name](bench, topic, folder)) as process:
        yield partial(_until_there, name, process, table_in(folder))


def _until_there(name: str, process: Child, table: Path, rows: int) -> None:
    deadline = time.monotonic() + _MORE_S
    while lake.rows_told(table) < rows:
        if process.ended or time.monotonic() > deadline:
            raise ChildProcessError(f"{name} has written {lake.rows_told(table):,} of {rows:,} rows")
        time.sleep(_POLL_S)


CONTENDERS: dict[str, Contender] = {
    "ours, copy": Contender(partial(_query, partial(_copy, "delta", "0 seconds"))),
    "ours, copy, a commit a second": Contender(partial(_query, partial(_copy, "delta", "1 second"))),
    BASELINE: Contender(partial(_query, _builtin)),
    "ours, copy: Iceberg": Contender(partial(_query, partial(_copy, "iceberg", "0 seconds")), lake.added),
    **{name: Contender(partial(_program, name), lake.added) for name in INTO_ICEBERG},
}
