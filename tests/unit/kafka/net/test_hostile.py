"""Whatever a peer sends, a client is done with it in time, and raises nothing but an OSError.

A peer may be a broker that is broken, a port that somebody else has taken, or an attacker.
"""

from __future__ import annotations

import importlib
import pkgutil
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.metadata import FindCoordinatorResponse, MetadataResponse

import spark_eos.kafka
from spark_eos.errors import ConnectionFailed, KafkaError
from spark_eos.kafka.admin.topics import describe_topics
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net import handshake
from spark_eos.kafka.net.client import BrokerClient, broker_client
from spark_eos.kafka.net.connection import Connection
from spark_eos.kafka.net.metadata import FIND_COORDINATOR, METADATA, about_topics
from spark_eos.kafka.net.schema import (
    INT8,
    STRING,
    FieldReader,
    Int8,
    Record,
    Request,
    array,
    fixed_array,
    text,
    varint,
)
from spark_eos.kafka.requests import produce
from spark_eos.kafka.requests.fetch import FetchConnection
from tests.support.judges.processor import worked_for
from tests.support.servers.certificates import Authority
from tests.support.servers.fake_broker import FakeBroker
from tests.support.servers.open_port import answering
from tests.support.waiting import TIMEOUT

#: Seconds for one example.
MOST_S = 1.0
#: What a reader raises for bytes that are none of its kind; `Connection` makes an OSError of it.
MALFORMED = (IndexError, struct.error, UnicodeDecodeError)


def requests() -> list[Request]:
    """Every request of the package."""
    found: dict[int, Request] = {}
    for module in pkgutil.walk_packages(spark_eos.kafka.__path__, "spark_eos.kafka."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, Request):
                found[id(value)] = value
    return list(found.values())


REQUESTS = requests()
assert len(REQUESTS) >= 20
READERS: list[Callable[[FieldReader], object]] = [request.answers.read for request in REQUESTS] + [produce._read]
#: Bytes as they might be of answers: small numbers, texts, ends of arrays, and varints of any size.
PIECES = st.one_of(
    st.binary(max_size=12),
    st.sampled_from(
        [b"\x00", b"\x01", b"\x02", b"\x03", b"\xff" * 4, b"\xff" * 5, b"\xff\xff\xff\xff\x0f", b"\x80\x01"]
    ),
    st.integers(0, 40).map(lambda n: varint(n + 1) + b"x" * n),
    st.integers(-2, 5).map(lambda n: struct.pack(">i", n)),
)
HOSTILE = st.lists(PIECES, max_size=60).map(b"".join)


@given(HOSTILE)
@worked_for(MOST_S)
def test_any_bytes_are_an_answer_or_malformed(data):
    """By every reader, without an error of another kind."""
    for read in READERS:
        with suppress(*MALFORMED):
            read(FieldReader(data))


METADATA_ANSWER = MetadataResponse(
    throttle_time_ms=0,
    brokers=[MetadataResponse.MetadataResponseBroker(node_id=1, host="a", port=9092, rack=None)],
    cluster_id="c",
    controller_id=1,
    topics=[],
).encode(version=12)
FOUND_ANSWER = FindCoordinatorResponse(
    throttle_time_ms=0,
    coordinators=[
        FindCoordinatorResponse.Coordinator(key="k", node_id=1, host="a", port=1, error_code=0, error_message="x")
    ],
).encode(version=4)


@given(
    st.sampled_from([(METADATA, bytes(METADATA_ANSWER)), (FIND_COORDINATOR, bytes(FOUND_ANSWER))]),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=4),
    st.integers(0, 300),
)
@worked_for(MOST_S)
def test_changed_bytes_of_an_answer_are_an_answer_or_malformed(answer, changes, end):
    """Those of kafka-python, which are read as they are, with some bytes changed, and cut off somewhere."""
    request, data = answer
    assert isinstance(request.answers.read(FieldReader(data)), Record)
    changed = bytearray(data)
    for at, byte in changes:
        changed[at % len(changed)] = byte
    with suppress(*MALFORMED):
        request.answers.read(FieldReader(bytes(changed[:end])))


#: What no broker is: a negative id, by which this client numbers the addresses that the user gave, or a host that
#: nobody can have. Python connects to what is in front of a NUL.
NO_BROKERS = [(-9, "127.0.0.1"), (-1, "127.0.0.1"), (1, "127.0.0.1\0x"), (1, "127.0.0.1\n"), (1, "")]


@pytest.mark.parametrize(("node", "host"), NO_BROKERS)
def test_what_no_broker_is_is_malformed(node, host):
    """In an answer with an error, the coordinator's fields have no meaning."""
    sound = bytes(METADATA_ANSWER)
    listed = sound.replace(struct.pack(">i", 1) + b"\x02a", struct.pack(">i", node) + text(host))
    assert listed != sound
    with pytest.raises(MALFORMED):
        METADATA.answers.read(FieldReader(listed))
    row = text("key") + struct.pack(">i", node) + text(host) + struct.pack(">i", 9092)
    found, refused = (b"\x00" * 4 + b"\x02" + row + code + b"\x00\x00\x00" for code in (b"\x00\x00", b"\x00\x0f"))
    with pytest.raises(MALFORMED):
        FIND_COORDINATOR.answers.read(FieldReader(found))
    assert FIND_COORDINATOR.answers.read(FieldReader(refused)).coordinators[0].error_code == 15


