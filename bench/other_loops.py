"""Exactly-once loops of other clients (`bench.loop`): programs that print when their transactions began and ended."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

from bench.child import Child, started
from bench.drain import Run, judge_transactions
from bench.jvm import NO_LOG, SOURCES, class_path, command
from bench.loop import LoopSpec, TimedTransaction
from bench.meter import BROKER, CLIENT, Meter
from bench.session import Bench
from jobs.runner.session import ROOT
from spark_eos.tools.devcluster.jars import JarSet

#: The newest of Kafka's own clients for Java.
CLIENTS = "4.4.0"
_JARS = JarSet(f"kafka-clients-{CLIENTS}", (f"org.apache.kafka:kafka-clients:{CLIENTS}",), plain=NO_LOG)
#: As many as partitions. Each has a consumer and a producer, and so transactions of its own.
THREADS = 4
_IN_GO = Path(__file__).with_name("golang_loop")
_PROGRAM_S = 900


def run_loop(bench: Bench, loop: AbstractContextManager[Child]) -> Run:
    """Run such a program to its end, which has as many rows in a transaction as the others have in a micro-batch."""
    with loop as process, Meter({CLIENT: [process.pid], BROKER: bench.roots[BROKER]}) as meter:
        done = [TimedTransaction(**fields) for fields in process.result(_PROGRAM_S)]
    return judge_transactions(done, meter)


def java_child(spec: LoopSpec) -> AbstractContextManager[Child]:
    """In Java, by Kafka's own client: the least that a JVM needs. Java compiles it at its start, before anything is
    measured. What it calls a transaction is one transaction of each thread."""
    rows = (spec.rows // THREADS, spec.rows_per_transaction // THREADS)
    arguments = (spec.bootstrap_servers, spec.input, spec.output, *rows, THREADS, spec.codec)
    source = str(SOURCES / "Loop.java")
    return started("the loop in Java", command(class_path(_JARS), source, *arguments, heap="-Xmx1g"))


def has_go() -> bool:
    """Whether there is a Go to compile its loop."""
    return shutil.which("go") is not None


def go_child(spec: LoopSpec) -> AbstractContextManager[Child]:
    """In Go, by franz-go, whose consumer and producer share a session. It is compiled before it starts. Raises
    ChildProcessError."""
    binary = ROOT / "build" / _IN_GO.name
    if subprocess.run(["go", "build", "-o", str(binary), "."], cwd=_IN_GO).returncode:
        raise ChildProcessError("the loop in Go was not compiled; '--without' leaves it out")
    numbers = (spec.rows, spec.rows_per_transaction)
    arguments = (spec.bootstrap_servers, spec.input, spec.output, *numbers, spec.codec)
    return started("the loop in Go", [str(binary), *map(str, arguments)])
