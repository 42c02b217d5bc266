"""An operator aborts one partition of a decided transaction right before it is committed, or the output is deleted and
created anew under a micro-batch: no row is missing in silence.

Coordinators commit by the topic's name, whichever topic that is by now.
"""

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
from spark_eos.kafka.net.client import broker_client
from spark_eos.ledger.lookup import RecordLookup
from tests.support.queries.sink_queries import ended_by
from tests.support.queries.source_calls import anew
from tests.support.runs.case_cover import one_for_every_day
from tests.support.spark.session_faults import armed
from tests.support.waiting import wait_for

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
PARTITIONS = 2
ROWS = [(str(number), number % PARTITIONS) for number in range(40)]
COLUMNS = "value string, partition int"
#: One task's, in two Arrow batches, the first of which is in the log when the second one comes.
LARGE_ROWS = [f"{number:03d}" + "." * 200_000 for number in range(20)]
MISSING = "EOS_ROWS_MISSING"

#: Nothing is decided: `spark_eos.run` starts the query again, or Spark the task, and all rows are written.
UNDECIDED = ["prepare.wrote", "prepare.prepared"]


@pytest.fixture
def meanwhile(spark, view, tmp_path) -> Callable[..., Any]:
    """``with meanwhile(topic, point, act):`` who comes to the point next is held until an operator has acted."""

    @contextmanager
    def during(topic: str, point: str, act: Callable[[str], object]) -> Iterator[None]:
        failed: list[BaseException] = []

        def operator(fault: Any) -> None:
            try:
                wait_for(fault.marker.exists, point)
                wait_for(lambda: view.held(topic), "rows in the log")
                act(topic)
            except BaseException as error:
                failed.append(error)
                raise
            finally:
                fault.marker.unlink(missing_ok=True)  # which lets the work go on

        with armed(spark, f"{point}=hold", tmp_path / "faults") as fault:
            thread = threading.Thread(target=operator, args=[fault])
            thread.start()
            yield
            thread.join()
        assert failed == []

    return during


@pytest.fixture
def abort(cluster, kafka) -> Callable[[str], None]:
    """Aborts partition 1 of what is open in a topic."""

    def act(topic: str) -> None:
        data = RecordLookup(broker_client(kafka))
        (start,) = data.partition(topic, 1).open.values()
        place = ["--topic", topic, "--partition", "1", "--start-offset", str(start)]
        cluster.java_tool(TRANSACTIONS, "--bootstrap-server", cluster.bootstrap_servers, "abort", *place)

    return act


@pytest.fixture
def recreate(admin, cluster) -> Callable[[str], None]:
    return lambda topic: anew(admin, cluster, topic, PARTITIONS)


@pytest.fixture
def small_batches(spark) -> Iterator[None]:
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, len(LARGE_ROWS) // 2)
    yield
    spark.conf.set(name, before)


@pytest.mark.parametrize("point", one_for_every_day("what was not decided is written again", UNDECIDED))
def test_what_was_not_decided_is_written_again(point, meanwhile, recreate, sink, files, topic, view, small_batches):
    """Halfway between a task's rows, too, the second half of which is in the new topic."""
    out = topic(PARTITIONS)
    stream, query = files().add(LARGE_ROWS), sink(topic=out)
    with meanwhile(out, point, recreate):
        spark_eos.run(lambda: query.start(stream.stream()))
    assert sorted(view.values(out)) == sorted(LARGE_ROWS)


@pytest.mark.parametrize(("act", "left"), [("abort", len(ROWS) // 2), ("recreate", 0)])
def test_the_end_of_a_run_tells_of_what_was_decided(act, left, meanwhile, request, sink, files, topic, view):
    """The last commit has returned, and no other follows; `spark_eos.run` raises. So does every start after that, with
    or without something to do."""
    out = topic(PARTITIONS)
    stream, query = files(COLUMNS).add(ROWS), sink(topic=out)
    with meanwhile(out, "commit.decided", request.getfixturevalue(act)):
        assert f"{out}-" in _fails(lambda: spark_eos.run(lambda: query.start(stream.stream())))
    assert len(view.values(out)) == left
    for _ in range(2):
        assert f"{out}-" in ended_by(query.start(stream.add(ROWS).stream()), MISSING)
    assert len(view.values(out)) == left


def test_a_batch_write_tells(meanwhile, abort, cluster, spark, topic, view):
    """It does not return before the answer; nor does another run under its id."""
    out = topic(PARTITIONS)

    def write() -> None:
        rows = spark.createDataFrame(ROWS, COLUMNS).coalesce(1).write.format("eos-kafka").mode("append")
        rows.options(**{"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": out, "job.id": out}).save()

    with meanwhile(out, "commit.decided", abort):
        _fails(write)
    _fails(write)
    assert len(view.values(out)) == len(ROWS) // 2


def _fails(work: Callable[[], Any]) -> str:
    """What is said of the rows that are missing."""
    with pytest.raises((EosError, PySparkException, Py4JJavaError)) as raised:
        work()
    found = spark_eos.reason(raised.value)
    assert found is not None and found.condition == MISSING, raised.value
    return found.message
