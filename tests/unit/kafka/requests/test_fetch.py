"""Fetch, by a topic's name or its id, against schemas that are generated from Kafka's own message definitions (kio)."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.net.pool import ConnectionPool
from spark_eos.kafka.requests import fetch as module
from spark_eos.kafka.requests.fetch import FetchConnection, FetchResponse, give_back
from tests.support.waiting import TIMEOUT
from tests.wire import codec

ID = uuid.uuid4()
RECORDS = bytes(range(256)) * 40
#: Of answers by the topics' ids, and by their names.
BY_ID, BY_NAME = codec.parts(1, 13), codec.parts(1, 12)
LIMITS: Any = {"isolation": "read_committed", "max_bytes": 1000, "max_wait_ms": 5}

Pair = tuple[FetchConnection, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A connection and the broker's end of it."""
    ours, theirs = socket.socketpair()
    yield FetchConnection(ours, 0), theirs
    ours.close()
    theirs.close()


def received(broker: socket.socket) -> codec.Asked:
    """The next request, as kio reads it."""
    size = int.from_bytes(broker.recv(4, socket.MSG_WAITALL), "big")
    return codec.read(broker.recv(size, socket.MSG_WAITALL))


def asked(pair: Pair, rack: str = "") -> codec.Asked:
    """Send a request for one partition."""
    pair[0].send("töpic", 3, 77, rack=rack, topic_id=ID.bytes, **LIMITS)
    return received(pair[1])


def row(
    kinds: Any,
    partition: int = 3,
    records: bytes | None = RECORDS,
    error: int = 0,
    aborted: list[tuple[int, int]] | None = None,
    **more: Any,
) -> Any:
    """What is said of a partition, by kio."""
    transactions = None
    if aborted is not None:
        transactions = tuple(kinds.AbortedTransaction(producer_id=p, first_offset=first) for p, first in aborted)
    return kinds.PartitionData(
        partition_index=partition,
        error_code=codec.error(error),
        high_watermark=900,
        last_stable_offset=800,
        log_start_offset=700,
        aborted_transactions=transactions,
        preferred_read_replica=2,
        records=records,
        **more,
    )


def answer(to: codec.Asked, topics: dict[Any, list[Any]], *, number: int | None = None, error: int = 0) -> bytes:
    """An answer about rows by topic, by kio."""
    kinds, named = (BY_ID, "topic_id") if to.version == 13 else (BY_NAME, "topic")
    told = kinds.FetchResponse(
        throttle_time=codec.milliseconds(0),
        error_code=codec.error(error),
        responses=tuple(
            kinds.FetchableTopicResponse(**{named: topic}, partitions=tuple(rows)) for topic, rows in topics.items()
        ),
    )
    return codec.write(to, told, number)


def about_one(to: codec.Asked, **more: Any) -> bytes:
    """An answer about the partition of `asked`, in which newer brokers say behind the records who leads."""
    return answer(to, {ID: [row(BY_ID, current_leader=BY_ID.LeaderIdAndEpoch(leader_id=7, leader_epoch=9), **more)]})


def test_a_request_has_the_id_in_place_of_the_name(pair):
    """Every field, no byte more."""
    body = asked(pair, rack="zöne-a").body
    (topic,) = body.topics
    (partition,) = topic.partitions
    assert (topic.topic_id, partition.partition, partition.fetch_offset) == (ID, 3, 77)
    assert (partition.current_leader_epoch, partition.last_fetched_epoch, partition.log_start_offset) == (-1, -1, -1)
    assert (body.max_bytes, partition.partition_max_bytes, body.min_bytes) == (1000, 1000, 1)
    assert (body.isolation_level, body.session_id, body.session_epoch, body.rack_id) == (1, 0, -1, "zöne-a")
    assert (body.replica_id, body.forgotten_topics_data) == (-1, ())


