"""Mode ``pipeline``: Kafka → Kafka, every row copied. Ours, the built-in ones, programs without Spark."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from jobs._bench import java, loop, mirrormaker
from jobs._bench.child import child, environment
from jobs._bench.count import count
from jobs._bench.drain import Run, drain, judge_transactions
from jobs._bench.meter import BROKER, CLIENT, Meter
from jobs._bench.queries import ARROW, BUILTIN, COPY, OURS, TUNED, Flow
from jobs._bench.result import Result, Series, WrongResult, cell
from jobs._bench.session import Bench
from jobs._bench.source import BATCHES, INPUTS, KEYED, METRIC, PARTITIONS, UNIT, inputs
from jobs._bench.turns import Plan, multiple

_PROGRAM_S = 900


@dataclass(frozen=True)
class Contender:
    """A source and a sink, or a program. ``share``: of the rows, for one that would take too long for all of them.

    ``requirement``: of a program that needs an environment of its own. ``java``, ``mirror``: the program is that of
    `jobs._bench.java` or of `jobs._bench.mirrormaker`.
    """

    name: str
    source: str = ""
    sink: str = ""
    sink_options: dict[str, str] = field(default_factory=dict)
    program: str = ""
    requirement: str | None = None
    java: bool = False
    mirror: bool = False
    share: float = 1.0

    def rows(self, full: int) -> int:
        """Of so many rows, those that it copies."""
        return multiple(full * self.share, UNIT)


_BASELINE = "built-in → built-in, tuned"
CONTENDERS = (
    Contender("ours → ours", OURS, OURS),
    Contender("ours, direct: Arrow", ARROW, OURS),
    Contender("ours, direct: copies", COPY, OURS),
    Contender("built-in → ours", BUILTIN, OURS),
    Contender("built-in → built-in", BUILTIN, BUILTIN),
    Contender(_BASELINE, BUILTIN, BUILTIN, TUNED),
    Contender("loop without Spark", program="jobs._bench.loop"),
    Contender("loop in Java", java=True),
    Contender("MirrorMaker 2", mirror=True, share=0.1),
    Contender("QuixStreams", program="jobs._bench.quix", requirement="quixstreams==3.28.1", share=0.1),
)


def measure(bench: Bench, plan: Plan, say: Callable[[str], None]) -> Result:
    """All contenders, for each size. Raises WrongResult when one read or wrote other rows than there are."""
    contenders = [contender for contender in CONTENDERS if contender.name != plan.without]
    interpreters = {c.name: environment(c.requirement) if c.requirement else sys.executable for c in contenders}
    result = Result("pipeline", _BASELINE, METRIC, "from one Kafka topic into another")
    for topic, case, rows in inputs(bench, plan, "pipeline", say, (*INPUTS, KEYED)):
        series = {contender.name: Series(contender.name, case) for contender in contenders}
        for turn, contender in plan.turns(contenders):
            wanted = contender.rows(rows)
            output, run = _run(bench, contender, interpreters[contender.name], topic, wanted)
            arrived = count(bench.bootstrap_servers, output)
            if contender.mirror:
                arrived = min(arrived, wanted)  # it goes on with the rest of the topic until it is killed
            if not run.rows == arrived == wanted:
                raise WrongResult(f"{contender.name} read {run.rows:,} and wrote {arrived:,} of {wanted:,} rows")
            bench.delete_topic(output)
            say(f"pipeline: {contender.name}, {case}, run {turn}: {cell(METRIC, run.rows_per_second)} rows/s")
            if turn > 0:
                series[contender.name].runs.append(asdict(run))
        result.series += series.values()
    return result


def _run(bench: Bench, contender: Contender, interpreter: str, topic: str, rows: int) -> tuple[str, Run]:
    """The topic that it has written to, and its run."""
    if contender.mirror:
        return mirrormaker.copy(bench, topic, PARTITIONS, rows)
    output = f"out-{uuid.uuid4().hex[:8]}"
    bench.cluster.create_topic(output, PARTITIONS)
    if contender.program or contender.java:
        return output, _program(bench, contender, interpreter, topic, output, rows)
    return output, _query(bench, contender, topic, output, rows)


def _query(bench: Bench, contender: Contender, topic: str, output: str, rows: int) -> Run:
    options = contender.sink_options
    flow = Flow(contender.source, contender.sink, topic, output, max_offsets=rows // BATCHES, sink_options=options)
    return drain(bench.spark, bench.bootstrap_servers, flow, bench.roots)


def _program(bench: Bench, contender: Contender, interpreter: str, topic: str, output: str, rows: int) -> Run:
    """One process, with as many rows in a transaction as the others have in a micro-batch."""
    spec = loop.Spec(bench.bootstrap_servers, topic, output, PARTITIONS, rows, rows // BATCHES)
    with (
        java.child(spec) if contender.java else child(contender.program, spec.to_json(), interpreter) as process,
        Meter({CLIENT: process.pid, BROKER: bench.roots[BROKER]}) as meter,
    ):
        done = [loop.Transaction(**fields) for fields in process.result(_PROGRAM_S)]
    return judge_transactions(done, meter)
