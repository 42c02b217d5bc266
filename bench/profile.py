"""Where the time goes: flame graphs and processor time by kind of thread, for large and for small micro-batches.

    make profile                              (python -m bench.profile)
    make profile ARGS="--rows 0.25"           a short one
    make profile ARGS="--case copies"         one case

Our source into our sink, with small and with large values, and a copy, on a broker and a Spark session of its
own, after runs that let the JVM compile what it will. docs/benchmark.md shows what came of it, measured on 2 cores
between 2026-11-21 and 2026-11-23. Linux only; see `bench.recorders` for what it needs.

Tried without an effect beyond the noise, a tenth of the client's processor time: ``spark.buffer.size`` of 1 MiB,
``arrow.maxBytesPerBatch`` at its maximum, ``arrow.maxRecordsPerBatch`` of 1,000 and 2,500, workers that keep freed
memory, and memory for fetched bytes that is not cleared.
"""

from __future__ import annotations

import argparse
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from bench.arguments import share
from bench.drain import drain
from bench.flames import draw_flames
from bench.latency import SECONDS, probed
from bench.load import fill
from bench.queries import ARROW, COPY, EOS_KAFKA, Flow
from bench.recorders import Recording, missing, recording
from bench.result import cell
from bench.session import Bench, bench, broker
from bench.source import BATCHES, METRIC, PARTITIONS, UNIT, WORKLOADS
from bench.turns import BenchPlan
from jobs.runner.query import say

WARM_UPS = 3
#: The cases with large micro-batches: the source, and the bytes of a value.
LARGE = {
    "large": (EOS_KAFKA, 100),
    "large-values": (EOS_KAFKA, 1024),
    "copies": (COPY, 100),
    "copies-large-values": (COPY, 1024),
    "arrow-large-values": (ARROW, 1024),
}
SMALL = "small"
_TITLES = {
    "large": "large micro-batches, values of 100 B",
    "large-values": "large micro-batches, values of 1 KiB",
    "copies": "copies, values of 100 B",
    "copies-large-values": "copies, values of 1 KiB",
    "arrow-large-values": "a transform of Arrow, values of 1 KiB",
    SMALL: "small micro-batches",
}
#: Rounds of 10 rows, every 10 ms.
ROUNDS = 6_000
_BURST, _PERIOD_S = 10, 0.01
_LOOK_S = 0.5
_LEAST_US = 0.005


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=share, default=1.0, metavar="X", help="share of the rows, such as 0.1")
    parser.add_argument("--out", type=Path, default=Path("build/profile"), metavar="FOLDER", help="where pictures go")
    parser.add_argument("--case", choices=_TITLES, action="append", help="only this one; may be repeated")
    args = parser.parse_args(arguments)
    cases = args.case or list(_TITLES)
    lacking = missing()
    if lacking:
        say(f"profile: {lacking}")
        return 1
    args.out.mkdir(parents=True, exist_ok=True)
    plan = BenchPlan(args.rows, 1, WARM_UPS)
    with broker() as cluster, bench(cluster) as on:
        for case, (source, value_bytes) in LARGE.items():
            if case not in cases:
                continue
            rows = plan.rows(next(one.rows for one in WORKLOADS if one.value_bytes == value_bytes), UNIT)
            show(large(on, rows, source, value_bytes), case, rows, args.out)
        if SMALL in cases:
            rounds = max(1, round(ROUNDS * args.rows))
            show(small(on, rounds), SMALL, rounds * _BURST, args.out)
    return 0


def large(on: Bench, rows: int, source: str, value_bytes: int) -> Recording:
    """The pipeline of the benchmark, once more after its warm-ups."""
    topic = f"in-{uuid.uuid4().hex[:8]}"
    fill(on.cluster, topic, rows, value_bytes, PARTITIONS)

    def run() -> None:
        output = f"out-{uuid.uuid4().hex[:8]}"
        on.cluster.create_topic(output, PARTITIONS)
        flow = Flow(source, EOS_KAFKA, topic, output, max_offsets=rows // BATCHES)
        speed = drain(on.spark, on.bootstrap_servers, flow, on.roots).rows_per_second
        say(f"profile: values of {value_bytes} B, {cell(METRIC, speed)} rows/s")
        on.delete_topic(output)

    for _ in range(WARM_UPS):
        run()
    with recording(on.roots) as made:
        run()
    return made


def small(on: Bench, rounds: int) -> Recording:
    """1,000 rows/s that arrive steadily, a micro-batch right after the other."""
    with probed(on, EOS_KAFKA, EOS_KAFKA, 2 * rounds, _BURST, _PERIOD_S) as (query, process):
        while sum(entry["numInputRows"] for entry in query.recentProgress) < rounds * _BURST:
            time.sleep(_LOOK_S)
        with recording(on.roots) as made:
            process.result(SECONDS)
    return made


def show(made: Recording, case: str, rows: int, folder: Path) -> None:
    """The pictures, and a table of the threads that took most."""
    draw_flames(made.python, f"Python, {_TITLES[case]}", folder / f"{case}-python.png")
    draw_flames(made.jvm, f"JVM, {_TITLES[case]}", folder / f"{case}-jvm.png")
    print(f"{case}: µs of a core for each of {rows:,} rows")
    for (group, kind), milliseconds in made.threads.most_common():
        if milliseconds * 1000 / rows >= _LEAST_US:
            print(f"  {group:8}{kind:30}{milliseconds * 1000 / rows:8.2f}")
    say(f"profile: {folder / f'{case}-python.png'}, {folder / f'{case}-jvm.png'}")


if __name__ == "__main__":
    sys.exit(main())
