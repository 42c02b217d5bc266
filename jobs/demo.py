"""Proves the main job on real input: kills it at each step of its protocol and counts what a consumer sees at the end.

    make demo                       (python -m jobs.demo)
    make demo ARGS="--sink kafka"   the same treatment for Spark's own sink, to see what one is spared

docs/demo.md says what happens, step by step. Exit code 0: everything expected is there once and in order.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from jobs._demo.check import Findings, examine
from jobs._demo.flights import INPUT_TOPIC, OUTPUT_TOPICS, PARTITIONS, Expected, expected, flights
from jobs._demo.load import Loaded, load
from jobs._demo.run import STRIKES, Job, JobFailed, run_to_end, run_until_point, run_until_rows_appear
from jobs._demo.show import Show, table
from jobs._demo.topics import Reader
from jobs.arguments import count
from spark_eos.devcluster import DevCluster
from spark_eos.devcluster.jars import SPARK_KAFKA, resolve
from spark_eos.errors import EosError

_GROUP = "flight-delays"


@dataclass(frozen=True)
class Plan:
    """What to do. ``rows``: None for all of them."""

    rows: int | None
    kills: int
    source_format: str
    sink_format: str

    @property
    def micro_batches(self) -> int:
        """Enough that every kill comes in mid-stream: a start after a kill gets at most two micro-batches further."""
        return 2 * self.kills + 1 if self.kills < len(STRIKES) else 14


def main(arguments: Sequence[str] | None = None) -> int:
    args = _arguments(arguments)
    plan = Plan(args.rows, args.kills, args.source, args.sink)
    # As Ctrl-C does: by an exception, so that the cluster and the job are stopped on the way out.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="spark-eos-demo-"))
    try:
        code = demonstrate(plan, folder)
    except KeyboardInterrupt:
        print("demo: stopped", file=sys.stderr)
        code = 128 + signal.SIGINT
    if code == 1:
        print(f"demo: logs and checkpoint are in {folder}", file=sys.stderr)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return code


def demonstrate(plan: Plan, folder: Path) -> int:
    """All of it, with what people see; the exit code."""
    began = time.monotonic()
    show = Show()
    try:
        with show:
            loaded, findings = prove(plan, folder, show)
    except (EosError, JobFailed) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    show.console.print(table(loaded, findings, plan.kills, plan.sink_format))
    show.line(f"{time.monotonic() - began:.0f} s. {_verdict(findings, plan.sink_format)}")
    return 0 if findings.ok or plan.sink_format != "eos-kafka" else 1


def prove(plan: Plan, folder: Path, show: Show) -> tuple[Loaded, Findings]:
    """Load, run with kills, check: on a cluster of its own."""
    jars = resolve(SPARK_KAFKA) if "kafka" in (plan.source_format, plan.sink_format) else []
    with DevCluster() as cluster:
        for topic in (INPUT_TOPIC, *OUTPUT_TOPICS):
            cluster.create_topic(topic, partitions=PARTITIONS)
        frame = flights(plan.rows)
        rows = expected(frame)
        show.phase("loading", total=len(frame))
        loaded = load(cluster.bootstrap_servers, frame, on_rows=show.rows)
        show.line(
            f"loaded {loaded.rows:,} flights in {loaded.transactions:,} transactions, "
            f"{loaded.aborted_transactions:,} of which were aborted first"
        )
        job = Job(
            bootstrap_servers=cluster.bootstrap_servers,
            folder=folder,
            group=_GROUP,
            max_offsets_per_trigger=_offsets_in(cluster.bootstrap_servers) // plan.micro_batches + 1,
            source_format=plan.source_format,
            sink_format=plan.sink_format,
            jars=tuple(jars),
        )
        run_with_kills(job, plan, rows, show)
        show.phase("checking")
        group = _GROUP if plan.sink_format == "eos-kafka" else None
        return loaded, examine(cluster.bootstrap_servers, rows, group)


def run_with_kills(job: Job, plan: Plan, rows: dict[int, Expected], show: Show) -> None:
    """Start the job once for each kill, and a last time to the end."""
    show.phase("running", total=len(rows), note=f"0 of {plan.kills} kills")
    visible = 0
    with Reader(job.bootstrap_servers, OUTPUT_TOPICS, committed=True) as reader:

        def watch() -> None:
            nonlocal visible
            visible += len(reader.new_rows())
            show.rows(visible)

        for number, strike in enumerate(islice(cycle(STRIKES), plan.kills), 1):
            if plan.sink_format == "eos-kafka":
                run_until_point(job, number, strike, watch)
                where = f"at {strike.point} ({strike.meaning})"
            else:
                run_until_rows_appear(job, number, watch)
                where = "in mid-batch"
            watch()
            show.rows(visible, note=f"{number} of {plan.kills} kills")
            show.line(f"kill {number} of {plan.kills} {where}: {visible:,} of {len(rows):,} rows were visible")
        run_to_end(job, plan.kills + 1, watch)


def _offsets_in(bootstrap_servers: str) -> int:
    """How many offsets the input takes up: rows, aborted rows and the markers of transactions."""
    with Reader(bootstrap_servers, [INPUT_TOPIC], committed=True) as reader:
        return sum(reader.ends().values())


def _verdict(findings: Findings, sink_format: str) -> str:
    if findings.ok:
        return "Every expected row is there exactly once, in order."
    if sink_format != "eos-kafka":
        return "This is what at-least-once means; run it without --sink to see the difference."
    return "NOT what was promised."


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="jobs.demo", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sink", choices=("eos-kafka", "kafka"), default="eos-kafka", help="the sink to prove")
    parser.add_argument("--source", choices=("eos-kafka", "kafka"), default="eos-kafka", help="the source to use")
    parser.add_argument("--rows", type=count, default=None, metavar="N", help="only the first N flights")
    parser.add_argument("--kills", type=count, default=len(STRIKES), metavar="N", help="how often to kill the job")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
