"""Mode ``freshness``: how long a row takes from the call that writes it to Kafka until it is in a Delta table."""

from __future__ import annotations

import json
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.streaming import StreamingQuery

from bench import steady
from bench.child import python_child
from bench.duel import Say
from bench.latency import percentiles
from bench.queries import BUILTIN_KAFKA, Flow, copy_to_table, read_topic, write_delta
from bench.result import ModeResult, Series, WrongResult, cell
from bench.session import Bench
from bench.source import PARTITIONS
from bench.steady import SteadySpec
from bench.turns import BenchPlan

RATE, VALUE_BYTES = 10_000, 100
SECONDS, LEAST_SECONDS = 40, 8
#: Of the seconds at the beginning, the share that does not count; the query gets up in it.
LEFT_OUT = 0.25
BASELINE = "built-in"
CASE = f"{RATE:,} rows/s"
_METRIC = "latency_ms_p50"
_LOOK_S = 0.005
_MORE_S = 120


def measure(bench: Bench, plan: BenchPlan, say: Say) -> ModeResult:
    """All contenders. Raises WrongResult when a table has other rows than were written."""
    result = ModeResult("freshness", BASELINE, _METRIC, "until a row is in a Delta table")
    length_s = max(LEAST_SECONDS, round(SECONDS * plan.scale))
    series = {name: Series(name, CASE) for name in CONTENDERS}
    for turn, name in replace(plan, warm_ups=0).turns(list(series)):
        run = _run(bench, name, length_s)
        say(f"freshness: {name}, run {turn}: p50 {cell(_METRIC, run[_METRIC])} ms")
        series[name].runs.append(run)
    result.series += series.values()
    return result


def _run(bench: Bench, name: str, length_s: int) -> dict[str, Any]:
    topic = f"in-{uuid.uuid4().hex[:8]}"
    bench.cluster.create_topic(topic, PARTITIONS)
    spec = SteadySpec(bench.bootstrap_servers, topic, PARTITIONS, RATE, length_s, VALUE_BYTES)
    with tempfile.TemporaryDirectory(prefix="spark-eos-bench-", ignore_cleanup_errors=True) as folder:
        table = Path(folder, "table")
        with FirstSeen(table) as seen:
            query = CONTENDERS[name](bench, topic, str(table), str(Path(folder, "checkpoint")))
            try:
                with python_child(steady.__name__, spec.to_json()) as writer:
                    rows = writer.result(length_s + _MORE_S)
                query.processAllAvailable()
            finally:
                query.stop()
        files = files_of(table, seen.versions)
    bench.delete_topic(topic)
    arrived = sum(len(times) for _, times, _ in files)
    if arrived != rows:
        raise WrongResult(f"{name}: {arrived:,} of {rows:,} rows are in the table")
    return judge(files)


class FirstSeen:
    """Looks for new versions of a table all the time. ``versions``: when each was there, in seconds since the epoch."""

    def __init__(self, table: Path) -> None:
        self.versions: dict[int, float] = {}
        self._log = table / "_delta_log"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        version, ended = 0, False
        while not ended:
            ended = self._ended.wait(_LOOK_S)
            while (self._log / f"{version:020d}.json").exists():
                self.versions[version] = time.time()
                version += 1


File = tuple[float, list[float], int]


def files_of(table: Path, versions: Mapping[int, float]) -> list[File]:
    """Of each file that was added: when its version was seen, its rows' timestamps, both in seconds since the epoch;
    and its bytes."""
    found = []
    for version, seen in versions.items():
        lines = (table / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
        for added in (action["add"] for action in map(json.loads, lines) if "add" in action):
            times = pq.read_table(table / added["path"], columns=["timestamp"])["timestamp"]
            micros = times.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
            found.append((seen, [at / 1e6 for at in micros], added["size"]))
    return found


def judge(files: list[File]) -> dict[str, Any]:
    """Latencies in milliseconds, of the rows that count; the median size of a file in KiB."""
    all_times = [at for _, times, _ in files for at in times]
    first, last = min(all_times), max(all_times)
    begin = first + LEFT_OUT * (last - first)
    counted = [(seen - at) * 1000 for seen, times, _ in files for at in times if at >= begin]
    return {
        "rows": len(all_times),
        "counted_rows": len(counted),
        "commits": len({seen for seen, _, _ in files}),
        "file_kib": median(size for _, _, size in files) / 1024,
        **percentiles(counted),
    }


def _copy(trigger: str, bench: Bench, topic: str, path: str, checkpoint: str) -> StreamingQuery:
    sink = {"format": "delta", "path": path}
    return copy_to_table(
        bench.spark, bench.bootstrap_servers, topic, sink, checkpoint, trigger={"processingTime": trigger}
    )


def _builtin(bench: Bench, topic: str, path: str, checkpoint: str) -> StreamingQuery:
    rows = read_topic(bench.spark, bench.bootstrap_servers, Flow(BUILTIN_KAFKA, "delta", topic))
    return write_delta(rows, path, checkpoint, {"processingTime": "0 seconds"})


#: Each is given the topic, the table's path and the checkpoint.
CONTENDERS: dict[str, Callable[[Bench, str, str, str], StreamingQuery]] = {
    "ours, copy": partial(_copy, "0 seconds"),
    "ours, copy, a commit a second": partial(_copy, "1 second"),
    BASELINE: _builtin,
}
