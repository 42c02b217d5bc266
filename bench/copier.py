"""Flink and Kafka Streams with exactly-once, as programs of their own in Java: from one topic into another."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench import visible
from bench.drain import Run
from bench.jvm import NO_LOG, SOURCES, command, compiled
from bench.session import Bench
from bench.source import PARTITIONS
from spark_eos.tools.devcluster.jars import KAFKA_VERSION, JarSet

_FLINK = "2.2.1"
#: What Flink's own start script opens for Java 17.
_OPENED = ("lang", "util", "util.concurrent", "net", "nio", "time")


@dataclass(frozen=True)
class Copier:
    """``source``: the file beside this one that has its class, which may use others there. It needs a JDK, and is
    compiled before it starts.

    Its arguments are servers, input, output, how much it does at once, and others. It need not end by itself.
    """

    name: str
    source: str
    jars: JarSet
    jvm: tuple[str, ...] = ()

    def copy(
        self,
        bench: Bench,
        topic: str,
        output: str,
        others: Sequence[str],
        rows: int,
        written: int | None = None,
    ) -> Run:
        """Until so many rows are read, and ``written`` of them visible, by default all. Raises TimeoutError, and
        CalledProcessError where there is no JDK."""
        source = SOURCES / self.source
        with tempfile.TemporaryDirectory(prefix="spark-eos-bench-", ignore_cleanup_errors=True) as made:
            folder, arguments = Path(made), (bench.bootstrap_servers, topic, output, PARTITIONS, *others)
            classes = compiled(source, self.jars, folder)
            line = command(classes, source.stem, *arguments, heap="-Xmx2g", folder=folder, options=self.jvm)
            return visible.run(self.name, line, bench, output, rows, written)


_FLINK_JARS = JarSet(
    f"flink-{_FLINK}",
    (
        f"org.apache.flink:flink-streaming-java:{_FLINK}",
        f"org.apache.flink:flink-clients:{_FLINK}",
        f"org.apache.flink:flink-connector-base:{_FLINK}",
        "org.apache.flink:flink-connector-kafka:5.0.0-2.2",
    ),
    NO_LOG,
)
FLINK_JVM = tuple(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED)
FLINK = Copier("Flink", "FlinkCopy.java", _FLINK_JARS, FLINK_JVM)
#: The format `avro-confluent`, in a jar with all that it needs, as Confluent's clients are not in Maven Central. The
#: jar of 2.2.1 could not be resolved.
_AVRO_CONFLUENT = "org.apache.flink:flink-sql-avro-confluent-registry:2.2.0"
FLINK_ORDERS = Copier(
    "Flink",
    "FlinkOrders.java",
    replace(_FLINK_JARS, name=f"flink-avro-{_FLINK}", plain=(*NO_LOG, _AVRO_CONFLUENT)),
    FLINK_JVM,
)
STREAMS = Copier(
    "Kafka Streams",
    "StreamsCopy.java",
    JarSet(f"kafka-streams-{KAFKA_VERSION}", (f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}",), NO_LOG),
)
