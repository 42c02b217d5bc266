"""Mode ``pipeline``: Kafka → Kafka, every row copied. Ours, the built-in ones, programs without Spark."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bench import loop, other_loops
from bench.child import Child, interpreter_with, python_child
from bench.copier import FLINK, STREAMS, Copier
from bench.count import committed_rows
from bench.drain import Run, drain, judge_transactions
from bench.duel import metrics
from bench.meter import BROKER, CLIENT, Meter
from bench.mirrormaker import copy_by_mirrormaker
from bench.queries import ARROW, BUILTIN_KAFKA, COPY, EOS_KAFKA, MIRROR, TUNED, Flow
from bench.result import ModeResult
from bench.session import Bench
from bench.source import BATCHES, METRIC, PARTITIONS, UNIT, Workload, inputs
from bench.turns import BenchPlan, Say, multiple, take_turns

_PROGRAM_S = 900
_KEYS = 100_000
#: So large that a micro-batch of the fastest takes most of a second, as long as Flink has between its checkpoints.
COPIED_WORKLOADS = (
    Workload(100, 16_000_000),
    Workload(1024, 4_000_000),
    Workload(95, 16_000_000, _KEYS),
    Workload(100, 16_000_000, codec="lz4"),
    Workload(1024, 4_000_000, codec="lz4"),
    Workload(95, 16_000_000, _KEYS, "lz4"),
)
Compiled = Callable[[loop.LoopSpec], AbstractContextManager[Child]]


@dataclass(frozen=True)
class Contender:
    """A source and a sink, or a program. ``share``: of the rows, for one that would take too long for all of them.

    ``requirement``: of a program that needs an environment of its own. ``compiled``: makes the one that does as
    `bench.loop`, in another language; ``copier``: one that only copies. ``mirror``: `bench.mirrormaker`.
    """

    name: str
    source: str = ""
    sink: str = ""
    sink_options: dict[str, str] = field(default_factory=dict)
    program: str = ""
    requirement: str | None = None
    compiled: Compiled | None = None
    copier: Copier | None = None
    mirror: bool = False
    share: float = 1.0

    def rows(self, full: int) -> int:
        """Of so many rows, those that it copies."""
        return multiple(full * self.share, UNIT)


_GO = "loop in Go"
_BASELINE = "built-in → built-in, tuned"
CONTENDERS = (
    Contender("ours → ours", EOS_KAFKA, EOS_KAFKA),
    Contender("ours, copy: Arrow", ARROW, EOS_KAFKA),
    Contender("ours, copy", COPY, EOS_KAFKA),
    Contender("ours, mirror", MIRROR, EOS_KAFKA),
    Contender("built-in → ours", BUILTIN_KAFKA, EOS_KAFKA),
    Contender("built-in → built-in", BUILTIN_KAFKA, BUILTIN_KAFKA),
    Contender(_BASELINE, BUILTIN_KAFKA, BUILTIN_KAFKA, TUNED),
    Contender("loop without Spark", program="bench.loop"),
    Contender("loop in Java", compiled=other_loops.java_child),
    Contender(_GO, compiled=other_loops.go_child),
    Contender("Flink", copier=FLINK),
    Contender("Kafka Streams", copier=STREAMS),
    Contender("MirrorMaker 2", mirror=True, share=0.1),
    Contender("QuixStreams", program="bench.quix", requirement="quixstreams==3.28.1", share=0.1),
)


def measure(bench: Bench, plan: BenchPlan, say: Say) -> ModeResult:
    """All contenders, for each size. Raises WrongResult when one read or wrote other rows than there are."""
    contenders = [contender for contender in CONTENDERS if plan.runs(contender.name)]
    if not other_loops.has_go():
        say(f"pipeline: without {_GO}, as there is no Go")
        contenders = [contender for contender in contenders if contender.name != _GO]
    interpreters = {c.name: interpreter_with(c.requirement) if c.requirement else sys.executable for c in contenders}
    result = ModeResult("pipeline", _BASELINE, METRIC)
    for topic, one, rows in inputs(bench, plan, "pipeline", say, COPIED_WORKLOADS):
        runs = {
            c.name: partial(_measured, bench, c, interpreters[c.name], topic, one, c.rows(rows)) for c in contenders
        }
        take_turns(plan, result, str(one), runs, say)
    return result


def _measured(
    bench: Bench, contender: Contender, interpreter: str, topic: str, workload: Workload, rows: int
) -> dict[str, Any]:
    output, run = _run(bench, contender, interpreter, topic, rows, workload.codec)
    arrived = committed_rows(bench.bootstrap_servers, output)
    if contender.mirror:
        arrived = min(arrived, rows)  # it goes on with the rest of the topic until it is killed
    bench.delete_topic(output)
    return metrics(contender.name, str(workload), run, arrived, rows)


def _run(bench: Bench, contender: Contender, interpreter: str, topic: str, rows: int, codec: str) -> tuple[str, Run]:
    """The topic that it has written to, and its run."""
    if contender.mirror:
        return copy_by_mirrormaker(bench, topic, PARTITIONS, rows, codec)
    output = f"out-{uuid.uuid4().hex[:8]}"
    if contender.source == MIRROR:  # which makes the topic itself
        output = f"{output}.{topic}"
        return output, _query(bench, contender, topic, output, rows, codec)
    bench.cluster.create_topic(output, PARTITIONS)
    if contender.copier is not None:
        return output, contender.copier.copy(bench, topic, output, PARTITIONS, [codec], rows)
    if contender.program or contender.compiled is not None:
        return output, _program(bench, contender, interpreter, topic, output, rows, codec)
    return output, _query(bench, contender, topic, output, rows, codec)


def _query(bench: Bench, contender: Contender, topic: str, output: str, rows: int, codec: str) -> Run:
    options = contender.sink_options | ({"kafka.compression.type": codec} if codec != "none" else {})
    flow = Flow(contender.source, contender.sink, topic, output, max_offsets=rows // BATCHES, sink_options=options)
    return drain(bench.spark, bench.bootstrap_servers, flow, bench.roots)


def _program(
    bench: Bench, contender: Contender, interpreter: str, topic: str, output: str, rows: int, codec: str
) -> Run:
    """One process, with as many rows in a transaction as the others have in a micro-batch."""
    spec = loop.LoopSpec(bench.bootstrap_servers, topic, output, PARTITIONS, rows, rows // BATCHES, codec)
    made = (
        contender.compiled(spec) if contender.compiled else python_child(contender.program, spec.to_json(), interpreter)
    )
    with (
        made as process,
        Meter({CLIENT: [process.pid], BROKER: bench.roots[BROKER]}) as meter,
    ):
        done = [loop.TimedTransaction(**fields) for fields in process.result(_PROGRAM_S)]
    return judge_transactions(done, meter)
