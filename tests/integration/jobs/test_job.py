"""The job as people start it: ``python -m`` and ``spark-submit``, on a real broker."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from demo import processes
from demo.topics import Reader
from spark_eos.ops.metrics.recording import EventFile
from spark_eos.tools.devcluster import DevCluster
from tests.support.kills.job_program import log_of, started
from tests.support.waiting import PROGRAM_S, TIMEOUT, command_of, wait_for

ROOT = Path(__file__).parents[3]
NAME = "consume_transform_produce"
MODULE = (sys.executable, "-m", f"jobs.{NAME}")
SUBMIT = (str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), str(ROOT / "jobs/consume_transform_produce.py"))

CONFIG = """\
kafka: {{bootstrap.servers: "{servers}"}}
source: {{subscribe: {source}}}
transform:
  {transform}
sink: {{topic: {target}, offsets.group.id: {source}-group}}
checkpoint: {checkpoint}
trigger: {trigger}
spark:
  spark.master: local[2]
  spark.ui.enabled: false
  spark.driver.host: 127.0.0.1
  spark.driver.bindAddress: 127.0.0.1
"""
DOUBLE = """format: json
  schema: n INT
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

FAILS_ONCE = """
from pathlib import Path
from pyspark.sql import DataFrame, functions as F
from spark_eos.errors import KafkaError

@F.udf("string")
def once(value):
    try:
        Path({flag!r}).touch(exist_ok=False)
    except FileExistsError:
        return value
    raise KafkaError("EOS_DELIVERY_FAILED", "A broker has failed.", hint="Start it again.")

def transform(rows: DataFrame) -> DataFrame:
    return rows.select(once(F.col("value").cast("string")).alias("value"))
"""


class Setting:
    """Two topics, a config file that leads from one to the other, and what is in them."""

    def __init__(self, cluster: DevCluster, topic, folder: Path) -> None:
        self.servers = cluster.bootstrap_servers
        self.source, self.target = topic(partitions=2), topic(partitions=2)
        self.folder = folder

    def config(self, transform: str = DOUBLE, trigger: str = "availableNow") -> Path:
        file = self.folder / "job.yaml"
        places = {"servers": self.servers, "source": self.source, "target": self.target}
        file.write_text(
            CONFIG.format(**places, transform=transform, trigger=trigger, checkpoint=self.folder / "checkpoint")
        )
        return file

    def produce(self, *values: str) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "log_level": 0})
        for value in values:
            producer.produce(self.source, value)
        assert producer.flush(TIMEOUT) == 0

    def output(self) -> list[str]:
        with Reader(self.servers, [self.target], committed=True) as reader:
            return sorted((row.value or b"").decode() for row in reader.to_end())

    def group_offsets(self) -> int:
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": f"{self.source}-group"})
        offsets = [
            p.offset for p in consumer.committed([TopicPartition(self.source, p) for p in range(2)], timeout=TIMEOUT)
        ]
        consumer.close()
        return sum(offsets)


@pytest.fixture
def setting(cluster: DevCluster, topic, tmp_path: Path) -> Setting:
    return Setting(cluster, topic, tmp_path)


@pytest.fixture
def topic_names():
    """``topic_names(cluster)``: what `topic` is to the shared cluster, for another one."""

    def of(cluster: DevCluster) -> Callable[..., str]:
        def create(partitions: int) -> str:
            name = f"t-{uuid.uuid4().hex[:8]}"
            cluster.create_topic(name, partitions)
            return name

        return create

    return of


def environment(**more: str) -> dict[str, str]:
    """Without anything of the tests' own that would help the job to find its modules or its interpreter."""
    hidden = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    return {k: v for k, v in os.environ.items() if k not in hidden} | {"SPARK_LOCAL_IP": "127.0.0.1"} | more


def run(*command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment(**environ), timeout=PROGRAM_S
    )


def jvms(job: subprocess.Popen[bytes]) -> list[int]:
    """The process id of a job's JVM, if it has started. The job's other child is its server of Python processes."""
    commands = {process.pid: command_of(process.pid) for process in processes.children([job.pid])}
    return [pid for pid, command in commands.items() if command and b"fork_server" not in command]


