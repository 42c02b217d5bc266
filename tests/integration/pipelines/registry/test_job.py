"""The main job with schemas of a real registry: keys and values, malformed records, and what a start reads with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.errors import PySparkException
from pyspark.sql.streaming import StreamingQuery

import spark_eos
from jobs.consume_transform_produce import ConsumeTransformProduce, read, registry_columns, write
from jobs.runner.config import load
from jobs.runner.lines import counted
from jobs.runner.noted_schemas import FILE
from jobs.runner.transform import Letters, transformed
from spark_eos.errors import EosError
from tests.support.runs.case_cover import one_for_every_day
from tests.support.servers.schema_registry import SchemaRegistry, produce
from tests.support.tables.delta import forget_the_last_commit
from tests.support.waiting import TIMEOUT, wait_for

FIRST = '{"type":"record","name":"Order","fields":[{"name":"id","type":"int"}]}'
SECOND = FIRST.replace('"int"}', '"int"},{"name":"more","type":"string","default":"none"}')
COPY = '{"type":"record","name":"Copy","fields":[{"name":"twice","type":"int"},{"name":"text","type":"string"}]}'
CONFIG = """\
kafka: {{bootstrap.servers: "{servers}"}}
source: {{subscribe: {source}}}
transform:
  parse: {{format: avro, registry: "{registry}"{version}}}
  parseKey: {{format: avro, registry: "{registry}"}}
  onMalformed: {on_malformed}
  {sql}
  encode: {{format: avro, registry: "{registry}", schema: '{copy}'}}
  encodeKey: {{format: avro, registry: "{registry}", schema: '"string"'}}
sink: {{topic: {target}, deadLetters.topic: {letters}}}
checkpoint: {checkpoint}
trigger: availableNow
"""

BY_SPARK = "sql: SELECT key, 2 * value.id AS twice, to_json(value) AS text FROM input WHERE value.id < 1000"


class Setting:
    """Topics, the job's file, and its query in the session of the tests."""

    def __init__(self, spark, cluster, registry, view, topic, folder: Path) -> None:
        self._spark, self._servers, self._url, self._view = spark, cluster.bootstrap_servers, registry.url, view
        self.source, self.target, self.letters = topic(), topic(), topic(max_message_bytes=2_000_000)
        self._folder, self._client = folder, SchemaRegistryClient({"url": registry.url})
        self.checkpoint = folder / "checkpoint"

    def produce(self, schema: str, *values: dict | bytes | None) -> None:
        """With keys in Avro, too."""
        serialize, context = (
            AvroSerializer(self._client, '"string"'),
            SerializationContext(self.source, MessageField.KEY),
        )
        keys = (serialize(f"key {number}", context) for number in count())
        produce(self._servers, self._url, self.source, schema, values, keys)

    def run(self, on_malformed: str = "fail", version: int | None = None) -> None:
        """Until all that is there is read, through Spark."""
        config = self._config(BY_SPARK, on_malformed, version)
        columns = registry_columns(self._spark, config)
        source = read(self._spark, config, "eos-kafka")
        rows = transformed(
            source,
            config.transform,
            letters=None if config.letters is None else Letters(config.letters, "c-1"),
            topic=config.topic,
            columns=columns,
        )
        self._ends(write(counted(rows, config.letters), config, "eos-kafka"))

    def _ends(self, query: StreamingQuery) -> None:
        assert query.awaitTermination(TIMEOUT)
        wait_for(lambda: self._view.held(self.target, self.letters) == {}, "the markers")

    def _config(self, sql: str, on_malformed: str, version: int | None) -> ConsumeTransformProduce:
        file = self._folder / "job.yaml"
        file.write_text(
            CONFIG.format(
                servers=self._servers,
                source=self.source,
                target=self.target,
                letters=self.letters,
                registry=self._url,
                version="" if version is None else f", version: {version}",
                on_malformed=on_malformed,
                sql=sql,
                copy=COPY,
                checkpoint=self.checkpoint,
            )
        )
        return load(file, ConsumeTransformProduce)

    def last(self, log: str) -> int:
        """The last micro-batch in a log of the checkpoint."""
        return max(int(file.name) for file in (self.checkpoint / log).glob("[0-9]*"))

    def forget_commit(self) -> None:
        """As if the query had been killed before Spark noted the last commit."""
        forget_the_last_commit(self.checkpoint)

    def values(self) -> int:
        """How many rows were written."""
        return len(self._view.rows(self.target))

    def copies(self) -> list[tuple[str, int, dict]]:
        """Key and value of what was written, by Confluent's own deserializer."""
        deserialize = AvroDeserializer(self._client)
        contexts = [SerializationContext(self.target, field) for field in (MessageField.KEY, MessageField.VALUE)]
        found = []
        for row in self._view.rows(self.target):
            value = deserialize(row.value, contexts[1])
            found.append((deserialize(row.key, contexts[0]), value["twice"], json.loads(value["text"])))
        return found


