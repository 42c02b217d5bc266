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
KINDS = codec.parts(1, 13)


@pytest.fixture
def pair() -> Iterator[tuple[FetchConnection, socket.socket]]:
    """A connection and the broker's end of it."""
    ours, theirs = socket.socketpair()
    yield FetchConnection(ours, 0), theirs
    ours.close()
    theirs.close()


def asked(pair: tuple[FetchConnection, socket.socket], rack: str = "") -> codec.Asked:
    """Send a request; how kio reads it."""
    fetching, broker = pair
    limits = {"max_bytes": 1000, "max_wait_ms": 5}
    fetching.send("töpic", 3, 77, isolation="read_committed", rack=rack, topic_id=ID.bytes, **limits)
    size = int.from_bytes(broker.recv(4, socket.MSG_WAITALL), "big")
    return codec.read(broker.recv(size, socket.MSG_WAITALL))


def answer(
    to: codec.Asked,
    *,
    number: int | None = None,
    error: int = 0,
    topic_id: uuid.UUID = ID,
    partition: int = 3,
    partition_error: int = 0,
    aborted: list[tuple[int, int]] | None = None,
    records: bytes | None = RECORDS,
) -> bytes:
    """By kio."""
    transactions = None
    if aborted is not None:
        transactions = tuple(KINDS.AbortedTransaction(producer_id=p, first_offset=first) for p, first in aborted)
    row = KINDS.PartitionData(
        partition_index=partition,
        error_code=codec.error(partition_error),
        high_watermark=900,
        last_stable_offset=800,
        log_start_offset=700,
        current_leader=KINDS.LeaderIdAndEpoch(leader_id=7, leader_epoch=9),
        aborted_transactions=transactions,
        preferred_read_replica=2,
        records=records,
    )
    topics = (KINDS.FetchableTopicResponse(topic_id=topic_id, partitions=(row,)),)
    told: Any = KINDS.FetchResponse(
        throttle_time=codec.milliseconds(0), error_code=codec.error(error), responses=() if error else topics
    )
    return codec.write(to, told, number)


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
    """Numbers of one byte and of several; newer brokers say behind the records who leads. Twice, on one connection."""
    fetching, broker = pair
    for _ in range(2):
        broker.sendall(answer(asked(pair), aborted=aborted, records=records))
        wanted = FetchResponse(
            0, len(records or b""), tuple(aborted or ()), 700, 800, 900, 2, lists_aborted=aborted is not None
        )
        found = fetching.receive_one(5)
        assert found == wanted
        assert found.records == (records or b"")
        assert fetching.idle


def test_an_error_of_the_partition_is_told(pair):
    """That no topic with this id is there, for example."""
    fetching, broker = pair
    broker.sendall(answer(asked(pair), partition_error=100, records=None))
    assert fetching.receive_one(5).error == 100


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"number": 9}, "another request"),
        ({"error": 70}, "error 70"),
        ({"topic_id": uuid.uuid4()}, "not one to this request"),
        ({"partition": 4}, "not one to this request"),
    ],
)
def test_answers_that_are_refused(pair, wrong, why):
    """Number, error, topic, partition."""
    fetching, broker = pair
    broker.sendall(answer(asked(pair), **wrong) + bytes(100))
    with pytest.raises(OSError, match=why):
        fetching.receive_one(5)
    assert not fetching.idle


@pytest.mark.parametrize("cut", [3, 30, 80, -1])
def test_answers_that_are_cut_off(pair, cut):
    """Wherever it is."""
    fetching, broker = pair
    broker.sendall(answer(asked(pair))[:cut])
    broker.shutdown(socket.SHUT_WR)
    with pytest.raises(OSError, match="closed"):
        fetching.receive_one(5)


@pytest.mark.parametrize("more", [-1, 1, 8, -(1 << 13), -(1 << 20)])
def test_an_answer_of_another_size_than_it_says(pair, more):
    """Its parts must fill it."""
    fetching, broker = pair
    whole = answer(asked(pair))
    size = int.from_bytes(whole[:4], "big") + more
    broker.sendall(size.to_bytes(4, "big", signed=True) + whole[4:] + bytes(10))
    with pytest.raises(OSError, match=r"not one to this request|makes no sense|impossible size|closed"):
        fetching.receive_one(1)


def test_a_user_who_is_throttled_gets_an_answer_without_a_word_of_the_partition(pair):
    """Of his quota: no error, and no topic. The connection is as good as before."""
    fetching, broker = pair
    to = asked(pair)
    told: Any = KINDS.FetchResponse(throttle_time=codec.milliseconds(900), error_code=codec.error(0), responses=())
    broker.sendall(codec.write(to, told))
    assert fetching.receive_one(5) == FetchResponse(0, 0, throttle_ms=900)
    assert fetching.idle
    broker.sendall(answer(asked(pair)))
    assert fetching.receive_one(5).size == len(RECORDS)