def said_of(log: Path, *lines: str) -> bool:
    """Wait until the job has said lines that begin so, in this order."""
    pattern = re.compile(".*".join("^" + re.escape(line) for line in lines), re.MULTILINE | re.DOTALL)
    wait_for(lambda: pattern.search(log.read_text(errors="replace")), log.read_text, PROGRAM_S)
    return True


#: All that a job may say without `--verbose`, other than what it was asked to say here. The last is of the JVM.
LINES = re.compile(
    r"\S+ → \S+; group \S+; checkpoint \S+; (every .+|until all that is there now is read)"
    r"|starting Spark \S+ on local\[2\] …|Spark is up after \d+ s; (a new query, from earliest|the query goes on)"
    r"|batch \d+: [\d,]+ in, [\d,]+ out, [\d.]+( k)? rows/s, lag [\d,]+|idle: there is nothing to read"
    r"|no answer from \S+ for \d+ s|\S+ answers again, after \d+ s|planning and running the first micro-batch …"
    r"|done: .+|stopping: SIGTERM; .+|stopped by SIG.+"
)


def strange(log: str) -> list[str]:
    """Lines that do not belong to a job in good order: stacks, warnings of Spark's, logs of other forms."""
    return [line for line in log.splitlines() if not LINES.fullmatch(line)]


def test_python_m_writes_each_row_once_and_goes_on_where_it_ended(setting: Setting):
    """Two runs write each row once, commit the group's offsets, and say so in a line for each micro-batch."""
    setting.produce(*(json.dumps({"n": n}) for n in range(100)), '{"n": 1000}')
    first = run(*MODULE, "--conf", str(setting.config()))
    assert first.returncode == 0, first.stderr
    assert strange(first.stderr) == []
    assert first.stderr.startswith(
        f"{setting.source} → {setting.target}; group {setting.source}-group; checkpoint {setting.folder}/checkpoint; "
        "until all that is there now is read\nstarting Spark "
    )
    assert "a new query, from earliest" in first.stderr
    assert re.search(r"^batch 1: 101 in, 100 out, \S+ rows/s, lag 0$", first.stderr, re.MULTILINE)
    assert first.stderr.endswith("done: 101 in, 100 out, in 1 micro-batch\n")
    assert setting.output() == sorted(str(2 * n) for n in range(100))
    assert setting.group_offsets() == 101

    setting.produce('{"n": 500}')
    second = run(*MODULE, "--conf", str(setting.config()))
    assert second.returncode == 0, second.stderr
    assert "the query goes on" in second.stderr and strange(second.stderr) == []
    assert setting.output() == sorted(str(2 * n) for n in [*range(100), 500])
    assert setting.group_offsets() == 102


@pytest.mark.chaos
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
    # spark-submit sends what Python has for stderr to its own stdout.
    assert re.search(r"^batch 1: 2 in, 2 out, ", done.stdout, re.MULTILINE), done.stdout + done.stderr
    assert "replaced a statically registered data source" not in done.stderr and "query=" not in done.stderr
    assert [Path(name).parent for name in setting.output()] == [Path(bin_folder)] * 2


def test_a_query_that_fails_is_started_again_where_that_helps(setting: Setting):
    """By the job itself: it says why and when, goes on where the query ended, and is done as if nothing had been."""
    (setting.folder / "fails_once.py").write_text(FAILS_ONCE.format(flag=str(setting.folder / "has failed")))
    setting.produce("a", "b")
    config = setting.config(transform="function: fails_once:transform")
    config.write_text(config.read_text() + "restart: {attempts: 1, pause: 10 milliseconds}\n")
    events = setting.folder / "events.jsonl"
    with config.open("a") as file:
        file.write(f"metrics: {{port: 0, host: 127.0.0.1, events: {events}}}\n")
    done = run(*MODULE, "--conf", str(config), PYTHONPATH=str(setting.folder))
    assert done.returncode == 0, done.stderr
    assert re.search(r"^metrics at port \d+$", done.stderr, re.MULTILINE)
    assert "replaced a previously registered" not in done.stderr
    told = EventFile(events).read()
    assert [event["condition"] for event in told if event["event"] == "restart"] == ["EOS_DELIVERY_FAILED"]
    assert sum(event["rows"] for event in told if event["event"] == "committed") == 2
    failed = "failed: [EOS_DELIVERY_FAILED] A broker has failed. Hint: Start it again."
    said = done.stderr.splitlines()
    assert said.index(failed) < said.index("restart 1 of 1 in 0.01 s")
    assert done.stderr.endswith("done: 2 in, 2 out, in 1 micro-batch\n")
    assert setting.output() == ["a", "b"]