@pytest.fixture
def other_registry() -> Iterator[SchemaRegistry]:
    """One of its own, that a test can stop and empty."""
    with SchemaRegistry() as running:
        yield running


@pytest.fixture
def setting(spark, cluster, registry, view, topic, tmp_path) -> Setting:
    return Setting(spark, cluster, registry, view, topic, tmp_path)


def test_topic_to_topic_by_a_file_alone(setting):
    """Keys and values of two versions become columns, SQL, and Avro again; the version of the first start stays."""
    setting.produce(FIRST, {"id": 1}, {"id": 1000})
    setting.run()
    assert setting.copies() == [("key 0", 2, {"id": 1})]
    setting.produce(SECOND, {"id": 2, "more": "x"})
    setting.run()
    assert setting.copies()[1:] == [("key 0", 4, {"id": 2})]
    setting.produce(FIRST, {"id": 3})
    planned = setting.last("offsets")
    setting.run(version=2)
    assert setting.copies()[2:] == [("key 0", 6, {"id": 3, "more": "none"})]
    notes = json.loads((setting.checkpoint / FILE).read_text())
    found = [(note["column"], note["since"], note["version"]) for note in notes]
    assert found == [("value", 0, 1), ("key", 0, 1), ("value", planned + 1, 2)]


def test_records_that_cannot_be_decoded_stop_the_query(setting):
    """With the place and the reason, for values and keys."""
    setting.produce(FIRST, {"id": 1}, b"none")
    with pytest.raises(PySparkException) as caught:
        setting.run()
    reason = spark_eos.reason(caught.value)
    assert reason is not None and reason.condition == "EOS_JOB_MALFORMED_ROW"
    assert f"{setting.source}, partition 0, offset 1 " in reason.message
    assert "the value: it has less than the 5 bytes" in reason.message
    assert setting.copies() == []


@pytest.mark.parametrize("on_malformed", one_for_every_day("undecodable records", ["drop", "deadLetters"]))
def test_records_that_cannot_be_decoded_are_left_out(setting, on_malformed, view, registry):
    """Or become dead letters, as they came, with the reason; a tombstone is none of them."""
    damaged = registry.register(f"{setting.source}-value", FIRST).to_bytes(5, "big") + b"\x80"
    setting.produce(FIRST, {"id": 1}, b"none", damaged, None, {"id": 2})
    setting.run(on_malformed)
    assert [copy[1] for copy in setting.copies()] == [2, 4]
    letters = {row.value: {key: value.decode() for key, value in row.headers} for row in view.rows(setting.letters)}
    if on_malformed == "drop":
        assert letters == {}
        return
    assert letters.keys() == {b"none", damaged}
    assert letters[damaged]["__streams.errors.message"].startswith("It cannot be decoded: the value: ")
    assert letters[b"none"]["__streams.errors.offset"] == "1"


def test_an_id_that_becomes_known_between_rows_and_dead_letters_loses_no_record(
    before, spark, cluster, view, topic, tmp_path
):
    """Spark reads the input once for each of the two, and only one of these asks before the id is known."""
    setting = Setting(spark, cluster, before, view, topic, tmp_path)
    setting.produce(FIRST, {"id": 1})
    setting.produce(SECOND, *({"id": id_, "more": "x"} for id_ in range(2, 10)))
    second = SchemaRegistryClient({"url": before.url}).get_latest_version(f"{setting.source}-value").schema_id
    before.unknown[f"/schemas/ids/{second}"] = 1
    with pytest.raises(PySparkException) as caught:
        setting.run("deadLetters", version=1)
    reason = spark_eos.reason(caught.value)
    assert reason is not None and reason.condition == "EOS_REGISTRY_NOT_FOUND"
    assert f"does not know schema {second}, " in reason.message
    assert view.rows(setting.target, setting.letters) == []


def test_a_registry_that_vanishes_or_is_made_anew_changes_no_row(spark, cluster, other_registry, view, topic, tmp_path):
    """A start that repeats a micro-batch stops while the registry is down, and where it has another schema by then."""
    setting = Setting(spark, cluster, other_registry, view, topic, tmp_path)
    setting.produce(FIRST, {"id": 1})
    setting.run()
    setting.forget_commit()
    other_registry.process.kill()
    with pytest.raises(EosError) as caught:
        setting.run()
    assert caught.value.condition == "EOS_REGISTRY_UNREACHABLE" and caught.value.restart_helps
    other_registry.open()  # it is empty now
    with pytest.raises(EosError, match="EOS_REGISTRY_NOT_FOUND"):
        setting.run()
    for kind, schema in (("key", '"string"'), ("value", FIRST.replace("Order", "Other"))):
        other_registry.register(f"{setting.source}-{kind}", schema)
    with pytest.raises(EosError, match="EOS_REGISTRY_CHANGED"):
        setting.run()
    assert setting.values() == 1
