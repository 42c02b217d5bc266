"""Fetch requests on a socket of their own: bytes as the broker sends them. Of one partition at a time without a copy;
of many that have little, in one request.

A request is sent when the caller says so and its answer taken later, so that the broker reads and sends while the
caller is busy.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from spark_eos import system
from spark_eos.kafka.codes import LEADER_MOVED, OK
from spark_eos.kafka.config.handshake import silence_seconds
from spark_eos.kafka.config.properties import Isolation, KafkaProperties
from spark_eos.kafka.net import sessions
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.net.pool import ConnectionPool
from spark_eos.kafka.net.schema import NO_TAGS
from spark_eos.kafka.requests import fetch_by_id
from spark_eos.topic_partition import TopicPartition

_FETCH = 1
#: The last one of plain fields; brokers have it since Kafka 2.3.
_VERSION = 11
_NO_SESSION = (0, -1)
#: A size in an answer beyond this is no size: an answer is as large as asked for, or as one record batch.
_LARGEST = 1 << 30
#: Bytes a second, on average after the first seconds: a broker that sends less keeps a connection for nothing.
_SLOWEST = 1024

#: Of the answer: its size and the request's number; throttle time, error, session, number of topics …
_BEGIN = struct.Struct(">iiihii")
#: … of this name, and one partition: number, error, high watermark, last stable offset, log start, aborted transactions
_PARTITION = struct.Struct(">iihqqqi")
#: The same of many: all before the topics without the size; a topic's name; the number of partitions; one of these.
_MANY, _NAME, _COUNT, _ONE = (struct.Struct(fields) for fields in (">iihii", ">h", ">i", ">ihqqqi"))
_ABORTED = struct.Struct(">qq")
#: The replica to prefer, and the size of the records, which are the rest.
_END = struct.Struct(">ii")


@dataclass(frozen=True)
class FetchResponse:
    """``error`` is Kafka's code. The records are the first ``size`` bytes of `FetchConnection.buffer`, until the next
    answer is taken; ``aborted`` are transactions by (producer id, first offset), none for read_uncommitted.

    ``begin``, ``stable`` and ``high_watermark`` are the partition's first offset, last stable offset and high watermark
    at that moment; -1 with an error. ``preferred``: the replica that the leader names as the nearest to the rack that
    asks (KIP-392), without any records; -1 where it is itself to be asked. ``throttle_ms``: by the user's quota the
    broker answers without a word of the partition, and reads the next request after this time; 0 else. ``diverging``:
    epoch and offset from which on the log is another one than that of the request, without any records.
    ``lists_aborted``: of answers about many partitions, whether the broker has looked for aborted transactions at all.
    """

    error: int
    size: int
    aborted: tuple[tuple[int, int], ...] = ()
    begin: int = -1
    stable: int = -1
    high_watermark: int = -1
    preferred: int = -1
    throttle_ms: int = 0
    diverging: tuple[int, int] | None = None
    lists_aborted: bool = True


class FetchConnection:
    """One connection to one broker. Once it is broken, every call raises OSError; close it then.

    ``idle``: nothing is awaited, so that it can be used for another partition.
    """

    def __init__(self, broker: socket.socket, node: int, client_id: str = "spark-eos") -> None:
        self.node = node
        self.idle = True
        self.buffer = bytearray()
        self._client_id = client_id.encode()
        self._socket = broker
        self._number = 0
        self._partition = -1
        self._topic = b""
        self._until = 0.0

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    @property
    def due(self) -> bool:
        """The broker wants to know again who this is: replace it, when nothing is awaited."""
        return sessions.is_due(self._socket)

    def send(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        isolation: Isolation,
        max_bytes: int,
        max_wait_ms: int,
        rack: str = "",
        topic_id: bytes = b"",
        last_epoch: int = -1,
    ) -> None:
        """Ask for records from ``offset`` on: about ``max_bytes``, but a first batch that is larger comes whole.

        With ``topic_id``, of 16 bytes, only those of the topic that has it; brokers have to speak `is_spoken_by_id`.
        With ``last_epoch``, only those of a log that has a record of that leader epoch before the offset.
        """
        self._partition, self._topic = partition, b""
        if topic_id or last_epoch >= 0:
            committed = isolation == "read_committed"
            limits = {"max_bytes": max_bytes, "max_wait_ms": max_wait_ms}
            version, self._topic = named = fetch_by_id.topic_of(topic, topic_id)
            body = fetch_by_id.body(named, partition, offset, last_epoch, committed=committed, rack=rack, **limits)
            self._write(version, NO_TAGS, body)
            return
        self.send_many(
            {topic: [(partition, offset, max_bytes)]},
            isolation=isolation,
            max_bytes=max_bytes,
            max_wait_ms=max_wait_ms,
            rack=rack,
        )

    def send_many(
        self,
        wanted: Mapping[str, Sequence[tuple[int, int, int]]],
        *,
        isolation: Isolation,
        max_bytes: int,
        max_wait_ms: int,
        rack: str = "",
    ) -> None:
        """Ask for records of partitions: topic → (partition, offset, bytes), about so many of each, and ``max_bytes``
        in all, in their order: some may come without records then."""
        committed = isolation == "read_committed"
        limits = struct.pack(">iiiibii", -1, max_wait_ms, 1, max_bytes, committed, *_NO_SESSION)
        places = [struct.pack(">i", len(wanted))]
        for topic, partitions in wanted.items():
            name = topic.encode()
            places.append(struct.pack(">h", len(name)) + name + struct.pack(">i", len(partitions)))
            places += [struct.pack(">iiqqi", number, -1, offset, -1, size) for number, offset, size in partitions]
        own_rack = rack.encode()
        nothing_forgotten = struct.pack(">ih", 0, len(own_rack)) + own_rack
        self._write(_VERSION, limits, *places, nothing_forgotten)

    def _write(self, version: int, *body: bytes) -> None:
        self._number += 1
        self.idle = False
        head = struct.pack(">hhih", _FETCH, version, self._number, len(self._client_id)) + self._client_id
        request = b"".join([head, *body])
        self._socket.sendall(struct.pack(">i", len(request)) + request)

    def receive(self, timeout_s: float) -> FetchResponse:
        """The answer to what was sent; each piece of it within the time, and all of it within a time by its size."""
        self._begin_answer(timeout_s)
        if self._topic:
            head = fetch_by_id.take_head(self._take, self._number, self._topic, self._partition)
            if isinstance(head, int):
                return self._throttled(head)
            response, behind = FetchResponse(*head[0]), head[1]
            self._fill_buffer(response.size)
            diverging = fetch_by_id.read_end(self._take(behind))
            self.idle = True
            return response if diverging is None else replace(response, diverging=diverging)
        size, number, throttle_ms, error, _, topics = _BEGIN.unpack(self._take(_BEGIN.size))
        if number != self._number:
            raise OSError("the broker answers another request")
        if throttle_ms > 0 and (error, topics, size + 4) == (OK, 0, _BEGIN.size):
            return self._throttled(throttle_ms)
        if error or topics != 1:
            raise OSError(f"the broker refuses to fetch (error {error})")
        (name_size,) = _NAME.unpack(self._take(_NAME.size))
        self._take(name_size)
        partitions, partition, error, high_watermark, stable, begin, count = _PARTITION.unpack(
            self._take(_PARTITION.size)
        )
        if max(count, 0) * _ABORTED.size > size:
            raise OSError("the broker's answer is not one to this request")
        aborted = tuple(_ABORTED.iter_unpack(self._take(max(count, 0) * _ABORTED.size)))
        preferred, records = _END.unpack(self._take(_END.size))
        records = max(records, 0)
        sizes = (
            _BEGIN.size + _NAME.size + name_size + _PARTITION.size + len(aborted) * _ABORTED.size + _END.size + records
        )
        if (partitions, partition) != (1, self._partition) or size + 4 != sizes:
            raise OSError("the broker's answer is not one to this request")
        self._fill_buffer(records)
        self.idle = True
        return FetchResponse(error, records, aborted, begin, stable, high_watermark, preferred)

    def _begin_answer(self, timeout_s: float) -> None:
        self._socket.settimeout(timeout_s)
        self._until = system.monotonic() + timeout_s

    def _throttled(self, millis: int) -> FetchResponse:
        self.idle = True
        return FetchResponse(OK, 0, throttle_ms=millis)

    def receive_many(self, timeout_s: float) -> dict[TopicPartition, tuple[FetchResponse, bytes]]:
        """The answer to what was sent by `send_many`, with the records' bytes, by (topic, partition)."""
        self._begin_answer(timeout_s)
        (size,) = _COUNT.unpack(self._take(_COUNT.size))
        answer = self._take(size)
        try:
            number, _, error, _, topics = _MANY.unpack_from(answer)
            if number != self._number:
                raise OSError("the broker answers another request")
            if error:
                raise OSError(f"the broker refuses to fetch (error {error})")
            found, end = _places(answer, topics)
        except (struct.error, UnicodeDecodeError) as damage:
            raise OSError(f"the broker's answer cannot be read: {damage}") from None
        if end != size:
            raise OSError("the broker's answer is not one to this request")
        self.idle = True
        return found

    def take_buffer(self) -> bytearray:
        """The buffer with the last answer's records, which is the caller's from now on."""
        taken, self.buffer = self.buffer, bytearray()
        return taken

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= _LARGEST:
            raise OSError("the broker's answer has an impossible size")
        piece = bytearray(size)
        self._fill(memoryview(piece))
        return bytes(piece)

    def _fill_buffer(self, size: int) -> None:
        if not 0 <= size <= _LARGEST:
            raise OSError("the broker's answer has an impossible size")
        if len(self.buffer) < size:
            self.buffer = bytearray(size)
        self._fill(memoryview(self.buffer)[:size])

    def _fill(self, buffer: memoryview) -> None:
        while buffer:
            count = self._socket.recv_into(buffer)
            if not count:
                raise OSError("the broker has closed the connection")
            buffer = buffer[count:]
            self._until += count / _SLOWEST
            if buffer and system.monotonic() > self._until:
                raise TimeoutError("the broker's answer does not come to an end")