def test_a_job_tells_of_rows_of_none_of_a_broker_that_dies_and_of_its_stop(topic_names, tmp_path: Path):
    """One run: a micro-batch slower than the trigger, idle, a broker killed and started again, more rows, and SIGTERM.

    Exit code 0, nothing but the job's own lines, no process left, and the next start goes on without a row lost or
    doubled, after a first one that Ctrl-C ends before Spark is up.
    """
    log = log_of(NAME, tmp_path)
    with DevCluster() as cluster:
        setting = Setting(cluster, topic_names(cluster), tmp_path)
        setting.produce('{"n": 1}')
        config = setting.config(trigger="100 milliseconds")
        with started(NAME, config, tmp_path) as job:
            said_of(log, "batch 1: 1 in, 1 out, ", "idle: there is nothing to read")
            cluster.kill(0)
            said_of(log, f"no answer from {setting.servers} for 5 s")
            cluster.start(0)
            said_of(log, f"{setting.servers} answers again, after ")
            setting.produce('{"n": 2}')
            said_of(log, "batch 2: 1 in, 1 out, ")
            family = processes.descendants(job.pid)
            job.send_signal(signal.SIGTERM)
            assert job.wait(PROGRAM_S) == 0, log.read_text()
            wait_for(lambda: not processes.alive(family), log.read_text, PROGRAM_S)
        assert said_of(log, "stopping: SIGTERM; the micro-batch under way, if any, is given up")
        assert log.read_text().endswith("stopped by SIGTERM: restart it, and it resumes where it stopped\n")
        rate = re.search(r"^batch 1: 1 in, 1 out, (\S+) rows/s", log.read_text(), re.MULTILINE)
        assert rate is not None and float(rate[1]) < 10  # longer than the interval: "Current batch is falling behind"
        # Where a broker needs its time to come back, the source says for how long it has waited.
        assert [line for line in strange(log.read_text()) if "asking about topics" not in line] == []

        log.unlink()
        with started(NAME, config, tmp_path) as job:
            (jvm, *_) = wait_for(lambda: jvms(job), log.read_text, PROGRAM_S)
            os.kill(jvm, signal.SIGSTOP)  # it is starting, and does not come to a query
            os.killpg(job.pid, signal.SIGINT)
            assert job.wait(PROGRAM_S) == 0, log.read_text()
            os.kill(jvm, signal.SIGKILL)
        assert log.read_text().endswith("stopped by SIGINT, before there was a query\n")
        assert strange(log.read_text()) == []

        done = run(*MODULE, "--conf", str(setting.config()))
        assert done.returncode == 0, done.stderr
        assert setting.output() == ["2", "4"]


@pytest.mark.parametrize(
    ("ended", "code", "last"),
    [
        pytest.param(
            lambda job: os.killpg(job.pid, signal.SIGTERM),
            0,
            "stopped by SIGTERM: restart it, and it resumes where it stopped",
            marks=pytest.mark.chaos,
        ),
        (
            lambda job: os.kill(jvms(job)[0], signal.SIGKILL),
            75,
            "restart the job unchanged: it resumes where it stopped (exit code 75)",
        ),
    ],
    ids=["SIGTERM to all processes, as by systemd", "SIGKILL to the JVM, as by the kernel for memory"],
)
@pytest.mark.chaos
def test_a_job_whose_jvm_is_gone_says_so_without_a_stack(setting: Setting, ended, code: int, last: str):
    """At a stop it is what was asked for; else a restart helps."""
    setting.produce('{"n": 1}')
    config = setting.config(trigger="100 milliseconds")
    log = log_of(NAME, setting.folder)
    with started(NAME, config, setting.folder) as job:
        said_of(log, "batch 1: 1 in, 1 out, ", "idle: there is nothing to read")
        ended(job)
        assert job.wait(PROGRAM_S) == code, log.read_text()
    assert log.read_text().endswith(f"{last}\n")
    assert not re.search(r"Traceback|^\s", log.read_text(), re.MULTILINE), log.read_text()
