"""Files of jobs that are right, and what becomes of them when they are changed."""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.runner.config import load
from jobs.runner.job import Plan

SECRET = "swordfish"
RIGHT = {
    "consume_transform_produce": """
        kafka: {bootstrap.servers: 'localhost:9092', sasl.password: swordfish}
        source: {subscribe: flights}
        transform: {format: json, schema: id BIGINT, sql: SELECT value FROM input}
        sink: {topic: copies}
        checkpoint: /c""",
    "mirror": """
        source: {kafka.bootstrap.servers: 'here:9092', subscribe: orders}
        sink: {kafka.bootstrap.servers: 'there:9092', ledger.topic: own-ledger}
        topics: {}
        checkpoint: /c""",
    "ingest_files": """
        kafka: {bootstrap.servers: 'localhost:9092'}
        name: invoices
        files: {path: /data, format: csv, schema: n INT}
        transform: {sql: SELECT string(n) AS value FROM input}
        sink: {topic: t}""",
    "kafka_to_delta": """
        kafka: {bootstrap.servers: 'localhost:9092'}
        source: {subscribe: people}
        transform: {sql: SELECT value FROM input, engine: duckdb}
        target: {path: /t}
        checkpoint: /c""",
    "kafka_to_iceberg": """
        kafka: {bootstrap.servers: 'localhost:9092'}
        source: {subscribe: flights}
        transform: {sql: SELECT value FROM input}
        target: {table: lake.flights, catalog.token: swordfish}
        checkpoint: /c""",
    "delta_to_kafka": """
        kafka: {bootstrap.servers: 'localhost:9092'}
        source: {path: /t}
        transform: {sql: SELECT value FROM input}
        sink: {topic: people}
        checkpoint: /c""",
}
Loaded = Callable[..., Any]
Planned = Callable[..., Plan]


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    """``loaded("mirror", "topics: {prefix: p.}")``: the config by the job's right file with a patch; ``-`` removes a
    key."""

    def loaded(job: str, patch: str = "") -> Any:
        file = tmp_path / "job.yaml"
        file.write_text(json.dumps(patched(yaml.safe_load(RIGHT[job]), yaml.safe_load(f"{{{patch}}}"))))
        return load(file, importlib.import_module(f"jobs.{job}").main.__self__.config, {})

    return loaded


@pytest.fixture
def planned(loaded: Loaded) -> Planned:
    """The same, and the job's plan by that."""

    def planned(job: str, patch: str = "") -> Plan:
        options = argparse.Namespace(source="eos-kafka", sink="eos-kafka")
        plan: Plan = importlib.import_module(f"jobs.{job}").plan(loaded(job, patch), options)
        return plan

    return planned


def patched(config: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    for key, value in patch.items():
        if value == "-":
            config.pop(key, None)
        elif isinstance(value, dict) and isinstance(config.get(key), dict):
            patched(config[key], value)
        else:
            config[key] = value
    return config