def _places(answer: bytes, topics: int) -> tuple[dict[TopicPartition, tuple[FetchResponse, bytes]], int]:
    """The partitions of an answer, and where it ends. Raises struct.error where it is too short."""
    found: dict[TopicPartition, tuple[FetchResponse, bytes]] = {}
    at = _MANY.size
    for _ in range(topics):
        (length,) = _NAME.unpack_from(answer, at)
        if length < 0:  # it would lead back
            raise struct.error("a topic without a name")
        topic = answer[at + _NAME.size : at + _NAME.size + length].decode()
        at += _NAME.size + length
        (partitions,) = _COUNT.unpack_from(answer, at)
        at += _COUNT.size
        for _ in range(partitions):
            number, error, high_watermark, stable, begin, count = _ONE.unpack_from(answer, at)
            at += _ONE.size
            ends = at + max(count, 0) * _ABORTED.size
            aborted = tuple(_ABORTED.iter_unpack(answer[at:ends]))
            preferred, records = _END.unpack_from(answer, ends)
            at = ends + _END.size
            data = answer[at : at + max(records, 0)]
            at += max(records, 0)
            offsets = begin, stable, high_watermark
            response = FetchResponse(error, len(data), aborted, *offsets, preferred, lists_aborted=count >= 0)
            found[topic, number] = response, data
    return found, at


