"""Topics with the schemas of a real registry to tables whose columns follow the reader's schema: it gains a field, the
job is told of the new version, and the table has a column more, which is null in older rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.kafka_to_delta import KafkaToDelta
from jobs.kafka_to_iceberg import KafkaToIceberg
from jobs.runner.config import load
from spark_eos.errors import EosError
from tests.support.runs.case_cover import one_for_every_day
from tests.support.servers.schema_registry import produce
from tests.support.tables.delta import forget_the_last_commit
from tests.support.tables.table_kinds import KINDS, Delta, TableKind
from tests.support.waiting import TIMEOUT

FIRST = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
NEWER = FIRST | {"fields": [*FIRST["fields"], {"name": "who", "type": ["null", "string"], "default": None}]}
CONFIG = """\
kafka: {{bootstrap.servers: "{servers}"}}
source: {{subscribe: "{topic}", startingOffsets: earliest}}
transform:
  sql: SELECT "partition", "offset", value.* FROM input
  engine: duckdb
  parse: {{format: avro, registry: "{registry}"{version}}}
target: {{schema: {schema}, {target}}}
checkpoint: "{checkpoint}"
trigger: availableNow
"""


class Setting:
    """A topic, a table, and the job's query in the session of the tests."""

    def __init__(self, spark, servers: str, registry: str, topic: str, folder: Path, kind: TableKind) -> None:
        self._spark, self._servers, self._registry, self._topic = spark, servers, registry, topic
        self._folder, self.kind, self.checkpoint = folder, kind, folder / "checkpoint"

    def produce(self, schema: dict, *values: dict) -> None:
        produce(self._servers, self._registry, self._topic, json.dumps(schema), values)

    def run(self, version: int | None = None, schema: str = "fail") -> None:
        """The job's query, until all that is there is read."""
        sink = {name: value for name, value in self.kind.sink().items() if name != "format"}
        file = self._folder / "job.yaml"
        text = CONFIG.format(
            servers=self._servers,
            topic=self._topic,
            registry=self._registry,
            version="" if version is None else f", version: {version}",
            schema=schema,
            target=", ".join(f"{name}: {value!r}" for name, value in sink.items()),
            checkpoint=self.checkpoint,
        )
        file.write_text(text)
        config = load(file, KafkaToDelta if isinstance(self.kind, Delta) else KafkaToIceberg)
        query = config.start_copy(self._spark, config.target.options())
        assert query.awaitTermination(TIMEOUT)

    def rows(self) -> list[tuple]:
        """By offset, without the place."""
        rows = sorted(self.kind.rows(), key=lambda row: row["offset"])
        assert [row["offset"] for row in rows] == list(range(len(rows)))
        return [tuple(row[name] for name in row if name not in ("partition", "offset")) for row in rows]

    def columns(self) -> list[str]:
        found = self.kind.place().columns()
        assert found is not None
        return found.schema.names


@pytest.mark.parametrize("kind", one_for_every_day("a table follows the reader's schema", [*KINDS]))
def test_a_table_follows_the_readers_schema_when_the_job_is_told(
    spark, cluster, registry, topic, tmp_path, kind
) -> None:
    """Until then it reads with the version that its checkpoint has, whatever producers write. So does the run that
    repeats a micro-batch of before, to its end: it changes no column, though it is told to."""
    setting = Setting(
        spark, cluster.bootstrap_servers, registry.url, topic(), tmp_path, KINDS[kind](tmp_path / "of_this_kind")
    )
    setting.produce(FIRST, {"id": 0})
    setting.run()
    setting.produce(NEWER, {"id": 1, "who": "a"})
    forget_the_last_commit(setting.checkpoint)
    setting.run(version=2, schema="evolve")
    assert setting.rows() == [(0,), (1,)] and "who" not in setting.columns()
    setting.produce(NEWER, {"id": 2, "who": "b"})
    setting.produce(FIRST, {"id": 3})
    with pytest.raises(EosError) as refused:
        setting.run(version=2)
    assert refused.value.entry == "EOS_TABLE_COLUMNS.unknown"
    setting.run(version=2, schema="evolve")
    assert setting.columns() == ["partition", "offset", "id", "who"]
    assert setting.rows() == [(0, None), (1, None), (2, "b"), (3, None)]