NAMED = codec.parts(1, 12)


@pytest.mark.parametrize("by_id", [True, False], ids=["by id", "by name"])
@pytest.mark.parametrize("diverging", [None, (3, 1 << 40), (-1, -1)])
def test_a_request_with_the_last_epoch(pair, by_id, diverging):
    """By the topic's id or its name. A broker whose log is another one says where, behind the records; -1 is none."""
    fetching, broker = pair
    limits = {"max_bytes": 1000, "max_wait_ms": 5, "topic_id": ID.bytes if by_id else b""}
    fetching.send("töpic", 3, 77, isolation="read_committed", last_epoch=5, **limits)
    size = int.from_bytes(broker.recv(4, socket.MSG_WAITALL), "big")
    to = codec.read(broker.recv(size, socket.MSG_WAITALL))
    (topic,) = to.body.topics
    (partition,) = topic.partitions
    assert (topic.topic_id == ID) if by_id else (topic.topic == "töpic")
    assert (partition.fetch_offset, partition.last_fetched_epoch, partition.current_leader_epoch) == (77, 5, -1)
    kinds: Any = KINDS if by_id else NAMED
    more = (
        {}
        if diverging is None
        else {"diverging_epoch": kinds.EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])}
    )
    row = kinds.PartitionData(
        partition_index=3,
        error_code=codec.error(0),
        high_watermark=900,
        last_stable_offset=800,
        log_start_offset=700,
        aborted_transactions=None,
        preferred_read_replica=-1,
        records=RECORDS if diverging is None else b"",
        **more,
    )
    named = {"topic_id": ID} if by_id else {"topic": "töpic"}
    told: Any = kinds.FetchResponse(
        throttle_time=codec.milliseconds(0),
        error_code=codec.error(0),
        responses=(kinds.FetchableTopicResponse(partitions=(row,), **named),),
    )
    broker.sendall(codec.write(to, told, None))
    found = fetching.receive_one(5)
    assert found.diverging == (diverging if diverging == (3, 1 << 40) else None)
    assert found.size == (len(RECORDS) if diverging is None else 0)
    assert (found.begin, found.stable, found.high_watermark, found.preferred) == (700, 800, 900, -1)
    assert fetching.idle


def fetched(partition: int, records: bytes | None, error: int = 0) -> Any:
    """What is said of a partition, by kio."""
    return NAMED.PartitionData(
        partition_index=partition,
        error_code=codec.error(error),
        high_watermark=900,
        last_stable_offset=800,
        log_start_offset=700,
        aborted_transactions=None if error else (NAMED.AbortedTransaction(producer_id=5, first_offset=70),),
        preferred_read_replica=-1,
        records=records,
    )


def many(to: codec.Asked, **topics: dict[int, bytes]) -> bytes:
    """An answer about several partitions, by kio."""
    told: Any = NAMED.FetchResponse(
        throttle_time=codec.milliseconds(0),
        error_code=codec.error(0),
        responses=tuple(
            NAMED.FetchableTopicResponse(topic=name, partitions=tuple(fetched(p, data) for p, data in of.items()))
            for name, of in topics.items()
        ),
    )
    return codec.write(to, told)


def asked_many(pair: tuple[FetchConnection, socket.socket]) -> codec.Asked:
    """Ask for three partitions of two topics."""
    fetching, broker = pair
    wanted = {"töpic": [(3, 77, 100), (0, 1 << 40, 200)], "b": [(7, 5, 300)]}
    fetching.send_many(wanted, isolation="read_committed", max_bytes=1000, max_wait_ms=5)
    size = int.from_bytes(broker.recv(4, socket.MSG_WAITALL), "big")
    return codec.read(broker.recv(size, socket.MSG_WAITALL))


def test_many_partitions_in_one_request(pair):
    """Each with its own offset and size; the answer in another order, with records of any size or none."""
    fetching, broker = pair
    for _ in range(2):
        to = asked_many(pair)
        found = {
            (topic.topic, p.partition): (p.fetch_offset, p.partition_max_bytes, p.last_fetched_epoch)
            for topic in to.body.topics
            for p in topic.partitions
        }
        assert found == {("töpic", 3): (77, 100, -1), ("töpic", 0): (1 << 40, 200, -1), ("b", 7): (5, 300, -1)}
        broker.sendall(many(to, b={7: b""}, töpic={0: RECORDS, 3: b"abc"}))
        answers = fetching.receive_many(5)
        records = {place: answer.records for place, answer in answers.items()}
        assert records == {("b", 7): b"", ("töpic", 0): RECORDS, ("töpic", 3): b"abc"}
        assert {(a.aborted, a.begin, a.stable, a.high_watermark) for a in answers.values()} == {
            (((5, 70),), 700, 800, 900)
        }
        assert fetching.idle