connection_pool = ConnectionPool(FetchConnection)
_LARGEST_KEPT = 4 * 1024 * 1024


def connect(kafka: KafkaProperties, topic: str, partition: int, replica: int | None = None) -> FetchConnection:
    """A connection to the partition's leader, or to that replica; one that was given back or a new one. Raises
    OSError."""
    client = broker_client(kafka)
    if replica is not None:
        return connection_pool.connect(client, replica)
    leader = client.leader(topic, partition)
    if leader is None:
        raise OSError(f"{topic}-{partition} has no leader that is known")
    try:
        return connection_pool.connect(client, leader)
    except OSError:
        client.forget_leader(topic, partition)
        raise


def give_back(kafka: KafkaProperties, connection: FetchConnection) -> None:
    """Keep a connection for the next who reads from its broker, without the memory that a large answer took."""
    if len(connection.buffer) > _LARGEST_KEPT:
        connection.buffer = bytearray()
    connection_pool.give_back(kafka, connection)


def is_spoken(kafka: KafkaProperties) -> bool:
    """Whether the brokers speak this version. Raises ConnectionFailed."""
    return broker_client(kafka).speaks(_FETCH, _VERSION)


def is_spoken_by_id(kafka: KafkaProperties) -> bool:
    """Whether the brokers let topics be fetched by their ids. Raises ConnectionFailed."""
    return broker_client(kafka).speaks(_FETCH, fetch_by_id.BY_ID_VERSION)


