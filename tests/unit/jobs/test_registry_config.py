"""The sections for schemas of a registry in the file of the main job: what they take, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from jobs.consume_transform_produce import ConsumeTransformProduce
from jobs.runner.config import load
from jobs.runner.registry import Columns, encoded_rows
from spark_eos.errors import ConfigError, EosError

SECRET = "the-secret"
GOOD = """\
kafka: {bootstrap.servers: localhost:9092}
source: {subscribe: orders}
transform:
  parse: {format: avro, registry: {url: http://localhost:8081, basic.auth.user.info: "user:the-secret"}}
  parseKey: {format: avro, registry: http://localhost:8081, subject: keys, version: 2}
  onMalformed: drop
  sql: SELECT key, value.id FROM input
  encode: {format: json-schema, registry: http://localhost:8081, schema: "{}", autoRegister: false}
  encodeKey: {format: protobuf, registry: http://localhost:8081, message: acme.Key}
sink: {topic: copies}
checkpoint: /tmp/checkpoint
"""


@pytest.fixture
def read(tmp_path: Path):
    def read(text: str) -> ConsumeTransformProduce:
        file = tmp_path / "job.yaml"
        file.write_text(text)
        return load(file, ConsumeTransformProduce, {})

    return read


def test_keys_and_values_may_be_decoded_and_encoded(read):
    """Each by a section of its own; the registry is an address, or settings, which do not print."""
    transform = read(GOOD).transform
    assert transform.decodes and transform.on_malformed == "drop"
    assert transform.parse.registry["basic.auth.user.info"] == f"user:{SECRET}"
    assert SECRET not in repr(transform)
    assert (transform.parse.version, transform.parse_key.version, transform.parse_key.subject) == (None, 2, "keys")
    assert transform.encode.text == "{}" and not transform.encode.auto_register
    assert transform.encode_key.message == "acme.Key" and transform.encode_key.auto_register


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("format: avro, registry: {url", "format: xml, registry: {url", "'transform.parse.format'"),
        ("registry: {url: http", "registry: {url: ftp", "'registry.url' is not an address"),
        ("registry: http://localhost:8081, subject", "registry: [a], subject", "'transform.parseKey.registry'"),
        ("{format: protobuf, registry: http://localhost:8081,", "{format: protobuf,", "encodeKey.registry' is missing"),
        ("  onMalformed: drop\n", "  format: json\n  schema: id INT\n", "'transform.format' is there besides 'parse'"),
        ('schema: "{}", ', "", "'transform.encode.autoRegister' is for a 'schema' that is given"),
        ("sql: SELECT key, value.id FROM input", "copy: same", "'transform.parse' is for rows that are transformed"),
        ("subscribe: orders", "subscribe: 'orders,others'", "parse.subject' is missing, as there is not one topic"),
        ("sink: {topic: copies}", "sink: {}", "encode.subject' is missing, as there is not one topic"),
        ("version: 2", "version: 0", "'transform.parseKey.version' is too small"),
    ],
)
def test_a_mistake_is_named_by_its_key(read, old, new, says):
    """Before Spark starts, and without a value."""
    assert GOOD.count(old) == 1
    with pytest.raises(EosError) as caught:
        read(GOOD.replace(old, new))
    assert says in caught.value.message and SECRET not in str(caught.value)


def test_malformed_rows_without_any_parsing_are_a_mistake(read):
    """Encoding alone reads nothing."""
    sections = [line for line in GOOD.splitlines(keepends=True) if "parse" not in line]
    with pytest.raises(ConfigError, match=r"onMalformed.*is for values that are parsed"):
        read("".join(sections))


def test_a_job_without_a_registry_does_not_load_its_modules(monkeypatch):
    """They import numpy, for 75 ms of each start. Headers stay as they are."""
    monkeypatch.setitem(sys.modules, "spark_eos.pipelines.registry.wire", None)
    rows = Mock(columns=["value", "headers"])
    assert encoded_rows(rows, Columns()) is rows
