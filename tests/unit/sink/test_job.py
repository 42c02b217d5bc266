"""What a task reports about the rows that pass through it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.options.parse import SinkOptions
from spark_eos.protocol.task import TaskReport, Work
from spark_eos.sink.job import Identity, SinkJob
from spark_eos.sink.preflight import Facts
from spark_eos.sink.schema import Columns
from spark_eos.sink.task import Task

OPTIONS = SinkOptions(KafkaProperties({"bootstrap.servers": "127.0.0.1:1"}), topic="t")
COLUMNS = {"key": pa.array(["ab", None]), "value": pa.array([b"cde", b""]), "topic": pa.array(["tttt", "tt"])}


@dataclass
class Rows:
    """Rows that are only looked at."""

    columns: Columns = field(default=Columns(key=True, topic=True, partition=False, headers=False, timestamp=False))
    taken: list[pa.RecordBatch] = field(default_factory=list)

    def write(self, task: Task, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        self.taken.extend(batches)
        return TaskReport(Work.WRITE, task.identity.partition, 4, 7)

    def committed(self, batch: int, rows: int, size: int, dropped: int, read: int) -> None:
        """Nobody reads it."""


@pytest.mark.parametrize(("count", "size"), [(True, 10), (False, 0)])
def test_bytes_are_those_of_keys_and_values(count, size):
    """Nulls have none, and other columns do not count; without metrics, nothing is counted."""
    batches, rows = [pa.RecordBatch.from_pydict(COLUMNS)] * 2, Rows()
    job = SinkJob(OPTIONS, Facts(60_000, 8, "d"), rows)
    message = job.run(BrokerClient(OPTIONS.kafka), Identity("q", "r", 0, 3, 0), iter(batches), count_bytes=count)
    assert rows.taken == batches
    assert (message.bytes, message.report.partition) == (size, 3)
