"""Source and sink on a listener with TLS and passwords: librdkafka and the plain requests get through, or say why."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from spark_eos.devcluster import DevCluster
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.producer.arrow import ArrowProducer
from spark_eos.kafka.requests import end_txn
from spark_eos.options.parse import Fetching
from spark_eos.source.planning import OffsetRange
from spark_eos.source.raw import read_raw, supports
from tests.support.kafka_view import KafkaView, open_view
from tests.support.proxy import Proxy
from tests.support.waiting import wait_for

USER, PASSWORD = "ann", "hunter2-and-more"


@dataclass(frozen=True)
class Secured:
    """A broker with an open listener, for the tests, and one with TLS and passwords, by way of a proxy."""

    cluster: DevCluster
    servers: str
    certificate: Path
    foreign: Path

    def properties(self, mechanism: str = "SCRAM-SHA-512", **other: str) -> dict[str, str]:
        if mechanism == "OAUTHBEARER":
            unsecured = {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": f"principal={USER}"}
            plain = {
                key: value for key, value in self.properties().items() if key not in ("sasl.username", "sasl.password")
            }
            return {**plain, "sasl.mechanism": mechanism, **unsecured}
        return {
            "bootstrap.servers": self.servers,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.certificate),
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            **{key.replace("_", "."): value for key, value in other.items()},
        }


def certify(folder: Path, name: str) -> tuple[Path, Path]:
    """A key store for the broker and the certificate that clients trust, by the JDK's own tool."""
    store, certificate = folder / f"{name}.p12", folder / f"{name}.pem"
    common = ["-keystore", str(store), "-storetype", "PKCS12", "-storepass", "changeit", "-alias", "broker"]
    host = ["-dname", "CN=127.0.0.1", "-ext", "san=ip:127.0.0.1", "-keyalg", "RSA", "-validity", "2"]
    for command in (["-genkeypair", *common, *host], ["-exportcert", "-rfc", *common, "-file", str(certificate)]):
        subprocess.run(["keytool", *command], check=True, capture_output=True, timeout=60)
    return store, certificate


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    store, certificate = certify(folder, "own")
    _, foreign = certify(folder, "foreign")
    module = "org.apache.kafka.common.security"
    plain = f'{module}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    config = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:SASL_SSL",
        "listener.name.proxied.ssl.keystore.location": str(store),
        "listener.name.proxied.ssl.keystore.type": "PKCS12",
        "listener.name.proxied.ssl.keystore.password": "changeit",
        "listener.name.proxied.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.proxied.oauthbearer.sasl.jaas.config": f"{module}.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="broker";',
        "listener.name.proxied.plain.sasl.jaas.config": plain,
        "listener.name.proxied.scram-sha-512.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
    }
    proxy = Proxy()
    try:
        with DevCluster(config=config, proxies=[proxy.port]) as cluster:
            proxy.upstream = cluster.broker(0).proxied_port
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
            info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
            added = admin.alter_user_scram_credentials([UserScramCredentialUpsertion(USER, info, PASSWORD.encode())])
            added[USER].result(30)
            yield Secured(cluster, proxy.address, certificate, foreign)
    finally:
        proxy.close()


@pytest.fixture
def view(secured: Secured) -> Iterator[KafkaView]:
    with open_view(secured.cluster.bootstrap_servers) as view:
        yield view


def new_topic(secured: Secured, name: str, *values: str) -> str:
    secured.cluster.create_topic(name, 2)
    producer = Producer({"bootstrap.servers": secured.cluster.bootstrap_servers, "log_level": 0})
    for value in values:
        producer.produce(name, value)
    assert producer.flush(20) == 0
    return name


def copy(spark: SparkSession, kafka: Mapping[str, str], source: str, sink: str, checkpoint: Path) -> None:
    """The query: a topic into another, and the group's offsets."""
    connection = {f"kafka.{key}": value for key, value in kafka.items()}
    rows = spark.readStream.format("eos-kafka").options(**connection, subscribe=source, startingOffsets="earliest")
    writer = rows.load().select("key", "value").writeStream.format("eos-kafka")
    writer = writer.options(**connection, topic=sink, **{"offsets.group.id": f"group-of-{sink}"})
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_a_query_over_tls_with_a_password(mechanism, secured, view, spark, tmp_path):
    """Rows and offsets; the tasks read by whole record batches, as on an open listener."""
    source = new_topic(secured, f"in-{mechanism}", *"abcdef")
    sink = new_topic(secured, f"out-{mechanism}")
    kafka = secured.properties(mechanism)
    copy(spark, kafka, source, sink, tmp_path / "checkpoint")
    assert sorted(view.values(sink)) == list("abcdef")
    assert view.group(f"group-of-{sink}", source) == view.ends(source)
    assert supports(KafkaProperties(kafka))


def test_record_batches_over_tls(secured, view):
    """Answers that are larger than a TLS record and than what the sockets hold."""
    topic = new_topic(secured, "large", *(str(i) * 20_000 for i in range(500)))
    fetching = Fetching(KafkaProperties(secured.properties()))
    plain = Fetching(KafkaProperties({"bootstrap.servers": secured.cluster.bootstrap_servers}))
    rows = 0
    for (_, p), end in view.ends(topic).items():
        found, expected = (
            [row for batch in read_raw(way, OffsetRange(topic, p, 0, end)) for row in batch.to_pylist()]
            for way in (fetching, plain)
        )
        assert found == expected
        rows += len(found)
    assert rows == 500


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [({"sasl_password": "not-" + PASSWORD}, "uthenticat"), ({"ssl_ca_location": "foreign"}, "ertificate")],
)
def test_who_is_not_let_in_is_told_why(wrong, reason, secured, view, spark, tmp_path):
    """Before any task; without the password."""
    source, sink = (new_topic(secured, f"{end}-{reason}") for end in ("refused-in", "refused-out"))
    wrong = {key: str(secured.foreign) if value == "foreign" else value for key, value in wrong.items()}
    with pytest.raises(StreamingQueryException) as caught:
        copy(spark, secured.properties(**wrong), source, sink, tmp_path / "checkpoint")
    text = str(caught.value)
    assert "EOS_KAFKA_UNREACHABLE" in text
    assert reason in text
    assert PASSWORD not in text
    assert view.values(sink) == []


def test_record_batches_are_written_over_tls(secured, view):
    """More than the socket takes at once, by the producer that has no librdkafka."""
    topic = new_topic(secured, "written")
    kafka = KafkaProperties(secured.properties())
    producer = ArrowProducer(kafka, "over-tls", 60_000)
    producer.init()
    values = [b"%06d" % i * 200 for i in range(10_000)]
    producer.write(topic, 2, value=pa.array(values))
    producer.flush()
    pair = producer.identity()
    own = (pair.id, pair.producer_id, pair.epoch)
    wait_for(lambda: end_txn.end_txns(broker_client(kafka), [own], commit=True)[pair.id] == 0, "a commit")
    producer.close()
    wait_for(lambda: not view.held(topic), "the markers")
    assert [row.value for row in view.rows(topic)] == values