def test_a_broker_with_an_impossible_id_leaves_nothing_behind(one_try):
    """The client goes on as soon as brokers answer as they should."""
    wrong = FakeBroker(-9, cluster := {})
    client = BrokerClient(KafkaProperties({"bootstrap.servers": f"127.0.0.1:{wrong.port}"}))
    with pytest.raises(ConnectionFailed, match="makes no sense"):
        client.metadata([], TIMEOUT)
    cluster[3] = cluster.pop(-9)
    assert client.brokers() == [3]
    assert client.ask(-9, METADATA, about_topics([])) is None
    wrong.close()


@pytest.mark.parametrize("host", [".local", "a\0b", ""])
def test_tls_with_a_name_that_no_host_can_have_is_an_error_of_the_connection(host):
    """As of a broker that a user has written so."""
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(OSError, match="name of a host"):
        handshake._encrypt(ours, ssl.create_default_context(), host)


@pytest.mark.parametrize("rest", [struct.pack(">i", 0), struct.pack(">ihhh", 1, 18, 0, 3)], ids=["none", "one"])
def test_a_broker_that_is_too_old_is_told_as_such(rest):
    """It answers by version 0, with the error in front and, since Kafka 2.4, with the versions that it has."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(framed(1, struct.pack(">h", 35) + rest))
        with pytest.raises(OSError, match=r"older than Kafka 2\.4"):
            handshake.api_versions(Connection(ours, 0), 1.0)


class OneNumber(Record):
    """An answer with one field, and tags."""

    a: Int8


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (STRING, b"\xff" * 250_000),
        (OneNumber, b"\x00" + b"\xff" * 250_000),
        (array(STRING), b"\xff\xff\xff\xff\x0f" + b"\x00" * 1000),
        (fixed_array(INT8), struct.pack(">i", 2**31 - 1) + b"\x00" * 1000),
        (OneNumber, b"\x00\xff\xff\xff\xff\x0f" + b"\x00" * 1000),
        (OneNumber, b"\x00\x02\x01\x00\x01\x00"),
    ],
    ids=["text", "tags", "array", "fixed array", "many tags", "a tag twice"],
)
def test_what_says_that_there_is_more_than_there_is_takes_no_time(kind, data):
    """Numbers without an end, counts beyond the end, and a tagged field that is there twice."""
    with worked_for(MOST_S), pytest.raises(MALFORMED):
        kind.read(FieldReader(data))


def hostile(answer: Callable[[int, int], bytes], endless: bool = False) -> AbstractContextManager[tuple[str, int]]:
    """A port that answers each request with the same bytes; ``answer`` gets the request's API key and number."""

    def talk(connection: socket.socket) -> None:
        while len(size := connection.recv(4, socket.MSG_WAITALL)) == 4:
            body = connection.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL)
            api, _, number = struct.unpack_from(">hhi", body)
            data = answer(api, number)
            connection.sendall(data)
            while endless and api != 18:
                connection.sendall(data)

    return answering(talk)


def framed(number: int, body: bytes) -> bytes:
    """An answer with its size."""
    return struct.pack(">ii", 4 + len(body), number) + body


#: ApiVersions: no error, and one request that is spoken, Metadata.
SPEAKS = struct.pack(">h", 0) + b"\x02" + struct.pack(">hhh", 3, 0, 12) + b"\x00" + struct.pack(">i", 0) + b"\x00"
ENDLESS_NUMBER = b"\x00\x00\x00\x00\x00" + b"\xff" * 250_000


@pytest.mark.parametrize(
    ("answer", "endless"),
    [
        (lambda api, number: framed(number, b"\x00\x00" + b"\xff" * 250_000), False),
        (lambda api, number: struct.pack(">i", 2**31 - 1), False),
        (lambda api, number: struct.pack(">i", -1), False),
        (lambda api, number: framed(number + 1, SPEAKS), False),
        (lambda api, number: framed(number, SPEAKS if api == 18 else ENDLESS_NUMBER), False),
        (lambda api, number: framed(number, SPEAKS if api == 18 else b"\x00\x00" + bytes(1000)), True),
        (lambda api, number: framed(number, SPEAKS) if api == 18 else struct.pack(">i", 1 << 26) + bytes(9999), True),
        (lambda api, number: b"HTTP/1.1 400 Bad Request\r\n\r\n", False),
    ],
    ids=["number", "2 GB", "negative", "another", "metadata", "endless answers", "endless answer", "HTTP"],
)
def test_a_hostile_broker_is_given_up_in_time(answer, endless, one_try):
    """By a named error, whatever it sends, and however much of it."""
    began, worked = time.monotonic(), time.process_time()
    with hostile(answer, endless) as (host, port):
        kafka = KafkaProperties({"bootstrap.servers": f"{host}:{port}"})
        with pytest.raises(KafkaError, match=r"EOS_KAFKA_UNREACHABLE|EOS_TOPIC_MISSING") as caught:
            describe_topics(broker_client(kafka), ["t"], 1.0)
    assert "it may expect TLS" in caught.value.message or not answer(18, 1).startswith(b"HTTP")
    assert time.monotonic() - began < 20.0 and time.process_time() - worked < 5.0  # a busy machine takes its time


