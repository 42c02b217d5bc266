"""What a producer makes of rows: where they go, how many wait, and how large batches are."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_eos.base.topic_partition import TopicPartition
from spark_eos.errors import RowError
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.producer.arrow import ArrowProducer
from spark_eos.kafka.producer.refusals import Splitting
from spark_eos.kafka.records.batches import walk_batches
from spark_eos.kafka.records.encode import Encoder, Sealed
from spark_eos.kafka.records.rows import read_rows


class Sender:
    """Keeps what is sent. ``sizes``: of what was without an answer, after each batch; all is answered when somebody
    waits."""

    def __init__(self) -> None:
        self.size = 0
        self.sizes: list[int] = []
        self.sent: list[tuple[TopicPartition, Sealed]] = []

    def add(self, target: TopicPartition, sealed: Sealed) -> None:
        self.sent.append((target, sealed))
        self.size += len(sealed.data)
        self.sizes.append(self.size)

    def advance(self) -> None: ...

    def wait_until_below(self, bound: int) -> None:
        self.size = 0


class Producer(ArrowProducer):
    """Has its producer id, and gives its record batches to ``sender``."""

    def __init__(self, batch_size: int = 1 << 20, **more: int) -> None:
        kafka = KafkaProperties({"bootstrap.servers": "h:1", "batch.size": str(batch_size)})
        super().__init__(BrokerClient(kafka), "name", 60_000, **more)
        self._sender = self.sender = Sender()
        self._encoder = Encoder(1, 0, max_bytes=batch_size)
        self._refusals = Splitting(self._encoder)


def numbers(first: int, count: int, size: int = 8) -> pa.Array:
    return pa.array([b"%0*d" % (size, i) for i in range(first, first + count)], pa.binary())


def written(producer: Producer) -> list[tuple[TopicPartition, bytes | None]]:
    """Where each row has gone, and its value, in order."""
    producer.flush()
    found = []
    for target, sealed in producer.sender.sent:
        data = bytes(sealed.data)
        for batch in walk_batches(data, len(data), ()):
            found += [(target, value) for _, _, value in read_rows(data, batch)]
    return found


@pytest.mark.parametrize("count", [70, 65_536, 65_537, 70_000])
def test_each_row_goes_to_the_partition_that_it_names(count):
    """Also where a topic has more partitions than 16 bits can tell."""
    producer = Producer()
    wanted = [count - 1, 3, count - 2, 1, count - 1, 0]
    values = pa.array([b"%d" % partition for partition in wanted])
    producer.write("t", count, value=values, partition=pa.array(wanted, pa.int32()))
    assert sorted(written(producer)) == sorted((("t", partition), b"%d" % partition) for partition in wanted)


def test_rows_of_many_topics_are_held_together_within_bounds():
    """What waits to be sealed is bounded over all topics, and all of it is written."""
    producer = Producer(batch_size=1 << 30)
    for first in range(40):
        producer.write("abc"[first % 3], 1, value=numbers(first, 1, 1 << 20))
        sent = sum(len(sealed.data) for _, sealed in producer.sender.sent)
        assert (first + 1 << 20) - sent < 16 << 20
    assert sorted(value for _, value in written(producer)) == numbers(0, 40, 1 << 20).to_pylist()


def test_rows_with_keys_fill_batches():
    """They go to all partitions, and wait until there is about a batch for each, however few come at once."""
    most = 50_000
    producer = Producer(most)
    for first in range(0, 8_000, 100):
        producer.write("t", 4, key=numbers(first, 100), value=numbers(first, 100, 92))
    assert sorted(value for _, value in written(producer)) == numbers(0, 8_000, 92).to_pylist()
    for partition in range(4):
        sizes = [len(sealed.data) for (_, number), sealed in producer.sender.sent if number == partition]
        assert max(sizes) <= most and min(sizes[:-1]) > most / 2


def test_what_is_in_flight_is_bounded():
    """By the bytes that were asked for, and one batch more."""
    producer = Producer(20_000, in_flight_bytes=60_000)
    producer.write("t", 1, value=numbers(0, 20_000, 100))
    assert [value for _, value in written(producer)] == numbers(0, 20_000, 100).to_pylist()
    assert 40_000 < max(producer.sender.sizes) <= 80_000


def test_what_no_request_has_room_for_is_refused_as_what_it_is():
    """No broker was asked, and no setting of the topic changes it."""
    producer = Producer(in_flight_bytes=(100 << 20) - 500)
    producer.write("t", 1, value=pa.array([b"x" * 1_000]))
    with pytest.raises(RowError, match=r"EOS_ROW_TOO_LARGE.*1 row\(s\) and 1,[0-9]{3} bytes.*at most 500") as caught:
        producer.flush()
    assert "max.message.bytes" not in str(caught.value)
