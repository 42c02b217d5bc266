"""What every job does around its own work, without Spark."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import cast

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from jobs.runner.job import JobContext, query_plan
from jobs.runner.lines import BatchLines
from jobs.runner.models import QueryJob
from jobs.runner.query import Stop
from spark_eos.errors import stop

SPARK = cast(SparkSession, None)


def test_a_job_that_is_stopped_in_the_pause_before_its_first_query_has_started_is_done(tmp_path: Path):
    """As where the cluster is away when the query is to be started, and the machine is shut down then."""
    asked = Stop()
    asked.running = True

    def start(spark: SparkSession) -> StreamingQuery:
        threading.Timer(0.3, asked.ask, [signal.SIGTERM]).start()
        raise stop("EOS_KAFKA_UNREACHABLE.leader", topic="b", number=0, seconds=1)

    config = QueryJob.model_validate({"checkpoint": str(tmp_path)})
    plan = query_plan(config, "a → b", [], start, "earliest")
    plan.work(JobContext(SPARK, asked, BatchLines()))
