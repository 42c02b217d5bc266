"""Kills the main job in the middle of micro-batches and counts what a consumer sees, next to Spark's own sink.

    make demo                      (python -m demo) three kills each, in about two minutes
    make demo ARGS=--full          every flight, and a kill at each step of the protocol

1. Input: 60,000 of the 336,776 flights that left New York in 2013 are written to a topic with 4 partitions, in
   transactions of 2,000 rows. Every tenth transaction is written twice: first with ``"aborted": true`` in each row, and
   aborted, then without it, and committed.
2. Job: consume_transform_produce, with conf/consume_transform_produce.yaml, in a process of its own for each sink. It
   keeps the flights that arrived more than 15 minutes late, and routes them by carrier to two topics. Both jobs read
   with ``eos-kafka``.
3. Kills: the driver and its JVM, by SIGKILL; the job is restarted from the same checkpoint.
4. Check: a ``read_committed`` consumer that shares no code with the library reads all input and output. The expected
   rows are computed with pandas from the package's data frame.

docs/demo.md says how to read the result. Exit code 0: eos-kafka's output has every row once and in order.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import pandas as pd

from demo.check import OutputFindings, examine, read_input
from demo.flights import FLIGHT_PARTITIONS, INPUT_TOPIC, OUTPUT_TOPICS, Expected, expected, flights
from demo.load import Loaded, load_flights
from demo.picture import SinkStory, draw
from demo.run import FROM_OUTSIDE, STRIKES, DemoJob, JobFailed, Strike
from demo.show import Show, table
from demo.side import OUR_FORMAT, Side
from demo.topics import Reader
from demo.watch import OutputWatch
from spark_eos.errors import EosError
from spark_eos.tools.devcluster import DevCluster
from spark_eos.tools.devcluster.cache import cache_dir
from spark_eos.tools.devcluster.jars import SPARK_KAFKA, resolve

THEIR_FORMAT = "kafka"
_ROWS = 60_000
_KILLS = 3
_GROUP = "flight-delays"
_PICTURE = Path("build/demo/demo.png")
_POLL_S = 0.02


@dataclass(frozen=True)
class DemoPlan:
    """What to do. ``rows``: None for all of them; ``kills``: of each sink; ``picture``: where it goes."""

    rows: int | None
    kills: int
    source_format: str
    sinks: tuple[str, ...]
    picture: Path

    @property
    def micro_batches(self) -> int:
        """Enough that every kill comes in mid-stream: one is under way at each. One comes before, one after, and four
        more are for kills from outside that come too late, as on a machine that has much else to do."""
        return self.kills + 6

    def strikes(self, sink: str) -> tuple[Strike, ...]:
        return tuple(islice(cycle(STRIKES), self.kills)) if sink == OUR_FORMAT else (FROM_OUTSIDE,) * self.kills


@dataclass(frozen=True)
class Outcome:
    """What came of it; ``findings`` by sink."""

    loaded: Loaded
    findings: Mapping[str, OutputFindings]
    stories: Sequence[SinkStory]
    expected: int

    @property
    def exactly_once(self) -> bool:
        """Whether eos-kafka kept its guarantee; there is none for the other sink."""
        return all(found.ok for sink, found in self.findings.items() if sink == OUR_FORMAT)


def main(arguments: Sequence[str] | None = None) -> int:
    plan = _plan(arguments)
    # As Ctrl-C does: by an exception, so that the cluster and the jobs are stopped on the way out.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="spark-eos-demo-"))
    try:
        code = demonstrate(plan, folder)
    except KeyboardInterrupt:
        print("demo: stopped", file=sys.stderr)
        code = 128 + signal.SIGINT
    if code == 1:
        print(f"demo: logs and checkpoints are in {folder}", file=sys.stderr)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return code


def demonstrate(plan: DemoPlan, folder: Path) -> int:
    """Run the demo and print its output; the exit code."""
    began = time.monotonic()
    show = Show()
    try:
        outcome = prove(plan, folder, show)
    except (EosError, JobFailed) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    show.console.print(table(outcome.loaded, outcome.findings, plan.kills))
    show.line(_verdict(outcome))
    if draw(outcome.stories, outcome.expected, plan.picture):
        show.line(f"The picture of it: {plan.picture}")
    else:
        show.line("No picture was drawn: matplotlib is not installed.")
    show.line(f"It took {time.monotonic() - began:.0f} s.")
    return 0 if outcome.exactly_once else 1


def prove(plan: DemoPlan, folder: Path, show: Show) -> Outcome:
    """Load, run with kills, check: on a cluster of its own."""
    jars: Sequence[Path] = ()
    if THEIR_FORMAT in (plan.source_format, *plan.sinks):
        show.line(f"Jars of Spark's own Kafka connector: fetched from Maven Central once, kept in {cache_dir()}")
        jars = resolve(SPARK_KAFKA)
    show.line("Apache Kafka: a broker of its own, on a free port of this machine")
    with ThreadPoolExecutor(1) as meanwhile:
        reading = meanwhile.submit(_frame, plan.rows)
        with DevCluster() as cluster:
            servers = cluster.bootstrap_servers
            frame, rows = reading.result()
            loaded = _load(cluster, frame, plan, show)
            sides = _run(plan, folder, servers, jars, len(rows), show)
            show.line("A plain read_committed consumer reads input and output; pandas says what must be there:")
            input_ = read_input(servers)
            findings = {
                sink: examine(servers, input_, rows, _GROUP if sink == OUR_FORMAT else None, _prefix(sink))
                for sink in plan.sinks
            }
    stories = [SinkStory(s.sink, s.samples, s.events, findings[s.sink].judgement.doubled) for s in sides]
    return Outcome(loaded, findings, stories, len(rows))


def _frame(rows: int | None) -> tuple[pd.DataFrame, dict[int, Expected]]:
    frame = flights(rows)
    return frame, expected(frame)


def _load(cluster: DevCluster, frame: pd.DataFrame, plan: DemoPlan, show: Show) -> Loaded:
    for topic in (INPUT_TOPIC, *(_prefix(sink) + topic for sink in plan.sinks for topic in OUTPUT_TOPICS)):
        cluster.create_topic(topic, partitions=FLIGHT_PARTITIONS)
    loaded = load_flights(cluster.bootstrap_servers, frame)
    show.line(
        f"Input: {loaded.rows:,} flights from New York in {loaded.transactions:,} transactions; "
        f"{loaded.aborted_rows:,} rows are there a second time, aborted: nobody may see those"
    )
    return loaded


def _run(
    plan: DemoPlan, folder: Path, servers: str, jars: Sequence[Path], expected_rows: int, show: Show
) -> Sequence[Side]:
    """Drive all sides at once, each to its end."""
    jobs = "The job keeps" if len(plan.sinks) == 1 else "Two jobs, alike but for the sink, keep"
    show.line(
        f"{jobs} the {expected_rows:,} flights that came more than 15 minutes late. Killed in mid-batch "
        f"{plan.kills} times (SIGKILL to driver and JVM), started again each time:"
    )
    with ExitStack() as stack:
        sides = [
            stack.enter_context(_side(plan, sink, folder / sink, servers, tuple(jars), expected_rows))
            for sink in plan.sinks
        ]
        stack.enter_context(show.live(sides, expected_rows))
        while not all(side.ended for side in sides):
            for side in sides:
                for event in side.poll():
                    show.event(event, plan.kills)
            show.refresh()
            time.sleep(_POLL_S)
    return sides


@contextmanager
def _side(
    plan: DemoPlan, sink: str, folder: Path, servers: str, jars: tuple[Path, ...], expected_rows: int
) -> Iterator[Side]:
    folder.mkdir()
    job = DemoJob(
        bootstrap_servers=servers,
        folder=folder,
        group=_GROUP,
        max_offsets_per_trigger=_offsets_in(servers) // plan.micro_batches + 1,
        source_format=plan.source_format,
        sink_format=sink,
        topic_prefix=_prefix(sink),
        jars=jars if THEIR_FORMAT in (plan.source_format, sink) else (),
    )
    rows_of_batch = expected_rows // plan.micro_batches
    with (
        OutputWatch(servers, [_prefix(sink) + topic for topic in OUTPUT_TOPICS]) as watch,
        closing(Side(job, plan.strikes(sink), watch, rows_of_batch, time.monotonic())) as side,
    ):
        yield side


def _prefix(sink: str) -> str:
    """Of the sink's output topics: each has its own."""
    return "" if sink == OUR_FORMAT else f"{sink}-"


