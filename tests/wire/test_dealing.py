"""To which partitions the keys of a task go, on brokers that answer in bytes."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.producer.partitioner import Partitioner
from spark_eos.ledger.query import LedgerAddress, query_ports
from spark_eos.options.parse import SinkOptions
from spark_eos.protocol.head import Head
from spark_eos.protocol.names import TaskId
from spark_eos.protocol.task import Assignment, Work
from spark_eos.sink.job import Identity, SinkJob
from spark_eos.sink.preflight import Facts
from spark_eos.sink.rows import RowBatch
from spark_eos.sink.schema import Columns
from spark_eos.sink.session import Session
from spark_eos.sink.spark_rows import SparkRows
from spark_eos.sink.task import Task

from .faults import Schedule
from .play import staged
from .query import QUERY
from .scenarios import TIMEOUT_MS

COLUMNS = Columns(key=True, topic=False, partition=False, headers=False, timestamp=False)
KEYS = pa.array([f"key {i}".encode() for i in range(12)])


@pytest.mark.parametrize("chosen", [{}, {"partitioner": "murmur2"}], ids=["none", "another"])
def test_keys_go_where_the_assignment_says(chosen: dict[str, str]) -> None:
    """A replay deals keys as the decision did, whatever the options say now; without the option, a query goes on as
    it began."""
    with staged(Schedule(1)) as stage:
        scene, client = stage.scene, broker_client(stage.scene.kafka)
        ports = query_ports(client, LedgerAddress(scene.ledger, 2, scene.prefix), QUERY, None)
        options = SinkOptions(KafkaProperties({**scene.kafka, **chosen}), scene.topic, prefix=scene.prefix)
        job = SinkJob(options, Facts(TIMEOUT_MS, 2, "d"), SparkRows(COLUMNS))
        task = Task(job, Identity(QUERY, "r", 0, 0, 0), Session(client, ports, ports.coordinator))
        attempt = task.begin(Head("r", 1, (), 5), Assignment(Work.REPAIR, TaskId(1, 0, 0), partitioner="fnv1a"))
        assert attempt is not None
        rows = pa.RecordBatch.from_pydict({"key": KEYS, "value": KEYS})
        attempt.writer.write(RowBatch(rows, COLUMNS, scene.topic))
        attempt.writer.producer.flush()
        attempt.writer.producer.close()
        dealt = Partitioner(scene.partitions, "fnv1a").choose(KEYS, pa.nulls(len(KEYS), pa.int32())).tolist()
        ends = [stage.cluster.partitions[scene.topic, number].end for number in range(scene.partitions)]
        assert ends == [dealt.count(number) for number in range(scene.partitions)]
