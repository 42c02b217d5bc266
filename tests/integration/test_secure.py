"""Source, sink, ledger and the tools over TLS and by every way to say who one is: they get through, or say why."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from socket import socket
from weakref import WeakKeyDictionary

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import KafkaError as ClientError
from pyspark.sql import SparkSession

from demo import processes
from spark_eos import cli
from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import ConnectionFailed, OptionError
from spark_eos.kafka.config.librdkafka import librdkafka_config
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net import sessions
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.net.connection import Connection
from spark_eos.kafka.net.pool import ConnectionPool
from spark_eos.kafka.producer.arrow import ArrowProducer
from spark_eos.source import raw
from spark_eos.source.fetching import Fetching
from spark_eos.source.raw import read_raw
from tests.support.judges.kafka_view import KafkaView, open_view
from tests.support.queries.transactions import LIFE_MS, commit_as_driver
from tests.support.servers.secure_cluster import PASSWORD, SESSION_S, USER, Secure
from tests.support.spark import event_program as telltale
from tests.support.waiting import PROGRAM_S, TIMEOUT, wait_for

WAYS = ["TLS", "MUTUAL", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "TOKENS"]


@pytest.fixture(scope="module")
def view(secure: Secure) -> Iterator[KafkaView]:
    with open_view(secure.cluster.bootstrap_servers) as view:
        yield view


def new_topic(secure: Secure, name: str, *values: str) -> str:
    secure.cluster.create_topic(name, 2)
    producer = Producer({"bootstrap.servers": secure.cluster.bootstrap_servers, "log_level": 0})
    for value in values:
        producer.produce(name, value)
    assert producer.flush(TIMEOUT) == 0
    return name


def copy(spark: SparkSession, kafka: Mapping[str, str], source: str, sink: str, checkpoint: Path) -> None:
    """The query: a topic into another, and the group's offsets."""
    connection = {f"kafka.{key}": value for key, value in kafka.items()}
    rows = spark.readStream.format("eos-kafka").options(**connection, subscribe=source, startingOffsets="earliest")
    writer = rows.load().select("key", "value").writeStream.format("eos-kafka")
    writer = writer.options(**connection, topic=sink, **{"offsets.group.id": f"group-of-{sink}"})
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(TIMEOUT)
    finally:
        query.stop()


def tool(kafka: Mapping[str, str], folder: Path, *arguments: str) -> int:
    """A command's exit code; its client is configured by a file, as passwords should be."""
    file = folder / "client.properties"
    lines = (f"{key}={value}" for key, value in kafka.items() if key != "bootstrap.servers" and "\n" not in value)
    file.write_text("\n".join(lines))
    given = [f"--kafka={key}={value}" for key, value in kafka.items() if "\n" in value]
    servers = ["--bootstrap-servers", kafka["bootstrap.servers"], "--kafka-file", str(file)]
    return cli.main([*servers, *given, *arguments])


def get_in(kafka: KafkaProperties) -> None:
    """With a connection of our own, as all paths of a query have them, and with one of librdkafka's."""
    assert broker_client(kafka).brokers() == [0]
    consumer = Consumer(librdkafka_config(kafka, "consumer"))
    assert list(consumer.list_topics(timeout=TIMEOUT).brokers) == [0]
    consumer.close()


@pytest.mark.parametrize("way", WAYS)
def test_both_kinds_of_client_get_in(way, secure):
    """By every mechanism."""
    get_in(KafkaProperties(secure.properties(way)))


@pytest.mark.parametrize("way", ["MUTUAL", "TOKENS"])
def test_a_query_and_its_tools(way, secure, view, spark, tmp_path, capsys):
    """Rows, decisions and offsets by the way of whole record batches, as on an open listener; then the tools agree."""
    source = new_topic(secure, f"in-{way}", *"abcdef")
    sink = new_topic(secure, f"out-{way}")
    kafka = secure.properties(way)
    copy(spark, kafka, source, sink, tmp_path / "checkpoint")
    assert sorted(view.values(sink)) == list("abcdef")
    assert view.group(f"group-of-{sink}", source) == view.ends(source)
    rows = ["--input", source, "--output", sink, "--id", "value", "--group", f"group-of-{sink}"]
    assert tool(kafka, tmp_path, "verify", *rows) == 0
    assert "6 rows got through exactly once" in capsys.readouterr().out
    assert tool(kafka, tmp_path, "status") == 0


