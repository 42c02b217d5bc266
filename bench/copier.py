"""Flink and Kafka Streams with exactly-once, as programs of their own in Java: each copies a topic into another one."""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench import visible
from bench.drain import Run
from bench.session import Bench
from spark_eos.tools.devcluster.jars import KAFKA_VERSION, JarSet, resolve
from spark_eos.tools.devcluster.java import find_java

_FLINK = "2.2.1"
_NO_LOG = ("org.slf4j:slf4j-nop:1.7.36",)
#: What Flink's own start script opens for Java 17.
_OPENED = ("lang", "util", "util.concurrent", "net", "nio", "time")


@dataclass(frozen=True)
class Copier:
    """``source``: the file beside this one that has its class. It needs a JDK, and is compiled before it starts.

    Its arguments are servers, input, output, how much it does at once, and the codec. It need not end by itself.
    """

    name: str
    source: str
    jars: JarSet
    jvm: tuple[str, ...] = ()

    def copy(self, bench: Bench, topic: str, output: str, partitions: int, rows: int, codec: str) -> Run:
        """Until so many rows are visible. Raises TimeoutError, and CalledProcessError where there is no JDK."""
        java, source = find_java().path, Path(__file__).with_name(self.source)
        jars = os.pathsep.join(map(str, resolve(self.jars)))
        with tempfile.TemporaryDirectory(prefix="spark-eos-bench-", ignore_cleanup_errors=True) as folder:
            compiler = str(Path(java).with_name("javac"))
            subprocess.run([compiler, "-nowarn", "-d", folder, "-cp", jars, str(source)], check=True)
            own = ["-Xmx2g", f"-Djava.io.tmpdir={folder}", *self.jvm, "-cp", os.pathsep.join([folder, jars])]
            arguments = [bench.bootstrap_servers, topic, output, str(partitions), codec]
            return visible.run(self.name, [java, *own, source.stem, *arguments], bench, output, partitions, rows)


FLINK = Copier(
    "Flink",
    "FlinkCopy.java",
    JarSet(
        f"flink-{_FLINK}",
        (
            f"org.apache.flink:flink-streaming-java:{_FLINK}",
            f"org.apache.flink:flink-clients:{_FLINK}",
            f"org.apache.flink:flink-connector-base:{_FLINK}",
            "org.apache.flink:flink-connector-kafka:5.0.0-2.2",
        ),
        _NO_LOG,
    ),
    tuple(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED),
)
STREAMS = Copier(
    "Kafka Streams",
    "StreamsCopy.java",
    JarSet(f"kafka-streams-{KAFKA_VERSION}", (f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}",), _NO_LOG),
)
