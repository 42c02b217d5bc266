"""Mode ``commit``: what it costs to end a micro-batch, by the number of its tasks; each of them writes one row.

Measured by Spark's own events: from the end of the last task to the end of the micro-batch's execution. In between is
the driver's commit, and Spark's way to it and back. The built-in sink has nothing to commit.
"""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql.streaming import StreamingQuery

from bench.queries import BUILTIN_KAFKA, EOS_KAFKA
from bench.result import ModeResult, WrongResult
from bench.session import Bench
from bench.source import PARTITIONS
from bench.turns import BenchPlan, Say, take_turns

TASKS = (1, 4, 16, 64, 256, 1_000)
#: Micro-batches of a run, and how many of the first do not count.
_BATCHES, _LEFT_OUT = 12, 4
#: The same where a micro-batch takes long: what is new in the first ones counts for little.
_MANY_TASKS, _FEW_BATCHES, _FEW_LEFT_OUT = 256, 4, 1
#: With less than this share of the rows it is about whether it runs.
_SHORT, _SHORT_TASKS = 0.1, 2
_SECONDS = 900
#: Events have times in whole milliseconds: of less than ten of them no ratio is given.
_LEAST_MS = 10.0
_NAMES = {EOS_KAFKA: "ours", BUILTIN_KAFKA: "built-in"}


def measure(bench: Bench, plan: BenchPlan, say: Say) -> ModeResult:
    """Both sinks, for each number of tasks. Raises WrongResult when a micro-batch had other tasks than it should."""
    result = ModeResult("commit", _NAMES[BUILTIN_KAFKA], "end_ms_p50", least=_LEAST_MS)
    short = plan.scale < _SHORT
    for tasks in TASKS[:_SHORT_TASKS] if short else TASKS:
        few = short or tasks >= _MANY_TASKS
        counts = (_FEW_BATCHES, _FEW_LEFT_OUT) if few else (_BATCHES, _LEFT_OUT)
        contenders = {name: partial(_run, bench, sink, tasks, *counts) for sink, name in _NAMES.items()}
        case = f"{tasks:,} task{'s' * (tasks != 1)}"
        take_turns(replace(plan, repeats=1, warm_ups=0), result, case, contenders, say)
    return result


def _run(bench: Bench, sink: str, tasks: int, batches: int, left_out: int) -> dict[str, Any]:
    topic = f"out-{uuid.uuid4().hex[:8]}"
    bench.cluster.create_topic(topic, PARTITIONS)
    reader = bench.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", tasks)
    rows = reader.option("numPartitions", tasks).load().selectExpr("cast(value as string) as value")
    with tempfile.TemporaryDirectory(prefix="spark-eos-bench-", ignore_cleanup_errors=True) as checkpoint:
        writer = rows.writeStream.format(sink).option("checkpointLocation", checkpoint).option("topic", topic)
        query = writer.option("kafka.bootstrap.servers", bench.bootstrap_servers).start()
        try:
            _wait_for(query, batches)
        finally:
            query.stop()
    bench.delete_topic(topic)
    end_ms = list(_end_times_ms(bench.events(), str(query.runId), tasks))[left_out:]
    if not end_ms:
        raise WrongResult(f"no micro-batch of {tasks} tasks was seen to end")
    return {
        "rows": tasks * len(end_ms),
        "counted_batches": len(end_ms),
        "end_ms_p50": median(end_ms),
        "end_ms_max": max(end_ms),
    }


def _wait_for(query: StreamingQuery, batches: int) -> None:
    """Until it has done so many. Raises what the query raised, or TimeoutError."""
    deadline = time.monotonic() + _SECONDS
    while len(query.recentProgress) < batches:
        if query.awaitTermination(0.1):  # type: ignore[arg-type]  # parts of a second will do
            raise WrongResult("the query has ended by itself")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{batches} micro-batches did not end within {_SECONDS} s")


def _end_times_ms(events: Path, run_id: str, tasks: int) -> Iterator[float]:
    """For each micro-batch of a run of a query: milliseconds from the end of its last task to that of its execution."""
    execution_of: dict[int, str] = {}
    finished: dict[str, list[int]] = {}
    with events.open(encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line) if line.endswith("\n") else {}
            kind = event.get("Event", "").rpartition(".")[2]
            if kind == "SparkListenerJobStart" and event["Properties"].get("spark.jobGroup.id") == run_id:
                for stage in event["Stage IDs"]:
                    execution_of[stage] = event["Properties"]["spark.sql.execution.id"]
            elif kind == "SparkListenerTaskEnd" and event["Stage ID"] in execution_of:
                finished.setdefault(execution_of[event["Stage ID"]], []).append(event["Task Info"]["Finish Time"])
            elif kind == "SparkListenerSQLExecutionEnd" and len(finished.get(str(event["executionId"]), ())) == tasks:
                yield event["time"] - max(finished[str(event["executionId"])])
