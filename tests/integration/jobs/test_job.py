"""The job as people start it: ``python -m`` and ``spark-submit``, on a real broker."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from demo import processes
from spark_eos.ops.metrics.recording import EventFile
from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import open_view
from tests.support.kills.job_program import log_of, started, strange
from tests.support.queries.topics_job import TopicsJob
from tests.support.waiting import PROGRAM_S, command_of, wait_for

ROOT = Path(__file__).parents[3]
NAME = "consume_transform_produce"
MODULE = (sys.executable, "-m", f"jobs.{NAME}")
SUBMIT = (str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), str(ROOT / "jobs/consume_transform_produce.py"))

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


def environment(**more: str) -> dict[str, str]:
    """Without anything of the tests' own that would help the job to find its modules or its interpreter."""
    hidden = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    return {k: v for k, v in os.environ.items() if k not in hidden} | {"SPARK_LOCAL_IP": "127.0.0.1"} | more


def run(*command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment(**environ), timeout=PROGRAM_S
    )


def jvms(job: subprocess.Popen[bytes]) -> list[int]:
    """The process id of a job's JVM, if it has started. Other children have the job's own command line at first."""
    commands = {process.pid: command_of(process.pid) for process in processes.children([job.pid])}
    return [pid for pid, command in commands.items() if command and b"SparkSubmit" in command]


def said_of(log: Path, *lines: str) -> bool:
    """Wait until the job has said lines that begin so, in this order."""
    pattern = re.compile(".*".join("^" + re.escape(line) for line in lines), re.MULTILINE | re.DOTALL)
    wait_for(lambda: pattern.search(log.read_text(errors="replace")), log.read_text, PROGRAM_S)
    return True


@pytest.mark.chaos
def test_spark_submit_runs_a_function_with_the_drivers_interpreter(topics_job: TopicsJob):
    """Nothing but PATH says which Python: the job's own modules, the function's and the workers' interpreter fit."""
    modules = topics_job.folder / "modules"
    modules.mkdir()
    (modules / "my_transform.py").write_text(FUNCTION)
    topics_job.produce("a", "b")
    bin_folder = str(Path(sys.executable).parent)
    done = run(
        *SUBMIT,
        "--conf",
        str(topics_job.config(transform="function: my_transform:transform")),
        PYTHONPATH=str(modules),
        PATH=f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        SPARK_HOME=str(Path(pyspark.__file__).parent),
    )
    assert done.returncode == 0, done.stderr
    # spark-submit sends what Python has for stderr to its own stdout.
    assert re.search(r"^batch 1: 2 in, 2 out, ", done.stdout, re.MULTILINE), done.stdout + done.stderr
    assert "replaced a statically registered data source" not in done.stderr and "query=" not in done.stderr
    assert [Path(name).parent for name in topics_job.output()] == [Path(bin_folder)] * 2


def test_a_query_that_fails_is_started_again_where_that_helps(topics_job: TopicsJob):
    """By the job itself: it says why and when, goes on where the query ended, and is done as if nothing had been."""
    (topics_job.folder / "fails_once.py").write_text(FAILS_ONCE.format(flag=str(topics_job.folder / "has failed")))
    topics_job.produce("a", "b")
    config = topics_job.config(transform="function: fails_once:transform")
    config.write_text(config.read_text() + "restart: {attempts: 1, pause: 10 milliseconds}\n")
    events = topics_job.folder / "events.jsonl"
    with config.open("a") as file:
        file.write(f"metrics: {{port: 0, host: 127.0.0.1, events: {events}}}\n")
    done = run(*MODULE, "--conf", str(config), PYTHONPATH=str(topics_job.folder))
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
    assert topics_job.output() == ["a", "b"]


