"""Which partition the rows of a producer go to."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_eos.base.topic_partition import TopicPartition
from spark_eos.errors import RowError
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.producer import arrow
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


def producer_with(encoder: Encoder) -> ArrowProducer:
    producer = ArrowProducer(BrokerClient(KafkaProperties({"bootstrap.servers": "h:1"})), "name", 60_000)
    producer._sender, producer._encoder, producer._refusals = Sender(), encoder, Splitting(encoder)
    return producer


@pytest.mark.parametrize("count", [70, 65_536, 65_537, 70_000])
def test_each_row_goes_to_the_partition_that_it_names(count):
    """Also where a topic has more partitions than 16 bits can tell."""
    producer = producer_with(Encoder(1, 0))
    wanted = [count - 1, 3, count - 2, 1, count - 1, 0]
    values = pa.array([b"%d" % partition for partition in wanted])
    producer.write("t", count, value=values, partition=pa.array(wanted, pa.int32()))
    producer._encode_all()
    found = []
    for (_, partition), sealed in producer._sender.sent:
        data = bytes(sealed.data)
        for batch in walk_batches(data, len(data), ()):
            found += [(partition, value) for _, _, value in read_rows(data, batch)]
    assert sorted(found) == sorted((partition, b"%d" % partition) for partition in wanted)


def test_what_no_request_has_room_for_is_refused_as_what_it_is(monkeypatch):
    """No broker was asked, and no setting of the topic changes it."""
    monkeypatch.setattr(arrow, "_LARGEST_REQUEST", arrow.IN_FLIGHT_BYTES + 500)
    producer = producer_with(Encoder(1, 0))
    producer.write("t", 1, value=pa.array([b"x" * 1_000]))
    with pytest.raises(RowError, match=r"EOS_ROW_TOO_LARGE.*1 row\(s\) and 1,[0-9]{3} bytes.*at most 500") as caught:
        producer._encode_all()
    assert "max.message.bytes" not in str(caught.value)
