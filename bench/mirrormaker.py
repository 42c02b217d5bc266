"""MirrorMaker 2 with exactly-once, as a program of its own: it copies a topic to another name on the same broker."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path

from bench import visible
from bench.drain import Run
from bench.jvm import NO_LOG, class_path, command
from bench.session import Bench
from bench.source import PARTITIONS
from spark_eos.tools.devcluster.jars import KAFKA_VERSION, JarSet
from spark_eos.tools.devcluster.ports import free_ports

_JARS = JarSet(
    f"connect-mirror-{KAFKA_VERSION}",
    (f"org.apache.kafka:connect-mirror:{KAFKA_VERSION}",),
    plain=NO_LOG,
)
#: From a cluster to itself, exactly once, without what else MirrorMaker copies.
EXACTLY_ONCE = """\
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
emit.heartbeats.enabled = false
emit.checkpoints.enabled = false
sync.topic.acls.enabled = false
sync.topic.configs.enabled = false
{source}.consumer.isolation.level = read_committed
"""
#: One broker. Larger fetches and batches than by default, as other contenders have them.
_MORE = """\
replication.factor = 1
offset-syncs.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset.storage.replication.factor = 1
config.storage.replication.factor = 1
status.storage.replication.factor = 1
{source}.consumer.max.poll.records = 20000
{source}.consumer.max.partition.fetch.bytes = 8388608
target.producer.linger.ms = 5
target.producer.batch.size = 1000000
target.producer.compression.type = {codec}
target.producer.buffer.memory = 67108864
"""


def mirrormaker(settings: Path, heap: str) -> list[str]:
    """What starts MirrorMaker with this file."""
    return command(class_path(_JARS), "org.apache.kafka.connect.mirror.MirrorMaker", settings, heap=heap)


def copy_by_mirrormaker(bench: Bench, topic: str, rows: int, codec: str) -> tuple[str, Run]:
    """Until so many rows are visible; the topic that they are in, and the run. Raises TimeoutError."""
    source = f"run{uuid.uuid4().hex[:6]}"  # MirrorMaker goes on where it was under a name
    output = f"{source}.{topic}"
    (port,) = free_ports(1)
    settings = (EXACTLY_ONCE + _MORE).format(
        source=source, servers=bench.bootstrap_servers, topic=topic, port=port, tasks=PARTITIONS, codec=codec
    )
    with tempfile.TemporaryDirectory(prefix="spark-eos-bench-") as folder:
        file = Path(folder, "mirror.properties")
        file.write_text(settings)
        return output, visible.run("MirrorMaker 2", mirrormaker(file, "-Xmx1g"), bench, output, rows)
