"""An operator aborts one partition of a decided transaction, right before it is committed: everybody is told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import spark_eos
from spark_eos.errors import EosError
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.ledger.lookup import RecordLookup
from spark_eos.tools.devcluster import DevCluster
from tests.support.queries.sink_queries import ended_by
from tests.support.spark.session_faults import armed
from tests.support.waiting import wait_for

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
PARTITIONS = 2
ROWS = [(str(number), number % PARTITIONS) for number in range(40)]
COLUMNS = "value string, partition int"
MISSING = "EOS_ROWS_MISSING"


@pytest.fixture
def aborted(cluster: DevCluster, spark, tmp_path) -> Callable[..., Any]:
    """``with aborted(topic):`` the next decision is held, its partition 1 is aborted, and the decision let go."""

    @contextmanager
    def during(topic: str) -> Iterator[None]:
        failed: list[BaseException] = []

        def operator(fault: Any) -> None:
            try:
                wait_for(fault.marker.exists, "the decision")
                data = RecordLookup(broker_client(KafkaProperties({"bootstrap.servers": cluster.bootstrap_servers})))
                (start,) = data.partition(topic, 1).open.values()
                place = ["--topic", topic, "--partition", "1", "--start-offset", str(start)]
                cluster.java_tool(TRANSACTIONS, "--bootstrap-server", cluster.bootstrap_servers, "abort", *place)
            except BaseException as error:
                failed.append(error)
                raise
            finally:
                fault.marker.unlink(missing_ok=True)  # which lets the commit go on

        with armed(spark, "commit.decided=hold", tmp_path / "faults") as fault:
            thread = threading.Thread(target=operator, args=[fault])
            thread.start()
            yield
            thread.join()
        assert failed == []

    return during


def test_the_end_of_a_run_tells(aborted, sink, files, topic, view):
    """The last commit has returned, and no other follows; `spark_eos.run` raises. So does every start after that, with
    or without something to do."""
    out = topic(PARTITIONS)
    stream, query = files(COLUMNS).add(ROWS), sink(topic=out)
    with aborted(out), pytest.raises(EosError, match=f"offset 0 of {out}-1 on") as caught:
        spark_eos.run(lambda: query.start(stream.stream()))
    assert caught.value.condition == MISSING
    assert caught.value.parameters["partition"] == 1
    assert len(view.values(out)) == len(ROWS) // 2
    for _ in range(2):
        more = stream.add(ROWS).stream()
        assert f"{out}-1" in ended_by(query.start(more), MISSING)
    assert len(view.values(out)) == len(ROWS) // 2


def test_a_batch_write_tells(aborted, cluster, spark, topic, view):
    """It does not return before the answer; nor does another run under its id."""
    out = topic(PARTITIONS)

    def write() -> None:
        rows = spark.createDataFrame(ROWS, COLUMNS).coalesce(1).write.format("eos-kafka").mode("append")
        rows.options(**{"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": out, "job.id": out}).save()

    with aborted(out):
        _fails(write)
    _fails(write)
    assert len(view.values(out)) == len(ROWS) // 2


def _fails(work: Callable[[], Any]) -> None:
    with pytest.raises((PySparkException, Py4JJavaError)) as raised:
        work()
    found = spark_eos.reason(raised.value)
    assert found is not None and found.condition == MISSING, raised.value
