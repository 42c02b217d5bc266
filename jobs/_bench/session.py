"""What a benchmark runs on: a broker and a Spark session of its own, and the processes that cost is counted of."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from jobs import session
from jobs._bench.meter import BROKER, CLIENT
from spark_eos.devcluster import DevCluster
from spark_eos.devcluster.jars import SPARK_KAFKA, resolve
from spark_eos.log import LEVEL_VARIABLE

#: The broker of a benchmark runs for long: unlike that of the tests it may compile its code for good.
_BROKER_JVM = ("-Xmx1g",)
_ADMIN_S = 30


@dataclass(frozen=True)
class Bench:
    """A broker, a session with both connectors, and the roots of their processes."""

    cluster: DevCluster
    spark: SparkSession
    roots: Mapping[str, int]
    _events: Path

    @property
    def bootstrap_servers(self) -> str:
        return self.cluster.bootstrap_servers

    def events(self) -> Path:
        """The log of Spark's events, as far as it is written: a JSON object in each line."""
        (log,) = self._events.iterdir()
        return log

    def delete_topic(self, name: str) -> None:
        """So that a long benchmark needs no more disk than a short one."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 3})
        admin.delete_topics([name])[name].result(_ADMIN_S)


@contextmanager
def bench() -> Iterator[Bench]:
    """Both of them up; gone at the end."""
    # A line for each micro-batch is of use in a log, not here.
    os.environ.setdefault(LEVEL_VARIABLE, "WARNING")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    conf = {
        "spark.master": "local[*]",
        "spark.jars": ",".join(map(str, resolve(SPARK_KAFKA))),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    with (
        tempfile.TemporaryDirectory(prefix="spark-eos-bench-", ignore_cleanup_errors=True) as events,
        DevCluster(jvm_flags=_BROKER_JVM) as cluster,
    ):
        conf["spark.eventLog.dir"] = Path(events).as_uri()
        spark = session.start("benchmark", conf)
        spark.sparkContext.setLogLevel("ERROR")  # the built-in sink's producers miss topics that are deleted
        try:
            jvm = spark.sparkContext._jvm
            assert jvm is not None
            broker = cluster.broker(0).pid
            assert broker is not None
            roots = {CLIENT: jvm.java.lang.ProcessHandle.current().pid(), BROKER: broker}
            yield Bench(cluster, spark, roots, Path(events))
        finally:
            spark.sparkContext.setLogLevel("OFF")  # the built-in sink's producers outlive the broker, and complain
            spark.stop()
