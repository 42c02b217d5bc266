"""Measures the library against Spark's own Kafka connector, on a broker that it starts and stops itself.

    make bench                                        (python -m bench)
    make bench ARGS="source --rows 0.1 --repeats 1"   a short one

A table goes to stdout, JSON into a folder. docs/benchmark.md has the results.

Contenders run with the defaults of their libraries, in one session, which is as the jobs create it, in turns: each
turn in the reverse order of the one before, after a warm-up that does not count. Every row is counted by a
``read_committed`` consumer, or in the table: one that is missing or there twice ends the benchmark with an error.

- **Ours**: ``spark_eos.copy`` without a transform, or with one that changes the first byte of each value; the job
  ``mirror``, with its offset map.
- **Spark's own** sink, with librdkafka's producer defaults, which ours has as well: ``linger.ms`` 5 (ours sends at
  once), ``batch.size`` 1,000,000.
- **Loops in Java and Go** consume, produce, and commit rows and offsets in one transaction, by Kafka's own clients in
  4 threads, or by franz-go.
- **Flink** with ``EXACTLY_ONCE``, **Kafka Streams** with ``exactly_once_v2``, **MirrorMaker 2**, and **Kafka Connect**
  with Iceberg's sink: exactly once, a slot, thread or task for each partition, commits every second, large fetches.
- Delta has no other contender: none of eight versions of its sink for Flink could be resolved from Maven Central, and
  it has none for Kafka Connect.

- **Throughput** is ``availableNow`` with ``maxOffsetsPerTrigger`` at an eighth of the rows; rows/s and µs/row are
  of the last 6 of 8 micro-batches. *client* is the driver's JVM, in which tasks run, and Spark's Python processes,
  or the other program; *broker* is the broker's JVM. For Flink, Kafka Streams, MirrorMaker 2 and Iceberg's sinks,
  the time counts from a quarter of the rows on until the last one is visible.
- **Latency** is the time from the call that writes a row until a ``read_committed`` reader in the same process has
  it: 100 rows at a time, or 10 every 10 ms; a query in between starts a micro-batch as soon as the last one is
  done. **Freshness** is the time until the row is in a table, at 10,000 rows/s. The time until **the first row**
  begins with a new driver, with ``kill -9`` of one, or with a query in a running session; *CPU s* is the processor
  time until then.
- **A dash** stands for a measurement that was too short: less than 1 s or micro-batches of fewer than 10,000 rows,
  less than 0.1 s of processor time, fewer than 5 micro-batches or 20 rows (p99: 100) for a percentile, and ratios
  of those.

- source: a topic of 4 partitions into Spark's ``noop``: 4 million rows of 100 bytes, 1 million of 1 KiB
- pipeline: topic to topic: 16 million rows of 100 bytes, 4 million of 1 KiB, 16 million of JSON with 100,000 keys;
  all in lz4, too
- registry: 16 million orders through a filter
- ingest, to-delta, from-delta: 1 million rows in 32 files; a quarter of the rows of source; a table of 32 files and
  its changes
- shapes: how time and memory grow with partitions, tasks, records and queries (docs/sizing.md)

Delta runs with ``spark.databricks.delta.snapshotPartitions=2``, as by default it reads the log of a small table by
50 tasks.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import types
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from pyspark.errors import PySparkException

from bench import delta, freshness, ingest, latency, pipeline, registry, shapes, source, start, writes
from bench.arguments import count, share
from bench.machine import circumstances, describe
from bench.result import ModeResult, WrongResult
from bench.session import Bench, bench, broker
from bench.turns import BenchPlan
from jobs.runner.lines import say
from jobs.runner.query import failure_text
from spark_eos.errors import EosError

MODES: dict[str, Callable[[Bench, BenchPlan, Callable[[str], None]], ModeResult]] = {
    "source": source.measure,
    "pipeline": pipeline.measure,
    "latency": latency.measure,
    "start": start.measure,
    "writes": writes.measure,
    "shapes": shapes.measure,
    "registry": registry.measure,
    "ingest": ingest.measure,
    "to-delta": delta.measure_into,
    "from-delta": delta.measure_from,
    "freshness": freshness.measure,
}
#: Those whose session knows Delta.
_WITH_DELTA = {"to-delta", "from-delta", "freshness"}


def main(arguments: Sequence[str] | None = None) -> int:
    args = _arguments(arguments)
    plan = BenchPlan(args.rows, args.repeats, args.warm_ups, args.only, args.without, args.case)
    _catch_signals()
    try:
        with broker() as cluster:
            for with_delta, modes in groupby(args.modes or MODES, _WITH_DELTA.__contains__):
                with bench(cluster, delta=with_delta) as on:
                    _catch_signals()  # Spark has put a handler of its own in place
                    for mode in modes:
                        before = circumstances(on.spark)
                        try:
                            result = MODES[mode](on, plan, say)
                        except PySparkException as error:  # it has no text without the JVM, which is stopped below
                            raise WrongResult(failure_text(error)) from error
                        if result.series:
                            report(result, before, args.out)
                        else:
                            say(f"{mode}: no case is named {' or '.join(args.case)}; they are named as in the tables")
    except (EosError, WrongResult, ChildProcessError, TimeoutError) as error:
        say(f"benchmark: {error}")
        return 1
    except KeyboardInterrupt:
        say("benchmark: stopped")
        return 128 + signal.SIGINT
    return 0


def _catch_signals() -> None:
    """SIGINT (Ctrl-C) and SIGTERM become an exception, so that broker and Spark are stopped on the way out."""

    def interrupt(number: int, frame: types.FrameType | None) -> None:
        logging.disable()  # py4j would log the stack of whatever call is interrupted
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)


def report(result: ModeResult, before: dict[str, object], folder: Path) -> None:
    """The table to stdout, everything into a file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{result.mode}.json"
    file.write_text(json.dumps({"circumstances": before, **result.to_json()}, indent=2) + "\n")
    print(f"{result.mode}: {result.caption()}", *describe(before), "", result.table(), "", sep="\n", flush=True)
    say(f"{result.mode}: {file}")


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("modes", nargs="*", type=_mode, metavar="MODE", help=f"any of: {', '.join(MODES)}; all")
    parser.add_argument("--rows", type=share, default=1.0, metavar="X", help="share of the rows, such as 0.1")
    parser.add_argument("--repeats", type=count, default=3, metavar="N", help="runs of each that count")
    parser.add_argument("--warm-ups", type=int, default=1, metavar="N", help="runs of each before these")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a contender to run, if not all")
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="NAME",
        help="a contender to leave out, where there are more than two",
    )
    parser.add_argument(
        "--case", action="append", default=[], metavar="NAME", help="the only rows to copy or to read, such as '100 B'"
    )
    parser.add_argument("--out", type=Path, default=Path("build/bench"), metavar="FOLDER", help="where the JSON goes")
    return parser.parse_args(arguments)


def _mode(text: str) -> str:
    if text not in MODES:
        raise argparse.ArgumentTypeError(f"'{text}' is none of: {', '.join(MODES)}")
    return text


if __name__ == "__main__":
    sys.exit(main())
