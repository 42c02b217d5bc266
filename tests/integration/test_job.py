"""The job as people start it: ``python -m`` and ``spark-submit``, on a real broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from jobs._demo import processes
from jobs._demo.topics import Reader
from spark_eos.devcluster import DevCluster

ROOT = Path(__file__).parents[2]
MODULE = (sys.executable, "-m", "jobs.consume_transform_produce")
SUBMIT = (str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), str(ROOT / "jobs/consume_transform_produce.py"))
SECONDS = 180

CONFIG = """\
kafka: {{bootstrap.servers: "{servers}"}}
source: {{topics: [{source}]}}
transform:
  {transform}
sink: {{topic: {target}}}
group: {source}-group
checkpoint: {checkpoint}
trigger: {trigger}
spark:
  spark.master: local[2]
  spark.ui.enabled: false
  spark.driver.host: 127.0.0.1
  spark.driver.bindAddress: 127.0.0.1
"""
DOUBLE = """parse: {format: json, schema: n INT}
  sql: SELECT key, CAST(2 * n AS STRING) AS value FROM input WHERE n < 1000"""
FUNCTION = """
import os, sys
from pyspark.sql import DataFrame, functions as F

@F.udf("string")
def where(value):
    return sys.executable

def transform(rows: DataFrame) -> DataFrame:
    return rows.select(where(F.col("value")).alias("value"))
"""


class Setting:
    """Two topics, a config file that leads from one to the other, and what is in them."""

    def __init__(self, cluster: DevCluster, topic, folder: Path) -> None:
        self.servers = cluster.bootstrap_servers
        self.source, self.target = topic(partitions=2), topic(partitions=2)
        self.folder = folder

    def config(self, transform: str = DOUBLE, trigger: str = "{availableNow: true}") -> Path:
        file = self.folder / "job.yaml"
        places = {"servers": self.servers, "source": self.source, "target": self.target}
        file.write_text(
            CONFIG.format(**places, transform=transform, trigger=trigger, checkpoint=self.folder / "checkpoint")
        )
        return file

    def produce(self, *values: str) -> None:
        producer = Producer({"bootstrap.servers": self.servers})
        for value in values:
            producer.produce(self.source, value)
        assert producer.flush(30) == 0

    def output(self) -> list[str]:
        with Reader(self.servers, [self.target], committed=True) as reader:
            return sorted((row.value or b"").decode() for row in reader.to_end())

    def group_offsets(self) -> int:
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": f"{self.source}-group"})
        offsets = [p.offset for p in consumer.committed([TopicPartition(self.source, p) for p in range(2)], timeout=30)]
        consumer.close()
        return sum(offsets)


@pytest.fixture
def setting(cluster: DevCluster, topic, tmp_path: Path) -> Setting:
    return Setting(cluster, topic, tmp_path)


def environment(**more: str) -> dict[str, str]:
    """Without anything of the tests' own that would help the job to find its modules or its interpreter."""
    hidden = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    # Up fast counts for more than fast in the long run.
    settings = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    return {k: v for k, v in os.environ.items() if k not in hidden} | settings | more


def run(*command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment(**environ), timeout=SECONDS
    )


@contextmanager
def running(*command: str, log: Path, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    """The job in the background, gone at the end with all that belongs to it."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=ROOT, env=environment(**environ))
    try:
        yield process
    finally:
        if process.poll() is None:
            processes.kill(process.pid)
            process.wait()


def wait_for(condition, log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def test_python_m_writes_each_row_once_and_goes_on_where_it_ended(setting: Setting):
    setting.produce(*(json.dumps({"n": n}) for n in range(100)), '{"n": 1000}')
    first = run(*MODULE, "--conf", str(setting.config()))
    assert first.returncode == 0, first.stderr
    assert "101 rows in" in first.stderr
    assert setting.output() == sorted(str(2 * n) for n in range(100))
    assert setting.group_offsets() == 101

    setting.produce('{"n": 500}')
    second = run(*MODULE, "--conf", str(setting.config()))
    assert second.returncode == 0, second.stderr
    assert setting.output() == sorted(str(2 * n) for n in [*range(100), 500])
    assert setting.group_offsets() == 102


def test_spark_submit_runs_a_function_with_the_drivers_interpreter(setting: Setting):
    """Nothing but PATH says which Python: the job's own modules, the function's and the workers' interpreter fit."""
    modules = setting.folder / "modules"
    modules.mkdir()
    (modules / "my_transform.py").write_text(FUNCTION)
    setting.produce("a", "b")
    bin_folder = str(Path(sys.executable).parent)
    done = run(
        *SUBMIT,
        "--conf",
        str(setting.config(transform="function: my_transform:transform")),
        PYTHONPATH=str(modules),
        PATH=f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        SPARK_HOME=str(Path(pyspark.__file__).parent),
    )
    assert done.returncode == 0, done.stderr
    assert [Path(name).parent for name in setting.output()] == [Path(bin_folder)] * 2


def test_a_malformed_row_ends_the_job_with_one_paragraph_and_nothing_visible(setting: Setting):
    setting.produce('{"n": 1}', '{"n": 2}', "no JSON")
    done = run(*MODULE, "--conf", str(setting.config()))
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if "failed: " in line]
    assert line.startswith(f"failed: [EOS_JOB_MALFORMED_ROW] The value of topic {setting.source}, partition ")
    # Spark's own workers may say that they have lost the task.
    frames = [line for line in done.stderr.splitlines() if line.startswith("  File ") and "/daemon.py" not in line]
    assert "\tat " not in done.stderr and not frames, done.stderr
    assert setting.output() == []


def test_a_mistake_in_the_config_is_said_before_anything_starts(setting: Setting):
    config = setting.config()
    config.write_text(config.read_text().replace("checkpoint:", "chekpoint:"))
    done = run(*MODULE, "--conf", str(config))
    assert done.returncode == 1
    assert done.stderr.startswith("failed: [EOS_CONFIG_UNKNOWN_KEY]")
    assert "Did you mean 'checkpoint'?" in done.stderr and len(done.stderr.splitlines()) == 1


def test_sigterm_stops_the_query_in_good_order(setting: Setting):
    """Exit code 0, no process left, and the next start goes on without a row lost or doubled."""
    setting.produce('{"n": 1}')
    log = setting.folder / "log"
    config = setting.config(trigger='{processingTime: "100 milliseconds"}')
    with running(*MODULE, "--conf", str(config), log=log) as job:
        wait_for(setting.output, log)
        setting.produce('{"n": 2}')
        family = processes.descendants(job.pid)
        job.send_signal(signal.SIGTERM)
        assert job.wait(SECONDS) == 0, log.read_text()
        wait_for(lambda: not processes.alive(family), log)
    assert "stopping: " in log.read_text() and "failed: " not in log.read_text()
    done = run(*MODULE, "--conf", str(setting.config()))
    assert done.returncode == 0, done.stderr
    assert setting.output() == ["2", "4"]