@given(HOSTILE)
@worked_for(MOST_S)
def test_any_frame_is_an_answer_or_an_error_of_the_connection(data):
    """With the right number at its head, and whatever behind it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection: Connection[None] = Connection(ours, 1)
        connection.ask(METADATA.api, 12, [b""], None)
        theirs.sendall(framed(1, data))
        theirs.close()
        with suppress(OSError):
            connection.receive(METADATA.answers.read)


_ID = bytes(range(16))


@given(HOSTILE, st.sampled_from(["name", "id", "many"]), st.integers(-10, 10))
@worked_for(MOST_S)
def test_any_frame_is_an_answer_of_fetch_or_an_error_of_the_connection(data, way, off):
    """By name or id, of one partition or many, with a size that is right or not."""
    head = struct.pack(">iBihiB", 1, 0, 0, 0, 0, 2)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = FetchConnection(ours, 1)
        limits = {"isolation": "read_committed", "max_bytes": 1000, "max_wait_ms": 0}
        if way == "many":
            connection.send_many({"t": [(0, -1, 0, 100)]}, **limits)
        else:
            connection.send("t", 0, 0, topic_id=_ID if way == "id" else b"", **limits)
        theirs.sendall(struct.pack(">i", max(0, len(head + data) + off)) + head + data)
        theirs.close()
        with suppress(OSError):
            connection.receive_many(1.0) if way == "many" else connection.receive_one(1.0)


def test_a_fetch_of_countless_topics_leads_nowhere():
    """A count without anything behind it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = FetchConnection(ours, 1)
        limits = {"isolation": "read_committed", "max_bytes": 1000, "max_wait_ms": 0}
        connection.send_many({"t": [(0, -1, 0, 100)]}, **limits)
        body = struct.pack(">iBihi", 1, 0, 0, 0, 0) + varint(2**31 - 1) + bytes(9)
        theirs.sendall(struct.pack(">i", len(body)) + body)
        with pytest.raises(OSError, match="makes no sense"):
            connection.receive_many(TIMEOUT)


@contextmanager
def dripping(begin: bytes) -> Iterator[socket.socket]:
    """A broker that sends this, and then a byte again and again, each of which comes in time; our end of it."""
    ours, theirs = socket.socketpair()
    over, began = threading.Event(), time.monotonic()

    def drip() -> None:
        theirs.sendall(begin)
        with suppress(OSError):
            while not over.wait(0.02) and time.monotonic() - began < TIMEOUT:
                theirs.sendall(b"x")

    thread = threading.Thread(target=drip)
    with ours, theirs:
        thread.start()
        with pytest.raises(TimeoutError):
            yield ours
        over.set()
        thread.join()
    assert time.monotonic() - began < TIMEOUT


def test_an_answer_that_drips_has_an_end():
    """Each of its bytes comes in time, and the whole never."""
    with dripping(struct.pack(">i", 1 << 20)) as broker:
        connection = FetchConnection(broker, 1)
        connection.send_many({"t": [(0, -1, 0, 100)]}, isolation="read_committed", max_bytes=1000, max_wait_ms=0)
        connection.receive_many(0.3)


def test_a_small_answer_gets_no_time_for_the_large_one_before_it():
    """The bytes that have arrived count for their own answer only."""
    with dripping(framed(1, bytes(1 << 18)) + struct.pack(">i", 1000)) as broker:
        connection: Connection[None] = Connection(broker, 1)
        connection.ask(3, 0, [], None, flexible=False)
        assert connection.answer(lambda _: True, TIMEOUT)
        connection.ask(3, 0, [], None, flexible=False)
        connection.answer(lambda _: None, 0.3, slowest=1 << 10)


def test_tls_shows_that_a_large_request_goes_on(tmp_path):
    """A slow line takes long for it, and only silence counts as such."""
    context, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority = Authority()
    context.load_cert_chain(authority.sign("127.0.0.1").write_pem(tmp_path / "own.pem"))
    trusting.load_verify_locations(cadata=authority.pem)
    ours, theirs = socket.socketpair()
    with ours, theirs, ThreadPoolExecutor(1) as pool:
        accepted = pool.submit(context.wrap_socket, theirs, server_side=True)
        with trusting.wrap_socket(ours, server_hostname="127.0.0.1") as mine, accepted.result() as reader:
            connection: Connection[None] = Connection(mine, 1)
            connection.ask(0, 0, [bytes(16 << 20)], None)
            connection.push()
            connection.moved_at = 0.0
            reader.setblocking(False)
            with suppress(ssl.SSLWantReadError):
                while True:
                    reader.recv(1 << 14)
            connection.push()
            assert connection.sending and connection.moved_at > 0