#: By (topic, partition), with the records' bytes.
Answers = dict[TopicPartition, tuple[FetchResponse, bytes]]


def fetch_many(
    kafka: KafkaProperties,
    wanted: Mapping[TopicPartition, tuple[int, int]],
    *,
    isolation: Isolation,
    max_bytes: int,
    timeout_s: float,
) -> Answers:
    """What partitions hold, as far as it is there: from an offset on, about so many bytes, and ``max_bytes`` of each
    leader. One request to each, all at once; leaders that do not answer in time are left out. Raises ConnectionFailed
    if no broker responds."""
    client, deadline = broker_client(kafka), system.monotonic() + timeout_s
    by_leader: dict[int, dict[str, list[tuple[int, int, int]]]] = {}
    for (topic, partition), node in client.leaders(wanted, timeout_s)[0].items():
        by_leader.setdefault(node, {}).setdefault(topic, []).append((partition, *wanted[topic, partition]))
    asked: list[FetchConnection] = []
    for node, places in by_leader.items():
        try:
            connection = connection_pool.connect(client, node)
        except OSError:
            continue
        asked.append(connection)
        try:
            connection.send_many(places, isolation=isolation, max_bytes=max_bytes, max_wait_ms=0)
        except OSError:
            connection.close()  # what follows finds it so
    found: Answers = {}
    for connection in asked:
        try:
            answers = connection.receive_many(max(0.1, min(silence_seconds(kafka), deadline - system.monotonic())))
        except OSError:
            connection.close()
            continue
        give_back(kafka, connection)
        found |= {place: answer for place, answer in answers.items() if place in wanted}
    for place in wanted:
        if place not in found or found[place][0].error in LEADER_MOVED:
            client.forget_leader(*place)
    return found


def fetch_once(
    kafka: KafkaProperties,
    topic: str,
    partition: int,
    offset: int,
    max_bytes: int,
    *,
    isolation: Isolation = "read_committed",
) -> tuple[FetchResponse, bytes] | None:
    """What a partition holds from ``offset`` on, not waiting for more, and the records' bytes; None without an
    answer."""
    try:
        connection = connect(kafka, topic, partition)
        try:
            connection.send(topic, partition, offset, isolation=isolation, max_bytes=max_bytes, max_wait_ms=0)
            answer = connection.receive(silence_seconds(kafka))
            data = bytes(memoryview(connection.buffer)[: answer.size])
        except BaseException:
            connection.close()
            raise
    except OSError:
        broker_client(kafka).forget_leader(topic, partition)
        return None
    give_back(kafka, connection)
    if answer.error in LEADER_MOVED:
        broker_client(kafka).forget_leader(topic, partition)
    return None if answer.throttle_ms else (answer, data)
