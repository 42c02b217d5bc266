"""Which partition the rows of a producer go to."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_eos.base.topic_partition import TopicPartition
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.producer.arrow import ArrowProducer
from spark_eos.kafka.producer.refusals import Splitting
from spark_eos.kafka.records.batches import walk_batches
from spark_eos.kafka.records.encode import Encoder, Sealed
from spark_eos.kafka.records.rows import read_rows


class Sender:
    """Keeps what is sent."""

    size = 0

    def __init__(self) -> None:
        self.sent: list[tuple[TopicPartition, Sealed]] = []

    def add(self, target: TopicPartition, sealed: Sealed) -> None:
        self.sent.append((target, sealed))

    def advance(self) -> None: ...


@pytest.mark.parametrize("count", [70, 65_536, 65_537, 70_000])
def test_each_row_goes_to_the_partition_that_it_names(count):
    """Also where a topic has more partitions than 16 bits can tell."""
    producer = ArrowProducer(BrokerClient(KafkaProperties({"bootstrap.servers": "h:1"})), "name", 60_000)
    producer._sender, producer._encoder = sender, encoder = Sender(), Encoder(1, 0)
    producer._refusals = Splitting(encoder)
    wanted = [count - 1, 3, count - 2, 1, count - 1, 0]
    values = pa.array([b"%d" % partition for partition in wanted])
    producer.write("t", count, value=values, partition=pa.array(wanted, pa.int32()))
    producer._encode_all()
    found = []
    for (_, partition), sealed in sender.sent:
        data = bytes(sealed.data)
        for batch in walk_batches(data, len(data), ()):
            found += [(partition, value) for _, _, value in read_rows(data, batch)]
    assert sorted(found) == sorted((partition, b"%d" % partition) for partition in wanted)
