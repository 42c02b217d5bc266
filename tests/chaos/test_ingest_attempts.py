"""An ingest past the JVM on executors of their own: its tasks are of a job whose attempts Spark does not coordinate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import KafkaView
from tests.support.queries.ingests import Setting
from tests.support.spark.standalone import SPECULATION, standalone
from tests.support.waiting import wait_for

pytestmark = pytest.mark.chaos


def test_two_attempts_of_a_task_that_both_end_well(
    cluster: DevCluster, spark: SparkSession, view: KafkaView, topic: Callable[..., str], tmp_path: Path
):
    """Speculation: a task and its copy are at their end together, each with all of its rows in an open transaction.
    One is decided, the other one aborted, whichever Spark hears of first."""
    setting = Setting(cluster, spark, view, topic(2), tmp_path / "files")
    rows = [f"{name} {n}" for name in "ab" for n in range(50)]
    for name in "ab":
        setting.put(name, *(row for row in rows if row.startswith(name)))
    # Of two tasks one is held; the other one is done before Spark tries the first one again.
    faults = "prepare.flushed=hold@1, prepare.prepared=hold@2"
    with standalone(tmp_path / "spark", cores=2) as hosts:
        settings = {"spark.master": hosts.master, **SPECULATION}
        with setting.program(faults, tmp_path / "faults", settings) as program:
            program.wait_at("prepare.flushed", "prepare.prepared")
            names = view.transactions(setting.query, "Ongoing")
            program.release("prepare.flushed", "prepare.prepared")
            assert program.ended() == 0, program.log()
    assert len(names) == 3, names
    wait_for(lambda: not view.open_transactions(setting.query), "the end of the other attempt's transaction")
    assert setting.there() == sorted(rows)
    assert setting.names() == ["a", "b"]
