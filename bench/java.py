"""The loop of `bench.loop` in Java, by the newest of Kafka's own clients: the least that a JVM needs."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path

from bench.child import Child, started
from bench.loop import LoopSpec
from spark_eos.tools.devcluster.jars import JarSet, resolve
from spark_eos.tools.devcluster.java import find_java

CLIENTS = "4.4.0"
_JARS = JarSet(
    f"kafka-clients-{CLIENTS}", (f"org.apache.kafka:kafka-clients:{CLIENTS}",), plain=("org.slf4j:slf4j-nop:1.7.36",)
)
#: As many as partitions. Each has a consumer and a producer, and so transactions of its own.
THREADS = 4
_SOURCE = Path(__file__).with_name("Loop.java")


def java_child(spec: LoopSpec) -> AbstractContextManager[Child]:
    """The program; Java compiles it at its start, before anything is measured. It needs a JDK.

    It prints what a `bench.loop` prints. What it calls a transaction is one transaction of each thread.
    """
    rows = (spec.rows // THREADS, spec.rows_per_transaction // THREADS)
    arguments = (spec.bootstrap_servers, spec.input, spec.output, *rows, THREADS, spec.codec)
    classes = os.pathsep.join(map(str, resolve(_JARS)))
    command = [find_java().path, "-Xmx1g", "-cp", classes, str(_SOURCE)]
    return started("the loop in Java", [*command, *map(str, arguments)])
