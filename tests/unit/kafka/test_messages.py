"""Messages of librdkafka's consumer, from its simulated brokers."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from spark_eos.errors import KafkaError
from spark_eos.kafka.messages import headers_of
from spark_eos.kafka.records.encode import Encoder, Rows
from tests.support.waiting import TIMEOUT


def varint(number: int) -> bytes:
    """One below 64, in zigzag."""
    return bytes([2 * number])


def put(address: tuple[str, int], key: bytes) -> None:
    """Write a record with a header of this key, as any client may that does not look at it."""
    headers = varint(1) + varint(len(key)) + key + varint(1) + b"x"
    rows = Rows(pa.nulls(1, pa.binary()), pa.array([b"v"]), np.array([5]), pa.array([headers]))
    ((_, sealed),) = Encoder(-1, -1).encode(rows, [1], [-1])
    data = bytes(sealed.data)
    head = struct.pack(">hhihc", 0, 7, 1, 1, b"c")  # Produce, version 7
    body = struct.pack(">hhiihcii", -1, -1, 5000, 1, 1, b"t", 1, 0) + struct.pack(">i", len(data)) + data
    with socket.create_connection(address, TIMEOUT) as connection:
        connection.sendall(struct.pack(">i", len(head + body)) + head + body)
        assert connection.recv(1000)


@pytest.fixture
def cluster() -> Iterator[tuple[str, int]]:
    """The address of a broker with an empty topic t."""
    producer = Producer({"test.mock.num.brokers": 1})
    (broker,) = producer.list_topics("t", timeout=TIMEOUT).brokers.values()
    yield broker.host, broker.port
    producer.flush(0)


def read(address: tuple[str, int]) -> Message:
    consumer = Consumer({"bootstrap.servers": "{}:{}".format(*address), "group.id": "g"})
    consumer.assign([TopicPartition("t", 0, 0)])
    message = consumer.poll(TIMEOUT)
    consumer.close()
    assert message is not None and message.error() is None
    return message


@pytest.mark.parametrize("key", ["h", "größe"])
def test_headers_are_as_they_were_written(cluster, key):
    """Keys and values."""
    put(cluster, key.encode())
    assert headers_of(read(cluster)) == [(key, b"x")]


def test_a_header_whose_key_is_not_utf_8_stops_a_command_by_name(cluster):
    """confluent-kafka leaves its error behind a result. A call that has run often enough does not look for one, and
    the error would come up anywhere."""
    for _ in range(100):
        headers_of(Message(headers=[("h", b"x")]))
    put(cluster, b"\xff")
    with pytest.raises(KafkaError, match="offset 0 of t-0") as caught:
        headers_of(read(cluster))
    assert caught.value.condition == "EOS_SOURCE_HEADER_KEY"
