"""Iceberg's own sinks for Flink and Kafka Connect, exactly once, as programs of their own: a topic into a table."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.copier import FLINK_JVM
from bench.jvm import NO_LOG, SOURCES, class_path, command, compiled
from bench.lake import table_in
from bench.session import Bench
from bench.source import PARTITIONS
from spark_eos.tools.devcluster.jars import KAFKA_VERSION, JarSet
from spark_eos.tools.devcluster.ports import free_ports

_ICEBERG = "1.12.0"
#: The newest that Iceberg's sink for Flink could be resolved for, and the newest of that.
_FLINK, _ICEBERG_FLINK = "2.1.2", "1.11.0"
_HADOOP = tuple(f"org.apache.hadoop:hadoop-client-{name}:3.4.2" for name in ("api", "runtime"))
_FLINK_JARS = JarSet(
    f"flink-iceberg-{_FLINK}",
    (
        *(
            f"org.apache.flink:flink-{name}:{_FLINK}"
            for name in ("streaming-java", "clients", "connector-base", "table-runtime", "table-api-java-bridge")
        ),
        "org.apache.flink:flink-connector-kafka:5.0.0-2.1",
    ),
    (*NO_LOG, f"org.apache.iceberg:iceberg-flink-runtime-2.1:{_ICEBERG_FLINK}", *_HADOOP),
)
_CONNECT_JARS = JarSet(
    f"connect-iceberg-{_ICEBERG}",
    (
        f"org.apache.kafka:connect-runtime:{KAFKA_VERSION}",
        *(f"org.apache.iceberg:iceberg-{name}:{_ICEBERG}" for name in ("kafka-connect", "parquet")),
    ),
    ("org.slf4j:slf4j-nop:2.0.17", *_HADOOP),
)
#: A task notices that it is to commit when it polls, for which it waits as long as it has no rows: by default a minute.
#: Fetches are as large as the others have them.
_WORKER = """\
bootstrap.servers = {servers}
key.converter = org.apache.kafka.connect.converters.ByteArrayConverter
value.converter = org.apache.kafka.connect.converters.ByteArrayConverter
offset.storage.file.filename = {folder}/offsets
offset.flush.interval.ms = 100
plugin.discovery = service_load
listeners = http://127.0.0.1:{port}
consumer.isolation.level = read_committed
consumer.max.poll.records = 20000
consumer.max.partition.fetch.bytes = 8388608
"""
#: Rows with the columns that the others have, but the key: records have none here.
_SINK = """\
name = {name}
connector.class = org.apache.iceberg.connect.IcebergSinkConnector
tasks.max = {tasks}
topics = {topic}
transforms = whole, place
transforms.whole.type = org.apache.kafka.connect.transforms.HoistField$Value
transforms.whole.field = value
transforms.place.type = org.apache.kafka.connect.transforms.InsertField$Value
transforms.place.topic.field = topic
transforms.place.partition.field = partition
transforms.place.offset.field = offset
transforms.place.timestamp.field = timestamp
iceberg.catalog.type = hadoop
iceberg.catalog.warehouse = {folder}
iceberg.tables = bench.rows
iceberg.tables.auto-create-enabled = true
iceberg.control.topic = {control}
iceberg.control.commit.interval-ms = 1000
"""


def _flink(bench: Bench, topic: str, folder: Path) -> list[str]:
    """A checkpoint a second, with which the table gets a version."""
    classes = folder / "classes"
    classes.mkdir()
    path = compiled(SOURCES / "FlinkIceberg.java", _FLINK_JARS, classes)
    arguments = (bench.bootstrap_servers, topic, table_in(folder), PARTITIONS)
    return command(path, "FlinkIceberg", *arguments, heap="-Xmx2g", folder=folder, options=FLINK_JVM)


def _connect(bench: Bench, topic: str, folder: Path) -> list[str]:
    """A worker of Kafka Connect in standalone mode, which commits once a second."""
    (port,), name = free_ports(1), f"iceberg-{uuid.uuid4().hex[:8]}"
    bench.cluster.create_topic(f"control-{name}", 1)
    places = {"servers": bench.bootstrap_servers, "topic": topic, "folder": folder, "port": port}
    for file, text in (("worker.properties", _WORKER), ("sink.properties", _SINK)):
        (folder / file).write_text(text.format(**places, name=name, control=f"control-{name}", tasks=PARTITIONS))
    files = (folder / file for file in ("worker.properties", "sink.properties"))
    program = "org.apache.kafka.connect.cli.ConnectStandalone"
    return command(class_path(_CONNECT_JARS), program, *files, heap="-Xmx2g", folder=folder)


#: By their names, what makes the command of a program that goes on until it is killed, with all that it needs in an
#: empty folder. They need a JDK, or resolve jars; they raise what that raises.
INTO_ICEBERG: Mapping[str, Callable[[Bench, str, Path], list[str]]] = {
    "Flink: Iceberg": _flink,
    "Kafka Connect: Iceberg": _connect,
}
