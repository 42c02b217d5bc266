"""Topics with the schemas of a real registry past the JVM: decoded, through SQL or a function, and encoded."""

from __future__ import annotations

import json
from itertools import repeat

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from jobs.consume_transform_produce import ConsumeTransformProduce, start_copy
from jobs.runner.config import load
from spark_eos.errors import RowError
from tests.support.runs.case_cover import one_for_every_day
from tests.support.servers.schema_registry import produce
from tests.support.waiting import TIMEOUT, wait_for

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "who", "type": ["null", "string"], "default": None},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }
)
NEWER = ORDER.replace('"int"}', '"int"}, {"name": "more", "type": "string", "default": "none"}')
TOTAL = '{"type":"record","name":"Total","fields":[{"name":"twice","type":"long"},{"name":"who","type":"string"}]}'
CONFIG = """\
kafka: {{bootstrap.servers: "{servers}"}}
source: {{subscribe: {source}, startingOffsets: earliest}}
transform:
  parse: {{format: avro, registry: "{registry}"}}
  {transform}
  onMalformed: {on_malformed}
  encode: {{format: avro, registry: "{registry}", schema: '{total}'}}
sink: {{topic: {target}, deadLetters.topic: {letters}, offsets.group.id: {target}-group}}
checkpoint: {checkpoint}
trigger: availableNow
"""
SQL = """engine: duckdb
  sql: |
    SELECT key, "offset", CAST(2 * value.id AS BIGINT) AS twice, upper(value.who) AS who,
      CASE WHEN value.id < 0 THEN 'it is negative' END AS error
    FROM input WHERE value IS NULL OR value.id < 1000
"""


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """As the SQL: for a function of Arrow batches."""
    ids = pc.struct_field(batch.column("value"), "id")
    errors = pc.if_else(pc.less(ids, 0), "it is negative", None).cast(pa.string())
    rows = {
        "key": batch.column("key"),
        "offset": batch.column("offset"),
        "twice": pc.multiply(ids.cast(pa.int64()), 2),
        "who": pc.utf8_upper(pc.struct_field(batch.column("value"), "who")),
        "error": errors,
    }
    return pa.RecordBatch.from_pydict(rows).filter(pc.less(ids, 1000))


class Setting:
    """Topics, the job's file, and its query in the session of the tests."""

    def __init__(self, spark, cluster, registry, view, topic, folder) -> None:
        self.spark, self.view, self.folder, self.registry = spark, view, folder, registry
        self.servers = cluster.bootstrap_servers
        self.source, self.target, self.letters = topic(), topic(), topic(max_message_bytes=2_000_000)
        self.client = SchemaRegistryClient({"url": registry.url})

    def produce(self, schema: str, *values: dict | bytes) -> None:
        rows = [{"at": 1_700_000_000_000, **value} if isinstance(value, dict) else value for value in values]
        produce(self.servers, self.registry.url, self.source, schema, rows, repeat(b"k"))

    def job(self, transform: str, on_malformed: str) -> ConsumeTransformProduce:
        file = self.folder / "job.yaml"
        text = CONFIG.format(
            servers=self.servers,
            source=self.source,
            target=self.target,
            letters=self.letters,
            registry=self.registry.url,
            transform=transform,
            on_malformed=on_malformed,
            total=TOTAL,
            checkpoint=self.folder / "checkpoint",
        )
        file.write_text(text)
        return load(file, ConsumeTransformProduce)

    def run(self, transform: str, on_malformed: str = "deadLetters") -> None:
        query = start_copy(self.spark, self.job(transform, on_malformed))
        assert query.awaitTermination(TIMEOUT)
        wait_for(lambda: self.view.held(self.target, self.letters) == {}, "the markers")

    def written(self) -> list[tuple[int, str]]:
        """By Confluent's own deserializer."""
        deserialize, context = AvroDeserializer(self.client), SerializationContext(self.target, MessageField.VALUE)
        found = [deserialize(row.value, context) for row in self.view.rows(self.target)]
        return [(row["twice"], row["who"]) for row in found]

    def why(self) -> dict[int, str]:
        """The reasons of the dead letters, by the offsets of their records."""
        found = {}
        for row in self.view.rows(self.letters):
            headers = dict(row.headers)
            found[int(headers["__streams.errors.offset"])] = headers["__streams.errors.message"].decode()
        return found


@pytest.fixture
def setting(spark, cluster, registry, view, topic, tmp_path) -> Setting:
    return Setting(spark, cluster, registry, view, topic, tmp_path)


@pytest.mark.parametrize(
    "transform", one_for_every_day("Avro to Avro", [SQL, f"arrow: {__name__}:doubled"]), ids=["sql", "arrow"]
)
def test_avro_to_avro_with_dead_letters_for_each_way_to_fail(setting, transform):
    """What cannot be decoded, what the transform rejects and what the schema cannot hold are letters; all else is
    written, of two versions of the schema, and the group has the offsets. A replay writes nothing."""
    setting.produce(ORDER, {"id": 1, "who": "ann"}, b"no avro", {"id": 2, "who": None}, {"id": -3, "who": "bob"})
    setting.produce(ORDER, {"id": 1000, "who": "eve"}, b"\x00\x7f\xff\xff\xff\x02")
    setting.produce(NEWER, {"id": 4, "who": "joe", "more": "x"})
    setting.run(transform)
    assert setting.written() == [(2, "ANN"), (8, "JOE")]
    reasons = setting.why()
    assert sorted(reasons) == [1, 2, 3, 5]
    assert reasons[3] == "it is negative"
    assert reasons[2].startswith("the value: ")
    assert "does not show" in reasons[5]
    (commit,) = (setting.folder / "checkpoint" / "commits").glob("1*")
    commit.unlink()
    (commit.parent / ".1.crc").unlink(missing_ok=True)
    setting.produce(ORDER, {"id": 5, "who": "new"})
    setting.run(transform)
    assert setting.written() == [(2, "ANN"), (8, "JOE"), (10, "NEW")]
    assert len(setting.why()) == 4
    assert setting.view.group(f"{setting.target}-group", setting.source) == setting.view.ends(setting.source)


def test_sql_over_decoded_columns_is_checked_at_the_start(setting):
    """By the schema of the registry: a field that it has not, and what is not a function of each row."""
    setting.produce(ORDER, {"id": 1, "who": "ann"})
    for sql, why in (("SELECT value.nothing AS who FROM input", "nothing"), ("SELECT sum(value.id) AS twice", "")):
        with pytest.raises(Exception, match="EOS_TRANSFORM_SQL") as caught:
            setting.run(f"engine: duckdb\n  sql: {sql}")
        assert why in str(caught.value)
        assert not isinstance(caught.value, RowError)
