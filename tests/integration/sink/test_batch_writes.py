"""`df.write`: all rows at once or not at all, and once only under one job.id, whatever happens in between."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

import spark_eos
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.ledger.query import LedgerAddress, query_ports
from spark_eos.options.table import DEFAULT_LEDGER_TOPIC, DEFAULT_PREFIX
from spark_eos.protocol.head import BatchWrite, Head
from spark_eos.protocol.names import query_of_job
from spark_eos.spark.reasons import Reason
from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import KafkaView
from tests.support.runs.case_cover import one_for_every_day
from tests.support.spark.session_faults import armed
from tests.support.waiting import wait_for

TASKS, ROWS = 3, 300
FAILED = (PySparkException, Py4JJavaError)


class Jobs:
    """Batch writes of ``0 … rows - 1`` by `TASKS` tasks to one topic, and what is there afterwards."""

    def __init__(self, cluster: DevCluster, spark: SparkSession, view: KafkaView, topic: str) -> None:
        self.servers, self.spark, self.view, self.topic = cluster.bootstrap_servers, spark, view, topic

    def rows(self, rows: int = ROWS, tasks: int = TASKS) -> DataFrame:
        return self.spark.range(0, rows, 1, tasks).selectExpr("string(id) AS key", "string(id) AS value")

    def writer(self, rows: DataFrame, **options: str) -> DataFrameWriter:
        given = {"kafka.bootstrap.servers": self.servers, "topic": self.topic}
        given |= {key.replace("__", "."): value for key, value in options.items()}
        return rows.write.format("eos-kafka").mode("append").options(**given)

    def write(self, job: str | None = None, rows: int = ROWS, tasks: int = TASKS, **options: str) -> None:
        named = {} if job is None else {"job__id": job}
        self.writer(self.rows(rows, tasks), **named, **options).save()

    def refused(self, write: Callable[[], Any]) -> Reason:
        with pytest.raises(FAILED) as raised:
            write()
        found = spark_eos.reason(raised.value)
        assert found is not None, raised.value
        return found

    def there(self) -> list[int]:
        """What a read_committed consumer sees when the markers are written."""
        wait_for(lambda: not self.view.held(self.topic), "the markers")
        return sorted(int(value) for value in self.view.values(self.topic))

    def head(self, job: str) -> Head:
        partitions = len(self.view.partitions(DEFAULT_LEDGER_TOPIC))
        place = LedgerAddress(DEFAULT_LEDGER_TOPIC, partitions, DEFAULT_PREFIX)
        ports = query_ports(
            broker_client(KafkaProperties({"bootstrap.servers": self.servers})), place, query_of_job(job)
        )
        head = ports.ledger.read()
        assert head is not None
        return head


@pytest.fixture
def jobs(cluster: DevCluster, spark: SparkSession, view: KafkaView, topic: Callable[..., str]) -> Jobs:
    return Jobs(cluster, spark, view, topic(4))


@pytest.fixture
def job() -> str:
    return f"job {uuid.uuid4()}"


def test_a_write_is_there_as_a_whole_and_a_second_run_writes_nothing(jobs: Jobs, job: str):
    """Also with other tasks than the first one; the ledger says that the job is completed, by rows and digest alone."""
    jobs.write(job)
    assert jobs.there() == list(range(ROWS))
    ends = jobs.view.ends_at_rest(jobs.topic)
    jobs.write(job, tasks=5)
    assert jobs.view.ends(jobs.topic) == ends  # neither rows nor aborted rows
    head = jobs.head(job)
    assert isinstance(head.write, BatchWrite) and head.decision is not None
    assert (head.write.job_id, head.write.topic) == (job, jobs.topic)
    assert (head.decision.rows, head.decision.written) == (ROWS, ())


def test_other_rows_under_the_same_id_are_refused(jobs: Jobs, job: str, topic):
    """More rows, as many but other ones, or another topic: nothing is written."""
    jobs.write(job)
    ends = jobs.view.ends_at_rest(jobs.topic)
    found = jobs.refused(lambda: jobs.write(job, rows=ROWS + 1))
    assert found.condition == "EOS_JOB_DIFFERS"
    assert f"'{job}'" in found.message
    assert f"decided {ROWS}, now {ROWS + 1}" in found.message
    swapped = jobs.rows().selectExpr("key", "string(299 - int(value)) AS value")
    assert jobs.refused(jobs.writer(swapped, job__id=job).save).condition == "EOS_JOB_DIFFERS"
    other = topic(1)
    found = jobs.refused(lambda: jobs.write(job, topic=other))
    assert found.condition == "EOS_JOB_DIFFERS"
    assert f"topic {jobs.topic}" in found.message and other in found.message
    assert jobs.view.ends(jobs.topic) == ends
    assert jobs.view.values(other) == []


@pytest.mark.parametrize(
    ("point", "written"),
    one_for_every_day(
        "a batch write that dies",
        [("prepare.prepared=die, abort.entered", 0), ("commit.decided=die, abort.entered", 1), ("commit.completed", 1)],
    ),
)
def test_a_run_that_dies_is_finished_by_the_next(point, written, jobs: Jobs, job: str, tmp_path):
    """A process of it is killed at a point of the protocol; with ``abort.entered`` nobody aborts what it leaves, as
    when the whole driver dies. Before the decision, the next run writes all again; after it, nothing. Readers see all
    rows, once."""
    with armed(jobs.spark, f"{point}=die", tmp_path / "faults") as fault, pytest.raises(FAILED):
        jobs.write(job)
    assert fault.marker is not None
    if not written:
        assert jobs.view.values(jobs.topic) == []
    before = sum(end for end in jobs.view.ends(jobs.topic).values())
    jobs.write(job)
    assert jobs.there() == list(range(ROWS))
    if written:
        markers = 4
        assert sum(jobs.view.ends(jobs.topic).values()) <= before + markers * TASKS
    assert jobs.head(job).decision.written == ()


def test_a_write_without_a_mode_is_told_which_one_to_choose(jobs: Jobs):
    """Before a task runs; and a generated id is in every error."""
    needed = {"kafka.bootstrap.servers": jobs.servers, "topic": jobs.topic}
    found = jobs.refused(jobs.rows().write.format("eos-kafka").options(**needed).save)
    assert found.condition == "EOS_USE_UNSUPPORTED"
    assert '.mode("append")' in str(found)
    large = jobs.spark.range(1).selectExpr("repeat('x', 2000000) AS value")
    found = jobs.refused(jobs.writer(large).save)
    assert found.condition == "EOS_ROW_TOO_LARGE"
    assert found.message.startswith("Batch write with the generated job.id '")
    assert jobs.there() == []
