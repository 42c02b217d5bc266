"""The sections for schemas of a registry in the file of the main job: what they take, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from jobs.consume_transform_produce import ConsumeTransformProduce
from jobs.runner.config import load
from jobs.runner.registry import Columns, encoded_rows

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


def test_a_job_without_a_registry_does_not_load_its_modules(monkeypatch):
    """They import numpy, for 75 ms of each start. Headers stay as they are."""
    monkeypatch.setitem(sys.modules, "spark_eos.pipelines.registry.wire", None)
    rows = Mock(columns=["value", "headers"])
    assert encoded_rows(rows, Columns()) is rows
