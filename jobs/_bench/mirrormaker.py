"""MirrorMaker 2 with exactly-once, as a program of its own: it copies a topic to another name on the same broker."""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from pathlib import Path

from jobs._bench.child import started
from jobs._bench.count import count
from jobs._bench.drain import Run, Stretch, measured
from jobs._bench.meter import BROKER, CLIENT, Meter
from jobs._bench.session import Bench
from spark_eos.devcluster.jars import KAFKA_VERSION, JarSet, resolve
from spark_eos.devcluster.java import find_java
from spark_eos.devcluster.ports import free_ports
from spark_eos.errors import TopicError
from spark_eos.kafka.admin.topics import end_offsets
from spark_eos.kafka.config.properties import KafkaProperties

JARS = JarSet(
    f"connect-mirror-{KAFKA_VERSION}",
    (f"org.apache.kafka:connect-mirror:{KAFKA_VERSION}",),
    plain=("org.slf4j:slf4j-nop:1.7.36",),
)
#: Of the rows, how many at the beginning do not count: its tasks are still getting up.
_LEFT_OUT = 0.25
_SECONDS, _POLL_S = 600.0, 0.1
#: Both clusters are this broker. The first one's name is that of a run, as MirrorMaker goes on where it was under a
#: name. Larger fetches and batches than by default, as other contenders have them.
_SETTINGS = """\
clusters = {source}, target
{source}.bootstrap.servers = {servers}
target.bootstrap.servers = {servers}
{source}->target.enabled = true
{source}->target.topics = {topic}
target->{source}.enabled = false
target.exactly.once.source.support = enabled
dedicated.mode.enable.internal.rest = true
listeners = http://127.0.0.1:{port}
tasks.max = {tasks}
replication.factor = 1
offset-syncs.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset.storage.replication.factor = 1
config.storage.replication.factor = 1
status.storage.replication.factor = 1
emit.heartbeats.enabled = false
emit.checkpoints.enabled = false
sync.topic.acls.enabled = false
sync.topic.configs.enabled = false
{source}.consumer.isolation.level = read_committed
{source}.consumer.max.poll.records = 20000
{source}.consumer.max.partition.fetch.bytes = 8388608
target.producer.linger.ms = 5
target.producer.batch.size = 1000000
target.producer.buffer.memory = 67108864
"""


def copy(bench: Bench, topic: str, partitions: int, rows: int) -> tuple[str, Run]:
    """Until so many rows are visible; the topic that they are in, and the run. Raises TimeoutError."""
    source = f"run{uuid.uuid4().hex[:6]}"
    output = f"{source}.{topic}"
    (port,) = free_ports(1)
    settings = _SETTINGS.format(
        source=source, servers=bench.bootstrap_servers, topic=topic, port=port, tasks=partitions
    )
    classes = os.pathsep.join(map(str, resolve(JARS)))
    with tempfile.TemporaryDirectory(prefix="spark-eos-bench-") as folder:
        file = Path(folder, "mirror.properties")
        file.write_text(settings)
        command = [find_java().path, "-Xmx1g", "-cp", classes, "org.apache.kafka.connect.mirror.MirrorMaker", str(file)]
        with (
            started("MirrorMaker 2", command) as process,
            Meter({CLIENT: process.pid, BROKER: bench.roots[BROKER]}) as meter,
        ):
            counted = _watch(bench, output, partitions, rows)
    return output, measured(rows, 1, counted, meter)


def _watch(bench: Bench, output: str, partitions: int, rows: int) -> Stretch:
    """By the last stable offsets, which count a transaction's marker as a row: one of some ten thousand."""
    kafka = KafkaProperties({"bootstrap.servers": bench.bootstrap_servers})
    deadline = time.monotonic() + _SECONDS
    begin, before = 0.0, 0
    while True:
        ends = _ends(kafka, output, partitions)
        if begin == 0.0 and ends >= rows * _LEFT_OUT:
            begin, before = time.time(), ends
        if ends >= rows and (now := time.time()) and count(bench.bootstrap_servers, output) >= rows:
            return Stretch(1, rows - before, begin, now)
        if time.monotonic() > deadline:
            raise TimeoutError(f"MirrorMaker 2 has copied {ends:,} of {rows:,} rows within {_SECONDS:.0f} s")
        time.sleep(_POLL_S)


def _ends(kafka: KafkaProperties, topic: str, partitions: int) -> int:
    try:
        return sum(end_offsets(kafka, {topic: range(partitions)})[topic].values())
    except TopicError:
        return 0  # MirrorMaker has not made it yet