def keytool(*arguments: str) -> None:
    command = ["keytool", "-noprompt", "-storepass", "changeit", *arguments]
    subprocess.run(command, check=True, capture_output=True, timeout=PROGRAM_S)


def test_what_spark_users_have_for_the_java_client(secure, tmp_path):
    """Stores as keytool makes them, and the login as Kafka's documentation has it, for both kinds of client; a store in
    Java's own format is refused with the command that converts it, which works."""
    old, new = tmp_path / "trusted.jks", tmp_path / "trusted.p12"
    keytool("-importcert", "-file", str(secure.ca), "-keystore", str(old), "-storetype", "JKS", "-alias", "ca")
    own = secure.client.write_pkcs12(tmp_path / "own.p12", "changeit")
    store = {"ssl.truststore.password": "changeit", "ssl.truststore.location": str(old)}
    mutual = {
        "bootstrap.servers": secure.cluster.servers("MUTUAL"),
        "security.protocol": "SSL",
        "ssl.keystore.location": str(own),
        "ssl.keystore.password": "changeit",
        "ssl.key.password": "changeit",
    }
    with pytest.raises(OptionError, match="keytool -importkeystore") as caught:
        broker_client(KafkaProperties(mutual | store))
    assert f"-srckeystore {old}" in caught.value.hint
    keytool("-importkeystore", "-srckeystore", str(old), "-srcstorepass", "changeit", "-destkeystore", str(new))
    store["ssl.truststore.location"] = str(new)
    scram = {
        "bootstrap.servers": secure.cluster.servers("SASL"),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{USER}" password="{PASSWORD}";',
    }
    for given in (mutual | store, scram | store):
        get_in(KafkaProperties(given))


def test_a_client_without_a_certificate_is_told_why(secure):
    """Where the listener asks for one."""
    kafka = {key: value for key, value in secure.properties("MUTUAL").items() if not key.endswith(".pem")}
    with pytest.raises(ConnectionFailed, match=r"wants a certificate of the client.*kafka\.ssl\.keystore") as caught:
        broker_client(KafkaProperties(kafka)).brokers()
    assert caught.value.condition == "EOS_UNAUTHENTICATED"


