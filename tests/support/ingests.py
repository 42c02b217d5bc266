"""A folder, a topic, and ingests from the one into the other."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import spark_eos
from jobs.files.taking import Taking
from jobs.ingest_files import NOTES_TOPIC, IngestFiles
from jobs.runner.job import JobContext
from jobs.runner.lines import BatchLines
from jobs.runner.query import Stop
from spark_eos.errors import EosError
from spark_eos.ingest.run import Ingest
from spark_eos.tools.devcluster import DevCluster
from tests.support.kafka_view import KafkaView
from tests.support.waiting import wait_for

FAILED = (EosError, PySparkException, Py4JJavaError)
AT_ONCE = "0 seconds"
LINES = "SELECT value FROM input"


def lines(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The transform by Arrow that does the same."""
    return batch.select(["value"])


#: Of lines of text: the ways that make the same rows, as arguments of `Setting.taking`.
WAYS: dict[str, dict[str, object]] = {
    "through Spark": {"sql": LINES},
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

    def taking(
        self,
        *,
        sql: str | None = LINES,
        transform: Mapping[str, object] | None = None,
        notes: str = NOTES_TOPIC,
        sink: dict[str, str] | None = None,
        tasks: int = 2,
        **files: object,
    ) -> Taking:
        """A run of the ingest, by keys of its section ``files``: its start settles what an earlier one has left.
        ``sql``: None for rows that go on as they are, past the JVM; ``transform``: another section in its place."""
        when = {} if "marker" in files else {"unchangedFor": AT_ONCE}
        given = {"path": str(self.folder), "format": "text", **when} | files
        config = {
            "kafka": {"bootstrap.servers": self.servers},
            "name": self.name,
            "files": given,
            "transform": transform or (None if sql is None else {"sql": sql}),
            "sink": {"topic": self.topic, **(sink or {})},
            "notes": notes,
            "tasks": tasks,
            "trigger": "availableNow",
        }
        return Taking(JobContext(self.spark, Stop(), BatchLines()), IngestFiles.model_validate(config))

    def run(self, **how: object) -> None:
        """Until all that is there is taken."""
        taking = self.taking(**how)  # type: ignore[arg-type]
        while not taking.awaitTermination(0.1):
            pass

    def fails(self, condition: str | None = None, **how: object) -> None:
        with pytest.raises(FAILED) as raised:
            self.run(**how)
        if condition is not None:
            found = spark_eos.reason(raised.value)
            assert found is not None and found.condition == condition, raised.value

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