@pytest.mark.parametrize("records", [RECORDS, b"x" * 100, b"", None])
@pytest.mark.parametrize("aborted", [None, [], [(5, 70), (6, 71)], [(i, i) for i in range(200)]])
def test_an_answer_is_read_to_its_end(pair, aborted, records):
    """Numbers of one byte and of several; newer brokers say behind the records who leads. One after the other on one
    connection, in small pieces; an error of the partition, such as that there is no topic of this id; a long one after
    a short one."""
    fetching, broker = pair
    for error, own in ((0, records), (100, records), (0, RECORDS)):
        whole = about_one(asked(pair), aborted=aborted, records=own, error=error)
        pieces = [whole[i : i + 97] for i in range(0, len(whole), 97)]
        sending = threading.Thread(target=lambda some=pieces: [broker.sendall(piece) for piece in some])
        sending.start()
        found = fetching.receive_one(5)
        sending.join()
        wanted = FetchResponse(
            error, len(own or b""), tuple(aborted or ()), 700, 800, 900, 2, lists_aborted=aborted is not None
        )
        assert found == wanted
        assert found.records == (own or b"")
        assert fetching.idle


@pytest.mark.parametrize("more", [-1, 1, 8, -(1 << 13), -(1 << 20)])
def test_an_answer_of_another_size_than_it_says(pair, more):
    """Its parts must fill it."""
    fetching, broker = pair
    whole = about_one(asked(pair))
    size = int.from_bytes(whole[:4], "big") + more
    broker.sendall(size.to_bytes(4, "big", signed=True) + whole[4:] + bytes(10))
    with pytest.raises(OSError, match=r"not one to this request|makes no sense|impossible size|closed"):
        fetching.receive_one(1)


def test_an_answer_without_a_word_of_the_partition(pair):
    """As the user is throttled, which is no error."""
    fetching, broker = pair
    throttled = BY_ID.FetchResponse(throttle_time=codec.milliseconds(900), error_code=codec.error(0), responses=())
    broker.sendall(codec.write(asked(pair), throttled))
    assert fetching.receive_one(5) == FetchResponse(0, 0, throttle_ms=900)
    broker.sendall(about_one(asked(pair)))
    assert fetching.receive_one(5).size == len(RECORDS)


@pytest.mark.parametrize(
    ("topics", "wrong", "why"),
    [
        ({ID: [row(BY_ID)]}, {"number": 9}, "another request"),
        ({}, {"error": 70}, "error 70"),
        ({uuid.uuid4(): [row(BY_ID)]}, {}, "not one to this request"),
        ({ID: [row(BY_ID, 4)]}, {}, "not one to this request"),
    ],
    ids=["number", "error", "topic", "partition"],
)
def test_answers_that_are_refused(pair, topics, wrong, why):
    """What comes behind one is not read."""
    fetching, broker = pair
    broker.sendall(answer(asked(pair), topics, **wrong) + bytes(100))
    with pytest.raises(OSError, match=why):
        fetching.receive_one(5)
    assert not fetching.idle


@pytest.mark.parametrize("kinds", [BY_ID, BY_NAME], ids=["by id", "by name"])
@pytest.mark.parametrize("diverging", [None, (3, 1 << 40), (-1, -1)])
def test_a_request_with_epochs(pair, kinds, diverging):
    """The last record's, and the leader's, by the topic's id or its name. A broker whose log is another one says where,
    behind the records; -1 is none."""
    fetching, broker = pair
    fetching.leader_epoch = 6
    fetching.send("töpic", 3, 77, last_epoch=5, topic_id=ID.bytes if kinds is BY_ID else b"", **LIMITS)
    to = received(broker)
    (topic,) = to.body.topics
    (partition,) = topic.partitions
    name = topic.topic_id if kinds is BY_ID else topic.topic
    assert name == (ID if kinds is BY_ID else "töpic")
    assert (partition.fetch_offset, partition.last_fetched_epoch, partition.current_leader_epoch) == (77, 5, 6)
    if diverging is None:
        rows = [row(kinds)]
    else:
        epoch, offset = diverging
        rows = [row(kinds, records=b"", diverging_epoch=kinds.EpochEndOffset(epoch=epoch, end_offset=offset))]
    broker.sendall(answer(to, {name: rows}))
    found = fetching.receive_one(5)
    assert found.diverging == (diverging if diverging == (3, 1 << 40) else None)
    assert found.size == (len(RECORDS) if diverging is None else 0)
    assert (found.begin, found.stable, found.high_watermark, found.preferred) == (700, 800, 900, 2)
    assert fetching.idle


