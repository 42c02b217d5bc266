"""What the driver checks anew for each query, and what it goes on by for a while."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from spark_eos.errors import OptionError
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.transactions import NEVER_MS
from spark_eos.options.parse import SinkOptions
from spark_eos.sink import preflight as module
from spark_eos.sink.preflight import preflight, transaction_timeout

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


@pytest.mark.parametrize(
    ("most", "chosen", "timeout_ms"),
    [
        (900_000, None, 900_000),
        (900_000, 60_000, 60_000),
        (NEVER_MS, None, 900_000),
        (NEVER_MS, NEVER_MS - 1, NEVER_MS - 1),
        (NEVER_MS, NEVER_MS, None),
        (900_000, 900_001, None),
    ],
)
def test_a_transaction_expires(most: int, chosen: int | None, timeout_ms: int | None):
    """Unless two-phase commit is asked for: Kafka takes the longest timeout for that."""
    options = SinkOptions(CLIENT.properties, transaction_timeout_ms=chosen)
    broker = {"transaction.max.timeout.ms": str(most)}
    if timeout_ms is not None:
        assert transaction_timeout(options, broker) == timeout_ms
        return
    with pytest.raises(OptionError, match=f"'transaction.timeout.ms' is {chosen}"):
        transaction_timeout(options, broker)
    assert transaction_timeout(replace(options, two_phase=True), broker) == chosen
