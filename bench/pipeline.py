"""Mode ``pipeline``: Kafka → Kafka, every row copied. Ours, Spark's own connector, programs without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench import other_loops
from bench.child import Child
from bench.copier import FLINK, STREAMS, Copier
from bench.count import committed_rows
from bench.drain import Run, drain
from bench.duel import metrics
from bench.loop import LoopSpec
from bench.mirrormaker import copy_by_mirrormaker
from bench.queries import ARROW, BUILTIN_KAFKA, COPY, EOS_KAFKA, MIRROR, TUNED, Flow
from bench.result import ModeResult
from bench.session import Bench
from bench.source import BATCHES, METRIC, PARTITIONS, UNIT, Workload, inputs
from bench.turns import BenchPlan, Say, multiple, take_turns

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


@dataclass(frozen=True)
class Contender:
    """``copy``: is given the input's name, a number of rows and the codec, copies them, and returns the topic that it
    has written to, and its run. ``share``: of the rows, for one that would take too long for all of them. ``goes_on``:
    it reads the rest of the topic until it is killed."""

    copy: Callable[[Bench, str, int, str], tuple[str, Run]]
    share: float = 1.0
    goes_on: bool = False


def measure(bench: Bench, plan: BenchPlan, say: Say) -> ModeResult:
    """All contenders, for each size. Raises WrongResult when one read or wrote other rows than there are."""
    contenders = dict(CONTENDERS)
    if not other_loops.has_go():
        say(f"pipeline: without {_GO}, as there is no Go")
        del contenders[_GO]
    result = ModeResult("pipeline", _BASELINE, METRIC)
    for topic, one, rows in inputs(bench, plan, "pipeline", say, COPIED_WORKLOADS):
        runs = {name: partial(_measured, bench, name, topic, one, rows) for name in contenders}
        take_turns(plan, result, str(one), runs, say)
    return result


def _measured(bench: Bench, name: str, topic: str, workload: Workload, full: int) -> dict[str, Any]:
    contender = CONTENDERS[name]
    rows = multiple(full * contender.share, UNIT)
    output, run = contender.copy(bench, topic, rows, workload.codec)
    arrived = committed_rows(bench.bootstrap_servers, output)
    bench.delete_topic(output)
    return metrics(name, str(workload), run, min(arrived, rows) if contender.goes_on else arrived, rows)


def _query(
    source: str, sink: str, options: Mapping[str, str], bench: Bench, topic: str, rows: int, codec: str
) -> tuple[str, Run]:
    output = f"mirrored-{uuid.uuid4().hex[:8]}.{topic}" if source == MIRROR else _output(bench)  # mirrors make theirs
    options = {**options, **({"kafka.compression.type": codec} if codec != "none" else {})}
    flow = Flow(source, sink, topic, output, max_offsets=rows // BATCHES, sink_options=options)
    return output, drain(bench.spark, bench.bootstrap_servers, flow, bench.roots)


def _loop(
    start: Callable[[LoopSpec], AbstractContextManager[Child]], bench: Bench, topic: str, rows: int, codec: str
) -> tuple[str, Run]:
    output = _output(bench)
    spec = LoopSpec(bench.bootstrap_servers, topic, output, PARTITIONS, rows, rows // BATCHES, codec)
    return output, other_loops.run_loop(bench, start(spec))


def _program(copier: Copier, bench: Bench, topic: str, rows: int, codec: str) -> tuple[str, Run]:
    output = _output(bench)
    return output, copier.copy(bench, topic, output, [codec], rows)


def _output(bench: Bench) -> str:
    """A new topic."""
    name = f"out-{uuid.uuid4().hex[:8]}"
    bench.cluster.create_topic(name, PARTITIONS)
    return name


_GO = "loop in Go"
_BASELINE = "built-in → built-in, tuned"
CONTENDERS = {
    "ours → ours": Contender(partial(_query, EOS_KAFKA, EOS_KAFKA, {})),
    "ours, copy: Arrow": Contender(partial(_query, ARROW, EOS_KAFKA, {})),
    "ours, copy": Contender(partial(_query, COPY, EOS_KAFKA, {})),
    "ours, mirror": Contender(partial(_query, MIRROR, EOS_KAFKA, {})),
    _BASELINE: Contender(partial(_query, BUILTIN_KAFKA, BUILTIN_KAFKA, TUNED)),
    "loop in Java": Contender(partial(_loop, other_loops.java_child)),
    _GO: Contender(partial(_loop, other_loops.go_child)),
    "Flink": Contender(partial(_program, FLINK)),
    "Kafka Streams": Contender(partial(_program, STREAMS)),
    "MirrorMaker 2": Contender(copy_by_mirrormaker, share=0.1, goes_on=True),
}