OTHER = uuid.UUID(int=7)


@pytest.mark.parametrize("ids", [None, {"töpic": ID.bytes, "b": OTHER.bytes}], ids=["by name", "by id"])
def test_many_partitions_in_one_request(pair, ids):
    """Each with its own offset and size; the answer in another order, with records of any size or none, and not of all.
    A topic is asked for by its id where that is known, so that nothing comes of another one that has its name."""
    fetching, broker = pair
    first, second, kinds = ("töpic", "b", BY_NAME) if ids is None else (ID, OTHER, BY_ID)
    wanted = {"töpic": [(3, 8, 77, 100), (0, 9, 1 << 40, 200)], "b": [(7, -1, 5, 300)]}
    for _ in range(2):
        fetching.send_many(wanted, ids=ids, **LIMITS)
        to = received(broker)
        found = {
            (topic.topic if ids is None else topic.topic_id, p.partition): (
                p.current_leader_epoch,
                p.fetch_offset,
                p.partition_max_bytes,
                p.last_fetched_epoch,
            )
            for topic in to.body.topics
            for p in topic.partitions
        }
        assert found == {(first, 3): (8, 77, 100, -1), (first, 0): (9, 1 << 40, 200, -1), (second, 7): (-1, 5, 300, -1)}
        rows = [row(kinds, 0, aborted=[(5, 70)]), row(kinds, 3, b"abc", aborted=[(5, 70)])]
        broker.sendall(answer(to, {second: [row(kinds, 7, b"", aborted=[(5, 70)])], first: rows}))
        answers = fetching.receive_many(5)
        records = {place: answer.records for place, answer in answers.items()}
        assert records == {("b", 7): b"", ("töpic", 0): RECORDS, ("töpic", 3): b"abc"}
        told = {(a.aborted, a.begin, a.stable, a.high_watermark) for a in answers.values()}
        assert told == {(((5, 70),), 700, 800, 900)}
        assert fetching.idle
    fetching.send_many(wanted, ids=ids, **LIMITS)
    broker.sendall(answer(received(broker), {first: rows[1:]}))
    assert {place: answer.records for place, answer in fetching.receive_many(5).items()} == {("töpic", 3): b"abc"}


@pytest.mark.parametrize(
    "topics",
    [{"b": [7], "töpic": [0, 3, 4]}, {"b": [7], "c": [0], "töpic": [0, 3]}],
    ids=["another partition", "another topic"],
)
def test_an_answer_about_other_partitions_is_refused(pair, topics):
    """It may say nothing of some, but nothing of others either."""
    fetching, broker = pair
    fetching.send_many({"töpic": [(3, -1, 77, 100), (0, -1, 1 << 40, 200)], "b": [(7, -1, 5, 300)]}, **LIMITS)
    told = {name: [row(BY_NAME, partition, b"") for partition in some] for name, some in topics.items()}
    broker.sendall(answer(received(broker), told))
    with pytest.raises(OSError, match="not one to this request"):
        fetching.receive_many(5)


def test_the_bytes_of_an_answer_stay_with_whoever_takes_them(pair):
    """The next answer is received elsewhere."""
    fetching, broker = pair
    broker.sendall(about_one(asked(pair)))
    first = fetching.receive_one(5)
    assert fetching.take_buffer() is first.data
    broker.sendall(about_one(asked(pair), records=bytes(len(RECORDS))))
    assert fetching.receive_one(5).records == bytes(len(RECORDS))
    assert first.records == RECORDS


def test_a_silent_broker(pair):
    """Is waited for as long as was said."""
    fetching, _ = pair
    asked(pair)
    with pytest.raises(TimeoutError):
        fetching.receive_one(0.05)


def test_a_kept_connection_does_not_keep_the_memory_of_a_large_answer():
    """A buffer that has grown beyond the limit is let go with its connection's return."""
    client = BrokerClient(KafkaProperties({"bootstrap.servers": "a"}))
    for node, (size, kept) in enumerate([(4 << 20, 4 << 20), ((4 << 20) + 1, 0)]):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            fetching = FetchConnection(ours, node)
            fetching.buffer = bytearray(size)
            give_back(client, fetching)
            assert client.pool.take(FetchConnection, node) is fetching
            assert len(fetching.buffer) == kept