@pytest.mark.parametrize(
    ("listener", "protocol", "condition", "says"),
    [
        ("TLS", "PLAINTEXT", "EOS_KAFKA_UNREACHABLE", "it may expect TLS"),
        ("SASL", "SSL", "EOS_KAFKA_UNREACHABLE", "it may expect SASL"),
        ("PASSWORDS", "SASL_SSL", "EOS_KAFKA_UNREACHABLE", "does this port of the broker speak TLS"),
        ("BROKER", "SASL_PLAINTEXT", "EOS_UNAUTHENTICATED", "this port of the broker has no SASL"),
    ],
)
def test_a_client_with_another_protocol_than_the_listener_is_told_which_it_may_be(
    listener, protocol, condition, says, secure
):
    """Brokers close such connections without a word."""
    servers = secure.cluster.bootstrap_servers if listener == "BROKER" else secure.cluster.servers(listener)
    login = {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": PASSWORD}
    kafka = {"bootstrap.servers": servers, "security.protocol": protocol, "ssl.ca.location": str(secure.ca), **login}

    def told() -> ConnectionFailed | None:
        """By a try that the time limit has not cut short, as on a busy machine."""
        with pytest.raises(ConnectionFailed) as caught:
            broker_client(KafkaProperties(kafka)).metadata([], 2.0)
        return caught.value if says in caught.value.message else None

    assert wait_for(told, says).condition == condition


def test_record_batches_over_tls(secure, view):
    """More than the socket takes at once, by the producer that has no librdkafka; and answers that are larger than a
    TLS record, with the same rows as on an open listener."""
    topic, kafka = new_topic(secure, "large"), KafkaProperties(secure.properties("SCRAM-SHA-512"))
    producer = ArrowProducer(broker_client(kafka), "over-tls", LIFE_MS)
    producer.init()
    values = [b"%06d" % i * 200 for i in range(10_000)]
    producer.write(topic, 2, value=pa.array(values))
    producer.flush()
    commit_as_driver(producer)
    producer.close()
    wait_for(lambda: not view.held(topic), "the markers")
    rows = view.rows(topic)
    assert [row.value for row in rows] == values
    fetching = Fetching(broker_client(kafka))
    for (_, p), end in view.ends(topic).items():
        batches = read_raw(fetching, OffsetRange(topic, p, 0, end))
        assert [value for batch in batches for value in batch["value"].to_pylist()] == [
            row.value for row in rows if row.partition == p
        ]


@pytest.fixture
def watched(secure: Secure, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[object]]:
    """The lifetimes of sessions that begin from now on, and the connections that break. Not those whose session still
    went on when that was looked at, and was over before the machine came to use them. Tokens live for five seconds."""
    monkeypatch.setattr(secure.tokens, "life_s", 5.0)
    begun, broken, begin, is_due = [], [], sessions.begin, sessions.is_due
    lost, pool_lost = raw._Fetches._disconnect, ConnectionPool.lost
    went_on: WeakKeyDictionary[socket, float] = WeakKeyDictionary()

    def looked_at(broker: socket) -> bool:
        now = time.monotonic()
        if due := is_due(broker):
            went_on.pop(broker, None)
        else:
            went_on[broker] = now
        return due

    def breaks(connection: Connection | None) -> None:
        at = None if connection is None else went_on.get(connection._socket)
        if at is None or time.monotonic() - at < (1 - sessions._SHARE) * SESSION_S:
            broken.append(connection)

    monkeypatch.setattr(sessions, "begin", lambda broker, at, ms: (begun.append(ms), begin(broker, at, ms)))
    monkeypatch.setattr(sessions, "is_due", looked_at)
    monkeypatch.setattr(raw._Fetches, "_disconnect", lambda self: (breaks(self._connection), lost(self)))
    monkeypatch.setattr(ConnectionPool, "lost", lambda self, one: (breaks(one), pool_lost(self, one)))
    return begun, broken


def lists(consumer: Consumer) -> bool:
    """Whether it is told of topics. On a busy machine, a token as short may be over before librdkafka has the next."""
    try:
        return bool(consumer.list_topics(timeout=30).topics)
    except KafkaException as error:
        assert error.args[0].code() == ClientError._AUTHENTICATION
        return False


def test_tokens_that_expire_while_rows_are_written_and_read(secure, watched):
    """Connections are replaced, with new tokens, before the brokers close them: those of a sender and a reader at work.
    Without that, four and more would break; on a slow machine, with sessions this short, one or two still may.
    librdkafka's clients go on, too."""
    begun, broken = watched
    other = {"sasl.oauthbearer.scope": "kafka renewed"}  # not the token of another test
    kafka, topic = KafkaProperties(secure.properties("TOKENS") | other), "renewed"
    issued = len(secure.tokens.issued)
    secure.cluster.create_topic(topic)
    consumer = Consumer(librdkafka_config(kafka, "consumer"))
    producer = ArrowProducer(broker_client(kafka), "renewing", LIFE_MS)
    producer.init()
    fetching, rows = Fetching(broker_client(kafka), isolation="read_uncommitted"), 0
    until, read = time.monotonic() + 2.2 * SESSION_S, iter(())

    def renewed() -> bool:
        """Also where the machine comes to less in that time."""
        return len(begun) >= 6 and len(secure.tokens.issued) - issued >= 2

    while time.monotonic() < until or not renewed():
        assert time.monotonic() < until + TIMEOUT, "new tokens, for all of them"
        producer.write(topic, 1, value=pa.array([b"%09d" % rows] * 1000))
        producer.flush()
        rows += 1000
        if next(read, None) is None:  # one that is read while the others are written
            read = read_raw(fetching, OffsetRange(topic, 0, 0, rows))
        wait_for(lambda: lists(consumer), "a token that is good")
    assert sum(batch.num_rows for batch in read_raw(fetching, OffsetRange(topic, 0, 0, rows))) == rows
    for client in (producer, consumer):
        client.close()
    assert len(broken) <= 2
    assert max(begun) <= 1000 * SESSION_S


def commands() -> Iterator[bytes]:
    """The command lines of all processes."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield file.read_bytes()


def run_telltale(what: Mapping[str, object], folder: Path) -> dict[str, bytes]:
    """Run the program in the folder; the command lines of all processes meanwhile. Its JVM, which ends after it and
    removes what it has in the folder, is gone, too."""
    folder.mkdir()
    program, seen, family, next_look = Path(telltale.__file__), set(), [], 0.0
    environment = os.environ | {"PYTHONPATH": str(program.parents[3]), "PYSPARK_PYTHON": sys.executable}
    with (folder / "printed").open("wb") as printed:
        command = [sys.executable, str(program), str(folder)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=printed, stderr=printed, env=environment)

        def ended() -> bool:
            """Looks around now and then: a look takes as long as Spark does for much."""
            nonlocal family, next_look
            if time.monotonic() >= next_look:
                seen.update(commands())
                family = processes.descendants(process.pid) or family
                next_look = time.monotonic() + 0.3
            return process.poll() is not None

        try:
            process.stdin.write(json.dumps(what).encode())
            process.stdin.close()
            wait_for(ended, "the program's end", PROGRAM_S)
            wait_for(lambda: not processes.alive(family), "the end of its JVM")
        finally:
            if process.poll() is None:
                processes.kill(process.pid)
                process.wait()
    return {"processes": b"\n".join(seen)}


def test_secrets_appear_nowhere(secure, view, tmp_path):
    """Of a query that works and one that fails: not in plans, errors, logs, the event log, checkpoints, the ledger, the
    output, or the list of processes. What Spark prints of options follows from its own setting: for keys in PEM, that
    of the documentation."""
    new_topic(secure, "told-in", "a")
    sink, wrong = new_topic(secure, "told"), "no-such-pass-word"
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    good = {
        **secure.properties("SCRAM-SHA-512"),
        "sasl.jaas.config": f'{login} username="{USER}" password="{PASSWORD}";',
        "ssl.truststore.location": str(secure.authority.own.write_pkcs12(tmp_path / "trusted.p12", "store-pass-word")),
        "ssl.truststore.password": "store-pass-word",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": secure.client.certificate_pem,
        "ssl.keystore.key": secure.client.key_pem("key-pass-word"),
        "ssl.key.password": "key-pass-word",
    }
    del good["ssl.ca.location"], good["sasl.username"], good["sasl.password"]
    bad = good | {"sasl.jaas.config": f'{login} username="{USER}" password="{wrong}";'}
    what = {"good": good, "bad": bad, "input": "told-in", "output": sink, "redacted": "(?i)url|key"}
    seen = run_telltale(what, tmp_path / "told")
    printed = (tmp_path / "told" / "printed").read_text()
    assert "good: done" in printed and "bad: failed [EOS_UNAUTHENTICATED]" in printed
    assert "user 'ann' by SCRAM-SHA-512" in printed
    assert view.values(sink) == ["A"]
    for file in (tmp_path / "told").rglob("*"):
        seen[str(file)] = file.read_bytes() if file.is_file() else b""
    assert b"spark.eventLog.enabled" in seen.get(next(name for name in seen if "/events_" in name), b"")
    assert len(seen[str(tmp_path / "told" / "spark.log")]) > 10_000
    rows = view.rows(sink, "__spark_eos_ledger", committed=False)
    seen["topics"] = b"".join((row.key or b"") + (row.value or b"") for row in rows)
    assert rows and b"event_program" in seen["processes"]
    secrets = [PASSWORD, wrong, "store-pass-word", "key-pass-word", good["ssl.keystore.key"].splitlines()[2]]
    found = {(secret, name) for name, data in seen.items() for secret in secrets if secret.encode() in data}
    assert found == set()
