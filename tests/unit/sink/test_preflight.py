"""What the driver checks anew for each query, and what it goes on by for a while."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.options.parse import SinkOptions
from spark_eos.sink import preflight as module
from spark_eos.sink.preflight import preflight

CLIENT = BrokerClient(KafkaProperties({"bootstrap.servers": "h:1"}))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked: the cluster's settings, and whether a query's predecessors have finished."""
    calls: list[str] = []
    for name in ("check_output", "check_brokers", "check_dead_letters", "_check_ids"):
        monkeypatch.setattr(module, name, lambda *_, **__: 0)
    monkeypatch.setattr(module, "broker_config", lambda *_: calls.append("cluster"))
    monkeypatch.setattr(module, "ledger_partitions", lambda *_: 8)
    monkeypatch.setattr(module, "KafkaLedger", lambda *_: SimpleNamespace(read=lambda: None))
    monkeypatch.setattr(module, "check_predecessors", lambda client, options, query: calls.append(query))
    return calls


def options_at(checkpoint: object) -> SinkOptions:
    return SinkOptions(CLIENT.properties, topic="t", checkpoint_location=str(checkpoint))


def test_a_new_checkpoint_in_the_same_place_is_checked(asked: list[str], tmp_path: Path):
    """However soon after the last start: by another query id. The cluster is as it was a moment ago."""
    for query in ("one", "one", "two", "two"):
        (tmp_path / "metadata").write_text(json.dumps({"id": query}))
        preflight(CLIENT, options_at(tmp_path))
    assert asked == ["cluster", "one", "two"]


def test_a_store_that_cannot_be_read_is_tried_once_in_a_while(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """A micro-batch does not wait each time for what does not answer."""
    opened: list[str] = []
    store = module.Checkpoint

    def opening(location: str, settings: object) -> object:
        opened.append(location)
        return store(location, settings)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "Checkpoint", opening)
    for _ in range(3):
        preflight(CLIENT, options_at("viewfs://odd/there/tried-once"))
    assert asked == ["cluster"] and len(opened) == 1
    assert [record for record in caplog.records if "The query continues" in record.getMessage()]
