"""Partitions of keys, held against Kafka's own code."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from spark_eos.kafka.partitioners import DEFAULT_PARTITIONER
from spark_eos.kafka.producer.partitioner import Partitioner
from spark_eos.tools.devcluster.runtime import kafka_runtime


@pytest.fixture(scope="module")
def gateway() -> Iterator[JavaGateway]:
    """A JVM with the broker's jars, which ends with the module."""
    runtime = kafka_runtime()
    (py4j,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    port, token = launch_gateway(
        jarpath=str(py4j), classpath=runtime.classpath, java_path=runtime.java, die_on_exit=True, enable_auth=True
    )
    made = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    yield made
    made.shutdown()


def some_keys(count: int) -> list[bytes | None]:
    """Empty, long, binary, non-ASCII and usual ones; some are null."""
    rng = random.Random(count)
    letters = "abcdefghijklmnopqrstuvwxyzäöüßéø漢字かな🙂0123456789-_:"

    def key() -> bytes | None:
        kind = rng.random()
        if kind < 0.02:
            return None
        if kind < 0.04:
            return b""
        if kind < 0.05:
            return rng.randbytes(rng.randrange(1_000, 5_000))
        if kind < 0.4:
            return rng.randbytes(rng.randrange(1, 40))
        return "".join(rng.choices(letters, k=rng.randrange(1, 20))).encode()

    return [key() for _ in range(count)]


@pytest.mark.parametrize("partitions", [4, 12])
def test_keys_go_where_every_java_client_puts_them(gateway, partitions):
    """10,000 keys in all, by the partitioner that is built into Kafka's producer; null keys may go anywhere."""
    theirs = gateway.jvm.org.apache.kafka.clients.producer.internals.BuiltInPartitioner.partitionForKey
    keys = some_keys(5_000)
    ours = Partitioner(partitions, DEFAULT_PARTITIONER).choose(pa.array(keys, pa.binary()), None, len(keys)).tolist()
    assert len(set(ours)) == partitions
    wrong = [key for key, mine in zip(keys, ours, strict=True) if key is not None and mine != theirs(key, partitions)]
    assert wrong == []
