"""A batch write as a program of its own, whose driver and JVM are killed; the next run finishes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import KafkaView
from tests.support.judges.recorder import judged, of_topics
from tests.support.waiting import PROGRAM_S, wait_for

pytestmark = pytest.mark.chaos
ROWS = 2_000
PROGRAM = """
import sys
import spark_eos
from pyspark.sql import SparkSession

servers, topic, job = sys.argv[1:]
spark = SparkSession.builder.master("local[3]").config("spark.ui.enabled", "false").getOrCreate()
spark_eos.register(spark)
rows = spark.range(0, {rows}, 1, 3).selectExpr("string(id) AS key", "string(id) AS value")
options = {{"kafka.bootstrap.servers": servers, "topic": topic, "job.id": job}}
rows.write.format("eos-kafka").mode("append").options(**options).save()
"""


@pytest.mark.parametrize(
    "point",
    [
        *("open.taken", "open.published", "prepare.wrote", "prepare.prepared", "commit.entered", "commit.verified"),
        *("commit.decided", "commit.between", "commit.ended", "commit.completed"),
    ],
)
def test_a_killed_driver(point: str, cluster: DevCluster, view: KafkaView, topic: Callable[..., str], tmp_path: Path):
    """All rows are there once after the second run, nothing is held, and a third run writes nothing."""
    name, job = topic(4), str(uuid.uuid4())
    program = tmp_path / "write.py"
    program.write_text(PROGRAM.format(rows=ROWS))
    command = [sys.executable, str(program), cluster.bootstrap_servers, name, job]
    environ = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    faults = tmp_path / "faults"
    faults.mkdir()
    with judged(view, of_topics(view, name)):
        with (tmp_path / "log").open("wb") as log:
            armed = environ | {"SPARK_EOS_FAULTS": f"{point}=hold", "SPARK_EOS_FAULTS_DIR": str(faults)}
            first = subprocess.Popen(command, env=armed, stdout=log, stderr=log, start_new_session=True)
            try:
                wait_for((faults / point).exists, (tmp_path / "log").read_text)
            finally:
                os.killpg(first.pid, signal.SIGKILL)
                first.wait()
        subprocess.run(command, env=environ, check=True, timeout=PROGRAM_S, capture_output=True)
        wait_for(lambda: not view.held(name), "the markers")
        assert sorted(map(int, view.values(name))) == list(range(ROWS))
        ends = view.ends(name)
        subprocess.run(command, env=environ, check=True, timeout=PROGRAM_S, capture_output=True)
        assert view.ends(name) == ends
