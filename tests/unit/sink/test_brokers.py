"""What brokers must be able to do where transaction.version is below 2."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.kafka.net.schema import Api
from spark_eos.sink import brokers
from spark_eos.sink.brokers import check_brokers
from tests.support.judges.conditions import raises


def check(level: int, of_kafka_3_5: list[int]) -> None:
    """``of_kafka_3_5``: brokers that have AddPartitionsToTxn up to version 3."""

    def brokers_without(request: Api) -> list[int]:
        assert request.name == "AddPartitionsToTxn" and request.version(0, 4) is not None
        return of_kafka_3_5 if request.version(0, 3) is None else []

    client: Any = SimpleNamespace(feature=lambda _: level, brokers_without=brokers_without, bootstrap_servers="h:1")
    check_brokers(client, two_phase=False)


def test_brokers_before_kafka_3_6_are_named():
    """They take a batch without asking the coordinator, so that one that comes late would hang for ever. With version
    2, nothing is asked of them: there, the end of a transaction fences its producer."""
    with raises("EOS_BROKER_UNSUITABLE", "older than Apache Kafka 3.6", ": 2."):
        check(0, [2])
    check(2, [2])


@pytest.mark.parametrize(
    ("settings", "named"), [({1: "true", 2: "true"}, ""), ({1: "true", 2: "false"}, ": 2"), (None, "")]
)
def test_brokers_that_verify_nothing_are_named(settings, named, monkeypatch, caplog):
    """With the setting that prevents a batch which comes late from hanging for ever; a warning where this user may not
    read it."""
    monkeypatch.setattr(brokers, "each_broker_setting", lambda *_: settings)
    if named:
        with raises("EOS_BROKER_UNSUITABLE", f"transaction.partition.verification.enable=true{named}"):
            check(1, [])
        return
    check(1, [])
    assert ("cannot be checked" in caplog.text) == (settings is None)
