"""Produce requests as a broker gets them and what it answers, by kafka-python's own schema; what must be refused."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping

import pytest
from kafka.protocol.producer import ProduceRequest
from kafka.protocol.producer import ProduceResponse as SchemaProduceResponse

from spark_eos.kafka.requests.produce import ProduceConnection, ProduceResponse

LARGE = bytes(range(256)) * 40
VERSION = 12


@pytest.fixture
def pair() -> Iterator[tuple[ProduceConnection, socket.socket]]:
    """A connection and the broker's end of it."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(10)
    yield ProduceConnection(ours, 0), theirs
    ours.close()
    theirs.close()


def asked(broker: socket.socket) -> ProduceRequest:
    """The next request, decoded."""
    (size,) = struct.unpack(">i", broker.recv(4, socket.MSG_WAITALL))
    data = broker.recv(size, socket.MSG_WAITALL)
    return ProduceRequest.decode(data, version=VERSION, header=True)


def answer(errors: Mapping[tuple[str, int], int], number: int = 1) -> bytes:
    """With everything in it that an answer may have, tags that nobody knows included."""
    topic = SchemaProduceResponse.TopicProduceResponse
    partition = topic.PartitionProduceResponse
    told = [partition.BatchIndexAndErrorMessage(batch_index=3, batch_index_error_message="bäd")]
    topics: dict[str, list] = {}
    for (name, index), error in errors.items():
        more = {"record_errors": told, "error_message": "why " * 50} if error else {"record_errors": []}
        if error == 6:
            more["current_leader"] = partition.LeaderIdAndEpoch(leader_id=4, leader_epoch=9)
        fields = {"index": index, "error_code": error, "base_offset": 7, "log_append_time_ms": -1}
        topics.setdefault(name, []).append(partition(**fields, log_start_offset=0, **more))
    response = SchemaProduceResponse(
        responses=[topic(name=name, partition_responses=parts) for name, parts in topics.items()], throttle_time_ms=5
    )
    body = struct.pack(">i", number) + b"\x01\x05\x02hi" + response.encode(version=VERSION)
    return struct.pack(">i", len(body)) + body


def test_a_request(pair):
    """Every field of it, for partitions of two topics, with a small and a large batch."""
    producing, broker = pair
    assert producing.idle
    assert producing.send("töp-id", {("töpic", 3): b"abc", ("other", 0): LARGE, ("töpic", 0): b""}, 1234) == 1
    assert not producing.idle
    assert not producing.sending
    request = asked(broker)
    header = request.header
    assert (header.request_api_key, header.request_api_version) == (0, VERSION)
    assert (header.correlation_id, header.client_id) == (1, "spark-eos")
    assert (request.transactional_id, request.acks, request.timeout_ms) == ("töp-id", -1, 1234)
    assert {t.name: {p.index: bytes(p.records or b"") for p in t.partition_data} for t in request.topic_data} == {
        "töpic": {3: b"abc", 0: b""},
        "other": {0: LARGE},
    }


def test_answers_in_small_pieces(pair):
    """To two requests, the second of which was sent before the first was answered."""
    producing, broker = pair
    first, second = {("töpic", 3): 0, ("other", 1): 6}, {("töpic", 3): 45}
    for places in (first, second):
        producing.send("id", dict.fromkeys(places, b"abc"), 1)
    assert [asked(broker).header.correlation_id for _ in range(2)] == [1, 2]
    whole = answer(first, 1) + answer(second, 2)
    got = []
    for byte in whole:
        broker.sendall(bytes([byte]))
        got += producing.answers()
        assert producing.idle == (len(got) == 2)
    offsets = [dict.fromkeys(places, 7) for places in (first, second)]
    assert got == [ProduceResponse(1, first, offsets[0]), ProduceResponse(2, second, offsets[1])]


def test_more_than_the_socket_takes(pair):
    """Nothing waits: the rest is sent when the broker has read."""
    producing, broker = pair
    batches = {("t", i): LARGE * 100 for i in range(8)}
    producing.send("id", batches, 1)
    assert producing.sending
    received = bytearray()
    while producing.sending:
        received += broker.recv(1 << 20)
        producing.push()
    while len(received) < struct.unpack_from(">i", received)[0] + 4:
        received += broker.recv(1 << 20)
    request = ProduceRequest.decode(bytes(received[4:]), version=VERSION, header=True)
    assert all(bytes(p.records) == LARGE * 100 for p in request.topic_data[0].partition_data)
    assert len(request.topic_data[0].partition_data) == 8


PLACES = {("t", 3): 0}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (answer(PLACES, number=2), "another request"),
        (answer({("t", 4): 0}), "not about the partitions"),
        (answer({("u", 3): 0}), "not about the partitions"),
        (answer({}), "not about the partitions"),
        (answer(PLACES) * 2, "nothing was asked"),
        (struct.pack(">i", 1 << 30), "impossible size"),
        (struct.pack(">i", 10) + answer(PLACES)[4:14], "makes no sense"),
        (answer(PLACES)[:-1], "closed"),
    ],
)
def test_answers_that_are_refused(pair, wrong, why):
    """Number, places, sizes; too many; cut off."""
    producing, broker = pair
    producing.send("id", {("t", 3): b"abc"}, 1)
    broker.sendall(wrong)
    broker.shutdown(socket.SHUT_WR)
    with pytest.raises(OSError, match=why):
        for _ in range(2):
            producing.answers()


def test_what_came_before_the_end_counts(pair):
    """A broker that answers, and then goes."""
    producing, broker = pair
    producing.send("id", {("t", 3): b"abc"}, 1)
    asked(broker)
    broker.sendall(answer(PLACES))
    broker.close()
    assert producing.answers() == [ProduceResponse(1, PLACES, dict.fromkeys(PLACES, 7))]
    with pytest.raises(OSError, match="closed"):
        producing.answers()