def test_many_partitions_of_topics_by_their_ids(pair):
    """Of a topic that has the name by then, and another id, nothing comes."""
    fetching, broker = pair
    ids = {"töpic": ID.bytes, "b": uuid.UUID(int=7).bytes}
    wanted = {"töpic": [(3, 77, 100)], "b": [(7, 5, 300)]}
    fetching.send_many(wanted, isolation="read_committed", max_bytes=1000, max_wait_ms=5, ids=ids)
    size = int.from_bytes(broker.recv(4, socket.MSG_WAITALL), "big")
    to = codec.read(broker.recv(size, socket.MSG_WAITALL))
    found = {(t.topic_id, p.partition, p.fetch_offset) for t in to.body.topics for p in t.partitions}
    assert found == {(ID, 3, 77), (uuid.UUID(int=7), 7, 5)}
    row = KINDS.PartitionData(
        partition_index=3,
        error_code=codec.error(0),
        high_watermark=900,
        last_stable_offset=800,
        log_start_offset=700,
        aborted_transactions=None,
        preferred_read_replica=-1,
        records=RECORDS,
    )
    told: Any = KINDS.FetchResponse(
        throttle_time=codec.milliseconds(0),
        error_code=codec.error(0),
        responses=(KINDS.FetchableTopicResponse(topic_id=ID, partitions=(row,)),),
    )
    broker.sendall(codec.write(to, told))
    assert {place: answer.records for place, answer in fetching.receive_many(5).items()} == {("töpic", 3): RECORDS}


@pytest.mark.parametrize(
    "topics",
    [
        {"b": {7: b""}, "töpic": {0: b"", 3: b"", 4: b""}},
        {"b": {7: b""}, "c": {0: b""}, "töpic": {0: b"", 3: b""}},
    ],
    ids=["another partition", "another topic"],
)
def test_an_answer_about_other_partitions_is_refused(pair, topics):
    """It may say nothing of some, but nothing of others either."""
    fetching, broker = pair
    broker.sendall(many(asked_many(pair), **topics))
    with pytest.raises(OSError, match="not one to this request"):
        fetching.receive_many(5)


def test_an_answer_in_small_pieces(pair):
    """Of any place in it."""
    fetching, broker = pair
    whole = answer(asked(pair), aborted=[(5, 70), (6, 71)])
    pieces = threading.Thread(target=lambda: [broker.sendall(whole[i : i + 97]) for i in range(0, len(whole), 97)])
    pieces.start()
    found = fetching.receive_one(5)
    pieces.join()
    assert found == FetchResponse(0, len(RECORDS), ((5, 70), (6, 71)), 700, 800, 900, 2)
    assert found.records == RECORDS
    assert fetching.idle


def test_answers_one_after_the_other(pair):
    """A short one after a long one; an error of the partition; no records at all."""
    fetching, broker = pair
    for records, error in [(RECORDS, 0), (b"abc", 0), (None, 6), (b"", 0)]:
        broker.sendall(answer(asked(pair), records=records, partition_error=error))
        found = fetching.receive_one(5)
        assert (found.error, found.records) == (error, records or b"")


def test_the_bytes_of_an_answer_stay_with_whoever_takes_them(pair):
    """The next answer is received elsewhere."""
    fetching, broker = pair
    broker.sendall(answer(asked(pair)))
    first = fetching.receive_one(5)
    assert fetching.take_buffer() is first.data
    broker.sendall(answer(asked(pair), records=bytes(len(RECORDS))))
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
    for node, size in enumerate((module._LARGEST_KEPT, module._LARGEST_KEPT + 1)):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            fetching = FetchConnection(ours, node)
            fetching.buffer = bytearray(size)
            give_back(client, fetching)
            assert client.pool.take(FetchConnection, node) is fetching
            assert len(fetching.buffer) == (size if size <= module._LARGEST_KEPT else 0)


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

    def forget_leader(self, *_: object) -> None: ...


@pytest.mark.parametrize("idle", [False, True])
def test_a_leader_that_cannot_be_reached_takes_nobody_elses_time(idle):
    """Nor more than there is."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        size = int.from_bytes(theirs.recv(4, socket.MSG_WAITALL), "big")
        theirs.sendall(answer(codec.read(theirs.recv(size, socket.MSG_WAITALL))))
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
        size = int.from_bytes(theirs.recv(4, socket.MSG_WAITALL), "big")
        left = memoryview(answer(codec.read(theirs.recv(size, socket.MSG_WAITALL)), records=large))
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
    receive, received = FetchConnection.receive_many, threading.Event()

    def in_turn(self: FetchConnection, timeout_s: float) -> Any:
        """The silent ones' time is over soon after the other one's answer is here."""
        assert timeout_s <= client.silence_s
        if self.node == far:
            found = receive(self, TIMEOUT)
            received.set()
            return found
        assert received.wait(TIMEOUT)
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
