"""A query whose brokers know it by Kerberos. The realm is that of the test; it needs MIT Kerberos on the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_eos.tools.devcluster import DevCluster
from spark_eos.tools.devcluster.runtime import JVM_FLAGS
from tests.support.judges.kafka_view import open_view, write
from tests.support.servers.kerberos import REALM, USER, Realm, missing, realm
from tests.support.waiting import PROGRAM_S

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"Kerberos: {missing()}")

JAVA_LOGIN = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true serviceName=kafka"
#: A process of its own, as the libraries read the realm's settings once.
COPY = """
import sys
from pyspark.sql import SparkSession
import spark_eos

checkpoint, *pairs = sys.argv[1:]
kafka = dict(pair.split("=", 1) for pair in pairs)
spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
         .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate())
spark_eos.register(spark)
rows = spark.readStream.format("eos-kafka").options(**kafka, subscribe="in", startingOffsets="earliest").load()
sink = rows.select("key", "value").writeStream.format("eos-kafka").options(**kafka, topic="out")
query = sink.options(**{"offsets.group.id": "copier", "checkpointLocation": checkpoint}).trigger(availableNow=True)
try:
    query.start().awaitTermination()
except Exception as error:
    found = spark_eos.reason(error)
    sys.exit(f"{found.condition}: {found}" if found else repr(error))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with realm(tmp_path_factory.mktemp("realm")) as own:
        yield own


@pytest.fixture(scope="module")
def kerberised(home: Realm) -> Iterator[DevCluster]:
    """A broker with a listener KERBEROS, and rows in a topic."""
    listener = "listener.name.kerberos"
    config = {
        f"{listener}.sasl.enabled.mechanisms": "GSSAPI",
        f"{listener}.gssapi.sasl.jaas.config": home.jaas(),
        f"{listener}.sasl.kerberos.service.name": "kafka",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{USER}",
    }
    flags = [*JVM_FLAGS, f"-Djava.security.krb5.conf={home.config}"]
    with DevCluster(config=config, listeners={"KERBEROS": "SASL_PLAINTEXT"}, jvm_flags=flags) as cluster:
        cluster.create_topic("in", 2)
        cluster.create_topic("out", 2)
        write(cluster.bootstrap_servers, "in", [(i % 2, value) for i, value in enumerate("abcdef")])
        yield cluster


def copied(cluster: DevCluster, home: Realm, checkpoint: Path, **options: str) -> subprocess.CompletedProcess[str]:
    kafka = {
        "kafka.bootstrap.servers": cluster.servers("KERBEROS"),
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "GSSAPI",
        **{f"kafka.{key.replace('__', '.')}": value for key, value in options.items()},
    }
    pairs = [f"{key}={value}" for key, value in kafka.items()]
    environment = {**os.environ, **home.environment, "PYSPARK_PYTHON": sys.executable}
    return subprocess.run(
        [sys.executable, "-c", COPY, str(checkpoint), *pairs],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )


def test_a_query_with_a_keytab_as_java_has_it(kerberised: DevCluster, home: Realm, tmp_path: Path) -> None:
    """Rows, decision and offsets get through with the login of Java's clients, and without a ticket before: the first
    query without any credentials ends with what to do, and has written nothing."""
    refused = copied(kerberised, home, tmp_path / "none", sasl__kerberos__service__name="kafka")
    assert refused.returncode != 0
    assert "kinit, or kafka.sasl.kerberos.keytab" in refused.stderr
    jaas = f'{JAVA_LOGIN} keyTab="{home.keytab(USER)}" principal="{USER}@{REALM}";'
    done = copied(kerberised, home, tmp_path / "keytab", sasl__jaas__config=jaas)
    assert done.returncode == 0, done.stderr[-3000:]
    with open_view(kerberised.bootstrap_servers) as view:
        assert sorted(view.values("out")) == list("abcdef")
        assert view.group("copier", "in") == view.ends("in")


def test_a_query_with_a_ticket(kerberised: DevCluster, home: Realm, tmp_path: Path) -> None:
    """What kinit has put into the process's cache is enough."""
    home.kinit()
    done = copied(kerberised, home, tmp_path / "ticket", sasl__kerberos__service__name="kafka")
    assert done.returncode == 0, done.stderr[-3000:]
