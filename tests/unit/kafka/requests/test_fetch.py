"""The one request that is spoken without a client: what a broker answers, piece by piece, and what must be refused."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.pool import ConnectionPool
from spark_eos.kafka.requests import fetch as module
from spark_eos.kafka.requests.fetch import FetchConnection, FetchResponse, give_back

RECORDS = bytes(range(256)) * 40


@pytest.fixture
def pair() -> Iterator[tuple[FetchConnection, socket.socket]]:
    """A connection and the broker's end of it."""
    ours, theirs = socket.socketpair()
    yield FetchConnection(ours, 0), theirs
    ours.close()
    theirs.close()


def ask(fetching: FetchConnection) -> None:
    fetching.send("töpic", 3, 77, isolation="read_committed", max_bytes=1000, max_wait_ms=5)


def answer(
    number: int = 1,
    error: int = 0,
    partition: int = 3,
    partition_error: int = 0,
    aborted: list[tuple[int, int]] | None = None,
    records: bytes | None = RECORDS,
) -> bytes:
    """By the field list of FetchResponse version 11."""
    count = -1 if aborted is None else len(aborted)
    body = struct.pack(">iihii", number, 0, error, 0, 1) + struct.pack(">h", 6) + "töpic".encode()
    body += struct.pack(">iihqqqi", 1, partition, partition_error, 900, 800, 700, count)
    body += b"".join(struct.pack(">qq", *one) for one in aborted or [])
    body += struct.pack(">ii", -1, -1 if records is None else len(records)) + (records or b"")
    return struct.pack(">i", len(body)) + body


def test_a_request_and_its_answer(pair):
    """Every field of the request; the answer comes in small pieces."""
    fetching, broker = pair
    ask(fetching)
    assert not fetching.idle
    (size,) = struct.unpack(">i", broker.recv(4, socket.MSG_WAITALL))
    request = broker.recv(10_000)
    assert len(request) == size
    assert struct.unpack_from(">hhih9s", request) == (1, 11, 1, 9, b"spark-eos")
    assert struct.unpack_from(">iiiibii", request, 19) == (-1, 5, 1, 1000, 1, 0, -1)
    assert struct.unpack_from(">ih6s", request, 44) == (1, 6, "töpic".encode())
    assert struct.unpack_from(">iiiqqi", request, 56) == (1, 3, -1, 77, -1, 1000)
    assert request[88:] == struct.pack(">ih", 0, 0)

    whole = answer(aborted=[(5, 70), (6, 71)])
    pieces = threading.Thread(target=lambda: [broker.sendall(whole[i : i + 97]) for i in range(0, len(whole), 97)])
    pieces.start()
    ends = {"begin": 700, "stable": 800, "high_watermark": 900}
    assert fetching.receive(5) == FetchResponse(0, len(RECORDS), ((5, 70), (6, 71)), **ends)
    pieces.join()
    assert fetching.buffer[: len(RECORDS)] == RECORDS
    assert fetching.idle


def test_a_rack_is_told_and_the_replica_that_is_named_is_taken(pair):
    """KIP-392: the leader answers without records then."""
    fetching, broker = pair
    fetching.send("töpic", 3, 77, isolation="read_committed", max_bytes=1000, max_wait_ms=5, rack="zöne-a")
    request = broker.recv(10_000)
    assert request[4 + 88 :] == struct.pack(">ih", 0, 7) + "zöne-a".encode()
    whole = answer(records=None)
    broker.sendall(whole[:-8] + struct.pack(">ii", 2, -1))
    assert fetching.receive(5) == FetchResponse(0, 0, (), 700, 800, 900, preferred=2)


def test_a_user_who_is_throttled_gets_an_answer_without_a_word_of_the_partition(pair):
    """Of his quota: no error, and no topic. The connection is as good as before."""
    fetching, broker = pair
    ask(fetching)
    body = struct.pack(">iihii", 1, 900, 0, 0, 0)
    broker.sendall(struct.pack(">i", len(body)) + body)
    assert fetching.receive(5) == FetchResponse(0, 0, throttle_ms=900)
    assert fetching.idle
    ask(fetching)
    broker.sendall(answer(2))
    assert fetching.receive(5).size == len(RECORDS)


def test_answers_one_after_the_other(pair):
    """A short one after a long one; an error of the partition; no records at all."""
    fetching, broker = pair
    for number, (records, error) in enumerate([(RECORDS, 0), (b"abc", 0), (None, 6), (b"", 0)], 1):
        ask(fetching)
        broker.sendall(answer(number, records=records, partition_error=error))
        got = fetching.receive(5)
        assert (got.error, fetching.buffer[: got.size]) == (error, records or b"")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (answer(number=2), "another request"),
        (answer(error=35), "error 35"),
        (answer(partition=4), "not one to this request"),
        (struct.pack(">i", 9999) + answer()[4:], "not one to this request"),
        (answer()[:22] + b"\xff\xff" + answer()[24:], "impossible size"),
        (answer()[:-1], "closed"),
        (b"", "closed"),
    ],
)
def test_answers_that_are_refused(pair, wrong, why):
    """Number, error, place, sizes; cut off."""
    fetching, broker = pair
    ask(fetching)
    broker.sendall(wrong)
    broker.shutdown(socket.SHUT_WR)
    with pytest.raises(OSError, match=why):
        fetching.receive(5)
    assert not fetching.idle


def test_a_silent_broker(pair):
    """Is waited for as long as was said."""
    fetching, _ = pair
    ask(fetching)
    with pytest.raises(TimeoutError):
        fetching.receive(0.05)


def test_a_kept_connection_does_not_keep_the_memory_of_a_large_answer(monkeypatch):
    """A buffer that has grown beyond the limit is let go with its connection's return."""
    monkeypatch.setattr(module, "connection_pool", ConnectionPool(FetchConnection))
    kafka = KafkaProperties({"bootstrap.servers": "a"})
    for node, size in enumerate((module._LARGEST_KEPT, module._LARGEST_KEPT + 1)):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            fetching = FetchConnection(ours, node)
            fetching.buffer = bytearray(size)
            give_back(kafka, fetching)
            assert module.connection_pool.take(kafka, node) is fetching
            assert len(fetching.buffer) == (size if size <= module._LARGEST_KEPT else 0)
