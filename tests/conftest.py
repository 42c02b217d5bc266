"""Fixtures of all tests: `cluster`, `topic`, `view` (a real broker, started when first asked for) and `spark`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_eos.devcluster import DevCluster
    from tests.support.kafka_view import KafkaView

pytest_plugins = ["spark_eos.devcluster.pytest_plugin"]
# Else a failed assertion in there would not show its values.
pytest.register_assert_rewrite("tests.support")

# How long an example takes says how busy the machine is: beside brokers and JVMs, any limit is missed sometimes.
settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")


@pytest.fixture(scope="session", autouse=True)
def fast_start(request: pytest.FixtureRequest) -> None:
    """Each Spark that a test starts, in whatever process, works for seconds or minutes: it is to be up fast."""
    if any({"integration", "chaos"} & set(item.path.parts) for item in request.session.items):
        from jobs.fast_start import environment

        os.environ.update(environment(prepare=False))  # one run is too short to pay for that


@pytest.fixture(scope="module", autouse=True)
def no_client_outlives_its_module() -> Iterator[None]:
    """Else clients of clusters that are gone ask for them again and again, and say so in the log of other tests."""
    yield
    client = sys.modules.get("spark_eos.kafka.net.client")
    if client is not None:
        client.close_all()


@pytest.fixture(scope="module")
def view(cluster: DevCluster) -> Iterator[KafkaView]:
    """The shared cluster as an independent client sees it."""
    from tests.support.kafka_view import open_view

    with open_view(cluster.bootstrap_servers) as view:
        yield view


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with 4 task slots that knows ``format("eos-kafka")``, and can be ``armed`` with faults."""
    from pyspark.sql import SparkSession

    import spark_eos
    from tests.support.arming import can_be_armed

    # The JVM and the workers inherit these. Workers must run the interpreter of the tests.
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    session = (
        SparkSession.builder.master("local[4]")
        .appName("spark-eos tests")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )
    can_be_armed(session, tmp_path_factory.mktemp("faults") / "now")
    spark_eos.register(session)
    yield session
    session.stop()