def test_a_job_tells_of_rows_of_none_of_a_broker_that_dies_and_of_its_stop(tmp_path: Path):
    """One run: a micro-batch slower than the trigger, idle, a broker killed and started again, more rows, and SIGTERM.

    Exit code 0, nothing but the job's own lines, no process left, and the next start goes on without a row lost or
    doubled and with the group's offsets, after a first one that Ctrl-C ends before Spark is up.
    """
    log = log_of(NAME, tmp_path)
    with DevCluster() as cluster, open_view(cluster.bootstrap_servers) as view:
        for name in ("in", "out"):
            cluster.create_topic(name, 2)
        topics_job = TopicsJob(view, "in", "out", tmp_path)
        topics_job.produce('{"n": 1}', '{"n": 1000}')
        config = topics_job.config(trigger="100 milliseconds")
        with started(NAME, config, tmp_path) as job:
            said_of(log, "batch 1: 2 in, 1 out, ", "idle: there is nothing to read")
            cluster.kill(0)
            said_of(log, f"no answer from {topics_job.servers} for 5 s")
            cluster.start(0)
            said_of(log, f"{topics_job.servers} answers again, after ")
            topics_job.produce('{"n": 2}')
            said_of(log, "batch 2: 1 in, 1 out, ")
            family = processes.descendants(job.pid)
            job.send_signal(signal.SIGTERM)
            assert job.wait(PROGRAM_S) == 0, log.read_text()
            wait_for(lambda: not processes.alive(family), log.read_text, PROGRAM_S)
        assert said_of(log, "stopping: SIGTERM; the micro-batch under way, if any, is given up")
        assert log.read_text().endswith("stopped by SIGTERM: restart it, and it resumes where it stopped\n")
        rate = re.search(r"^batch 1: 2 in, 1 out, (\S+) rows/s", log.read_text(), re.MULTILINE)
        assert rate is not None and float(rate[1]) < 20  # longer than the interval: "Current batch is falling behind"
        assert "a new query, from earliest" in log.read_text()
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

        topics_job.produce(*(json.dumps({"n": n}) for n in range(3, 103)))
        done = run(*MODULE, "--conf", str(topics_job.config()))
        assert done.returncode == 0, done.stderr
        assert strange(done.stderr) == []
        assert done.stderr.startswith(
            f"in → out; group in-group; checkpoint {topics_job.checkpoint}; until all that is there now is read\n"
            "starting Spark "
        )
        assert "the query goes on" in done.stderr
        assert re.search(r"^batch 3: 100 in, 100 out, \S+ rows/s, lag 0$", done.stderr, re.MULTILINE), done.stderr
        assert done.stderr.endswith("done: 100 in, 100 out, in 1 micro-batch\n")
        assert topics_job.output() == sorted(str(2 * n) for n in range(1, 103))
        assert topics_job.group_offsets() == 103
        logged = {file.name for file in (topics_job.checkpoint / "commits").iterdir()}
        batches = {name for name in logged if name.isdigit()}
        assert logged == batches | {f".{name}.crc" for name in batches}  # the file system's checksums, none of Spark's


@pytest.mark.parametrize(
    ("ended", "code", "last"),
    [
        (
            lambda job: os.killpg(job.pid, signal.SIGTERM),
            0,
            "stopped by SIGTERM: restart it, and it resumes where it stopped",
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
def test_a_job_whose_jvm_is_gone_says_so_without_a_stack(topics_job: TopicsJob, ended, code: int, last: str):
    """At a stop it is what was asked for; else a restart helps."""
    topics_job.produce('{"n": 1}')
    config = topics_job.config(trigger="100 milliseconds")
    log = log_of(NAME, topics_job.folder)
    with started(NAME, config, topics_job.folder) as job:
        said_of(log, "batch 1: 1 in, 1 out, ", "idle: there is nothing to read")
        ended(job)
        assert job.wait(PROGRAM_S) == code, log.read_text()
    assert log.read_text().endswith(f"{last}\n")
    assert not re.search(r"Traceback|^\s", log.read_text(), re.MULTILINE), log.read_text()