def _offsets_in(bootstrap_servers: str) -> int:
    """How many offsets the input takes up: rows, aborted rows and the markers of transactions."""
    with Reader(bootstrap_servers, [INPUT_TOPIC], committed=True) as reader:
        return sum(reader.end_offsets().values())


def _verdict(outcome: Outcome) -> str:
    counts = " · ".join(
        f"{sink}: {found.judgement.doubled:,} duplicated, {found.judgement.lost:,} lost"
        for sink, found in outcome.findings.items()
    )
    if not outcome.exactly_once:
        return f"{counts}. This is NOT what was promised."
    if OUR_FORMAT in outcome.findings:
        return f"{counts}. Every expected row is in eos-kafka's output exactly once, in order."
    return f"{counts}. Run it without --sink to see the difference."


def _count(text: str) -> int:
    """A whole number of at least 1, from the command line."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("it takes a whole number of at least 1")
    return number


def _plan(arguments: Sequence[str] | None) -> DemoPlan:
    parser = argparse.ArgumentParser(prog="python -m demo", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--full", action="store_true", help=f"all flights, and {len(STRIKES)} kills: every step")
    parser.add_argument("--sink", choices=(OUR_FORMAT, THEIR_FORMAT, "both"), default="both", help="one sink only")
    parser.add_argument("--source", choices=(OUR_FORMAT, THEIR_FORMAT), default=OUR_FORMAT, help="the source to use")
    parser.add_argument("--rows", type=_count, metavar="N", help=f"only the first N flights (default {_ROWS:,})")
    parser.add_argument("--kills", type=_count, metavar="N", help=f"how many times to kill each job (default {_KILLS})")
    parser.add_argument("--picture", type=Path, default=_PICTURE, metavar="FILE", help="where the PNG goes")
    args = parser.parse_args(arguments)
    return DemoPlan(
        rows=args.rows or (None if args.full else _ROWS),
        kills=args.kills or (len(STRIKES) if args.full else _KILLS),
        source_format=args.source,
        sinks=(OUR_FORMAT, THEIR_FORMAT) if args.sink == "both" else (args.sink,),
        picture=args.picture,
    )


if __name__ == "__main__":
    sys.exit(main())
