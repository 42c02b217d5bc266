"""What a benchmark runs on: a broker and a Spark session of its own, and the processes that cost is counted of."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient
from pyspark import SparkContext
from pyspark.sql import SparkSession

from bench.meter import BROKER, CLIENT
from bench.queries import EOS_KAFKA
from jobs.delta.table import with_delta
from jobs.runner import fork_server, session
from jobs.runner.jvm_stderr import JvmStderr
from jobs.runner.local_checkpoint import FASTER
from spark_eos.base.log import LEVEL_VARIABLE
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.tools.devcluster import DevCluster
from spark_eos.tools.devcluster.jars import DELTA, SPARK_KAFKA, resolve

#: The broker of a benchmark runs for long: unlike that of the tests it may compile its code for good.
_BROKER_JVM = ("-Xmx1g",)
_ADMIN_S = 30
#: A JVM that has not ended by then is killed.
_END_S = 30
_LOCAL = {
    "spark.master": "local[*]",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}
#: By default the log of each table is read by 50 tasks, which takes seconds in each micro-batch, whoever writes it.
_DELTA = {"spark.databricks.delta.snapshotPartitions": "2"}


@dataclass(frozen=True)
class Bench:
    """A broker and a session with both connectors. ``roots``: the processes of each group of `bench.meter`, of which
    all others of the group are descendants; Spark's JVM is the client's first one."""

    cluster: DevCluster
    spark: SparkSession
    roots: Mapping[str, Sequence[int]]

    @property
    def bootstrap_servers(self) -> str:
        return self.cluster.bootstrap_servers

    def delete_topic(self, name: str) -> None:
        """So that a long benchmark needs no more disk than a short one."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 3})
        admin.delete_topics([name])[name].result(_ADMIN_S)


@contextmanager
def broker() -> Iterator[DevCluster]:
    with DevCluster(jvm_flags=_BROKER_JVM) as cluster:
        yield cluster


@contextmanager
def bench(cluster: DevCluster, *, delta: bool = False) -> Iterator[Bench]:
    """A session beside the broker; gone at the end. ``delta``: it knows Delta, which other sessions do better
    without."""
    # A line for each micro-batch is of use in a log, not here.
    os.environ.setdefault(LEVEL_VARIABLE, "WARNING")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    jars = [*resolve(SPARK_KAFKA), *(resolve(DELTA) if delta else ())]
    conf = {
        **_LOCAL,
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
    }
    with JvmStderr(lambda: False) as stderr:
        settings = with_delta(KafkaProperties(conf | _DELTA)) if delta else conf
        spark = session.start("benchmark", settings, stderr=stderr.fd)
        for name, value in FASTER.items():
            spark.conf.set(name, value)
        spark.sparkContext.setLogLevel("ERROR")  # the built-in sink's producers miss topics that are deleted
        try:
            jvm = spark.sparkContext._jvm
            assert jvm is not None
            broker = cluster.broker(0).pid
            assert broker is not None
            # Spark's Python processes are forks of a server, which is a child of this process, not of the JVM.
            spark_pids = [jvm.java.lang.ProcessHandle.current().pid(), *fork_server.pids()]
            roots = {CLIENT: spark_pids, BROKER: [broker]}
            yield Bench(cluster, spark, roots)
        finally:
            _end(spark)


def start_alone(format_: str) -> SparkSession:
    """A session as the jobs have it, for queries of one format only, in a process of its own."""
    os.environ.setdefault(LEVEL_VARIABLE, "WARNING")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    jars = [] if format_ == EOS_KAFKA else resolve(SPARK_KAFKA)
    conf = {**_LOCAL, **({"spark.jars": ",".join(map(str, jars))} if jars else {}), **FASTER}
    spark = session.start("start", conf)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@contextmanager
def files_of_spark(spark: SparkSession) -> Iterator[None]:
    """Meanwhile, queries that start write their checkpoints as Spark does it by itself."""
    for name in FASTER:
        spark.conf.unset(name)
    try:
        yield
    finally:
        for name, value in FASTER.items():
            spark.conf.set(name, value)


def _end(spark: SparkSession) -> None:
    """Session and JVM, so that the next session starts as the first one did. The built-in sink's producers would
    outlive the session, and complain."""
    gateway = SparkContext._gateway  # noqa: SLF001  # nothing public leads to it
    spark.stop()
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM ends with it, and writes what has been recorded of it
        try:
            gateway.proc.wait(_END_S)
        except subprocess.TimeoutExpired:
            gateway.proc.kill()
            gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001  # else the next session asks the one that is gone
