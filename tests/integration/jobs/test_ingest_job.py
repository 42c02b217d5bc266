"""The ingest as people start it: a program with a config file."""

from __future__ import annotations

import signal
import subprocess
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from spark_eos.pipelines.files.run import Ingest
from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import KafkaView
from tests.support.kills.job_program import log_of, started, strange
from tests.support.runs.case_cover import one_for_every_day
from tests.support.waiting import PROGRAM_S, wait_for

NAME = "ingest_files"
CONFIG = """\
kafka: {{bootstrap.servers: "{servers}"}}
name: {name}
files: {{path: {folder}, {format}, unchangedFor: {unchanged}}}
sink: {{topic: {topic}}}
trigger: {trigger}
spark: {{spark.master: "local[2]", spark.ui.enabled: false, spark.driver.host: 127.0.0.1,
         spark.driver.bindAddress: 127.0.0.1}}
"""
#: What is of the config file: by Spark, which parses lines of CSV, by DuckDB, which takes them apart, and as they are.
WAYS = {
    "through Spark": (
        'format: csv, schema: "n INT, name STRING"',
        'transform: {sql: "SELECT string(n) AS key, name AS value FROM input"}\n',
    ),
    "past the JVM, by DuckDB": (
        "format: text",
        "transform: {engine: duckdb, sql: \"SELECT split(value, ',')[1] AS key, split(value, ',')[2] AS value "
        'FROM input"}\n',
    ),
    "past the JVM": ("format: text", ""),
}


class Program:
    """The job, its folder and its topic."""

    def __init__(self, cluster: DevCluster, view: KafkaView, topic: str, folder: Path, way: str) -> None:
        self._servers, self.view, self.topic, self.folder = cluster.bootstrap_servers, view, topic, folder
        self._format, self._transform = WAYS[way]
        self.way = way.partition(",")[0]
        self._name = f"i-{uuid.uuid4()}"
        self.files = folder / "files"
        self.files.mkdir()
        self.query = Ingest(self._name, {"topic": topic}, "").query

    def started(
        self, *, trigger: str, unchanged: str, **environ: str
    ) -> AbstractContextManager[subprocess.Popen[bytes]]:
        config = self.folder / "job.yaml"
        places = {"servers": self._servers, "name": self._name, "folder": self.files, "topic": self.topic}
        how = {"trigger": trigger, "unchanged": unchanged, "format": self._format}
        config.write_text(CONFIG.format(**places, **how) + self._transform)
        return started(NAME, config, self.folder, **environ)

    @property
    def log(self) -> str:
        return log_of(NAME, self.folder).read_text()

    def values(self) -> list[str]:
        """What a reader finds of the second column."""
        return sorted(value.rpartition(",")[2] for value in self.view.values(self.topic))


@pytest.fixture(params=one_for_every_day("a job of files", [*WAYS]))
def program(
    cluster: DevCluster, view: KafkaView, topic: Callable[..., str], tmp_path: Path, request: pytest.FixtureRequest
) -> Program:
    return Program(cluster, view, topic(2), tmp_path, request.param)


def test_all_that_is_there_now(program: Program):
    """It waits until the files have not changed for a while, takes them, says so in its own lines only, and ends."""
    for name in ("a", "b"):
        (program.files / name).write_text(f"1,{name}1\n2,{name}2\n")
    with program.started(trigger="availableNow", unchanged="1 second") as job:
        assert job.wait(PROGRAM_S) == 0, program.log
    said = program.log.splitlines()
    assert strange(program.log) == []
    assert [line.split(":")[0] for line in said if line.startswith("rows are read")] == [f"rows are read {program.way}"]
    assert said[-1] == "done: 4 in, 4 out, in 1 micro-batch"
    assert program.values() == ["a1", "a2", "b1", "b2"]


@pytest.mark.chaos
@pytest.mark.parametrize("point", ["prepare.wrote", "commit.noted"])
def test_a_signal_in_the_middle_of_a_file(point: str, program: Program, tmp_path: Path):
    """The micro-batch is given up, or it is decided first; nothing stays open, and the next start takes what is not
    taken."""
    (program.files / "a").write_text("".join(f"{n},row {n}\n" for n in range(100)))
    faults = tmp_path / "faults"
    faults.mkdir()
    held = {"SPARK_EOS_FAULTS": f"{point}=hold", "SPARK_EOS_FAULTS_DIR": str(faults)}
    with program.started(trigger="1 second", unchanged="0 seconds", **held) as job:
        wait_for((faults / point).exists, lambda: program.log, PROGRAM_S)
        job.send_signal(signal.SIGTERM)
        wait_for(lambda: "stopping: SIGTERM" in program.log, lambda: program.log)
        if point.startswith("commit."):
            (faults / point).unlink()
        assert job.wait(PROGRAM_S) == 0, program.log
    assert program.log.splitlines()[-1] == "stopped by SIGTERM: restart it, and it resumes where it stopped"
    wait_for(lambda: not program.view.open_transactions(program.query), "the end of all transactions")
    with program.started(trigger="availableNow", unchanged="0 seconds") as job:
        assert job.wait(PROGRAM_S) == 0, program.log
    assert program.values() == sorted(f"row {n}" for n in range(100))
