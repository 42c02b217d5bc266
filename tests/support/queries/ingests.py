"""A folder, a topic, and ingests from the one into the other."""

from __future__ import annotations

import json
import signal
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import spark_eos
from jobs.files.ingest import FolderIngest
from jobs.ingest_files import NOTES_TOPIC, IngestFiles
from jobs.runner.job import JobContext
from jobs.runner.lines import BatchLines
from jobs.runner.query import Stop
from spark_eos.errors import EosError
from spark_eos.pipelines.files.run import Ingest
from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import KafkaView
from tests.support.kills.job_program import log_of, started
from tests.support.waiting import PROGRAM_S, wait_for

FAILED = (EosError, PySparkException, Py4JJavaError)
AT_ONCE = "0 seconds"
LINES = "SELECT value FROM input"
JOB = "ingest_files"
#: Of a session of its own.
SPARK = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


class Program:
    """An ingest in a process of its own. ``folder`` has its log, and the marks of its faults."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self._process, self.folder, self.pid = process, folder, process.pid

    def log(self) -> str:
        return log_of(JOB, self.folder).read_text(errors="replace")

    def ended(self) -> int:
        """Its exit code, when it has ended by itself."""
        return self._process.wait(PROGRAM_S)

    def wait_at(self, *points: str) -> None:
        """Until something is held at each of the points."""

        def there() -> bool:
            assert self._process.poll() is None, self.log()
            return all((self.folder / point).exists() for point in points)

        wait_for(there, self.log, PROGRAM_S)

    def release(self, *points: str) -> None:
        for point in points:
            (self.folder / point).unlink()


def lines(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The transform by Arrow that does the same."""
    return batch.select(["value"])


THROUGH_SPARK = "through Spark"
#: Of lines of text: the ways that make the same rows, as arguments of `Setting.ingest`.
WAYS: dict[str, dict[str, object]] = {
    THROUGH_SPARK: {"sql": LINES},
    "past the JVM": {"sql": None},
    "by DuckDB": {"transform": {"sql": LINES, "engine": "duckdb"}},
    "by Arrow": {"transform": {"arrow": f"{__name__}:{lines.__name__}"}},
}


class Setting:
    """A folder, a topic, and ingests from the one into the other."""

    def __init__(self, cluster: DevCluster, spark: SparkSession, view: KafkaView, topic: str, folder: Path) -> None:
        self.servers, self.spark, self.view = cluster.bootstrap_servers, spark, view
        self.topic, self.folder = topic, folder
        self.name = f"ingest {uuid.uuid4()}"
        folder.mkdir()

    @property
    def query(self) -> str:
        return Ingest(self.name, {"topic": self.topic}, "").query

    def put(self, name: str, *lines: str) -> Path:
        """A file, written under another name and renamed."""
        draft = self.folder / f".{name}"
        draft.write_text("".join(f"{line}\n" for line in lines))
        return draft.rename(self.folder / name)

    def config(
        self,
        *,
        sql: str | None = LINES,
        transform: Mapping[str, object] | None = None,
        notes: str = NOTES_TOPIC,
        sink: dict[str, str] | None = None,
        tasks: int = 2,
        **files: object,
    ) -> dict[str, object]:
        """The config of the ingest, by keys of its section ``files``. ``sql``: None for rows that go on as they are,
        past the JVM; ``transform``: another section in its place."""
        when = {} if "marker" in files else {"unchangedFor": AT_ONCE}
        given = {"path": str(self.folder), "format": "text", **when} | files
        return {
            "kafka": {"bootstrap.servers": self.servers},
            "name": self.name,
            "files": given,
            "transform": transform or (None if sql is None else {"sql": sql}),
            "sink": {"topic": self.topic, **(sink or {})},
            "notes": notes,
            "tasks": tasks,
            "trigger": "availableNow",
        }

    def ingest(self, **how: object) -> FolderIngest:
        """A run of the ingest: its start settles what an earlier one has left."""
        config = IngestFiles.model_validate(self.config(**how))  # type: ignore[arg-type]
        return FolderIngest(JobContext(self.spark, Stop(), BatchLines()), config)

    @contextmanager
    def program(self, faults: str, folder: Path, spark: dict[str, str], **how: object) -> Iterator[Program]:
        """The ingest as a program of its own, past the JVM, that meets these faults, in its tasks, too. ``folder`` is
        new; ``spark``: settings of its session."""
        folder.mkdir()
        marks = {"SPARK_EOS_FAULTS": faults, "SPARK_EOS_FAULTS_DIR": str(folder)}
        settings = {**SPARK, **{f"spark.executorEnv.{name}": value for name, value in marks.items()}, **spark}
        config = {**self.config(**{"sql": None, **how}), "spark": settings}  # type: ignore[arg-type]
        (folder / "job.yaml").write_text(json.dumps(config))
        with started(JOB, folder / "job.yaml", folder, **marks) as process:
            yield Program(process, folder)

    def dies(self, point: str, folder: Path, **how: object) -> None:
        """Run the ingest as a program that is killed at the point, which its driver comes to."""
        with self.program(f"{point}=die", folder, {"spark.master": "local[2]"}, **how) as program:
            assert program.ended() == -signal.SIGKILL, program.log()
            assert int((folder / point).read_text()) == program.pid

    def run(self, **how: object) -> None:
        """Until all that is there is taken."""
        self.ingest(**how).run()

    def fails(self, condition: str | None = None, **how: object) -> str:
        """The error's text."""
        with pytest.raises(FAILED) as raised:
            self.run(**how)
        if condition is not None:
            found = spark_eos.reason(raised.value)
            assert found is not None and found.condition == condition, raised.value
        return str(raised.value)

    def there(self) -> list[str]:
        """All rows, when the markers are written."""
        wait_for(lambda: not self.view.held(self.topic), "the markers")
        return sorted(self.view.values(self.topic))

    def noted(self) -> list[dict[str, object]]:
        """What a plain consumer finds in the topic of what was taken."""
        wait_for(lambda: not self.view.held(NOTES_TOPIC), "the end of a ledger transaction")
        values = [json.loads(row.value or b"") for row in self.view.rows(NOTES_TOPIC, committed=True)]
        return [value for value in values if value["ingest"] == self.name]

    def names(self) -> list[str]:
        return sorted(Path(str(value["uri"])).name for value in self.noted())