class TwoLeaders:
    """Broker 0 leads partition 2, and its host drops packets; broker 1 leads partition 3. ``opened``: for how many
    seconds each may be tried. ``served``: broker 1 has answered."""

    silence_s = TIMEOUT

    def __init__(self, ours: socket.socket) -> None:
        self.pool, self.ours = ConnectionPool(), ours
        self.opened: dict[int, float] = {}
        self.served = threading.Event()

    def leaders(self, *_: object) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], int]]:
        return {("töpic", 2): 0, ("töpic", 3): 1}, {}

    def connection(self, kind: type[FetchConnection], node: int, timeout_s: float = 10.0) -> FetchConnection:
        self.opened[node] = timeout_s
        if node == 0:
            assert self.served.wait(timeout_s)
            raise TimeoutError("timed out")
        return self.pool.take(kind, node) or kind(self.ours, node)

    def leader_epoch(self, *_: object) -> int:
        return -1

    def forget_leader(self, *_: object) -> None: ...


@pytest.mark.parametrize("idle", [False, True])
def test_a_leader_that_cannot_be_reached_takes_nobody_elses_time(idle):
    """Nor more than there is."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        theirs.sendall(about_one(received(theirs)))
        client.served.set()

    thread = threading.Thread(target=serve)
    client: Any = TwoLeaders(ours)
    if idle:
        client.pool.give_back(FetchConnection(ours, 1))
    with ours, theirs:
        thread.start()
        wanted = {("töpic", 2): (0, 10), ("töpic", 3): (77, 10)}
        limits: Any = {"isolation": "read_committed", "max_bytes": 1000, "timeout_s": TIMEOUT}
        found = module.fetch_many(client, wanted, ids={"töpic": ID.bytes}, **limits)
        thread.join()
    assert {place: data for place, (_, data) in found.items()} == {("töpic", 3): RECORDS}
    assert client.opened.keys() == {0, 1} and max(client.opened.values()) <= TIMEOUT


@pytest.mark.parametrize("silent", [1, 3])
def test_a_leader_that_falls_silent_takes_nobody_elses_time(silent, monkeypatch):
    """Its connection is idle, and was sound. The other broker is far away, so that the rest of a large answer takes a
    while to come once there is room for it."""
    ours, theirs = socket.socketpair()
    large = bytes(8 << 20)

    def serve() -> None:
        left = memoryview(about_one(received(theirs), records=large))
        theirs.setblocking(False)
        while left:
            try:
                left = left[theirs.send(left) :]
            except BlockingIOError:
                select.select([], [theirs], [])
                time.sleep(0.2)
                theirs.setblocking(True)

    client: Any = BrokerClient(KafkaProperties({"bootstrap.servers": "a"}))
    far = silent
    receive, is_read = FetchConnection.receive_many, threading.Event()

    def in_turn(self: FetchConnection, timeout_s: float) -> Any:
        """The silent ones' time is over soon after the other one's answer is here."""
        assert timeout_s <= client.silence_s
        if self.node == far:
            found = receive(self, TIMEOUT)
            is_read.set()
            return found
        assert is_read.wait(TIMEOUT)
        return receive(self, 0.1)

    monkeypatch.setattr(FetchConnection, "receive_many", in_turn)
    client._leaders = {("töpic", 4 + node): node for node in range(silent)} | {("töpic", 3): far}
    thread = threading.Thread(target=serve)
    with ours, theirs, contextlib.ExitStack() as stack:
        for node in range(silent):
            hole = [stack.enter_context(end) for end in socket.socketpair()]
            client.pool.give_back(FetchConnection(hole[0], node))
        client.pool.give_back(FetchConnection(ours, far))
        thread.start()
        wanted = dict.fromkeys(client._leaders, (77, 10))
        limits: Any = {"isolation": "read_committed", "max_bytes": 1000, "timeout_s": TIMEOUT}
        found = module.fetch_many(client, wanted, ids={"töpic": ID.bytes}, **limits)
        theirs.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert {place: data == large for place, (_, data) in found.items()} == {("töpic", 3): True}
    assert list(client._leaders) == [("töpic", 3)]
