"""Which timestamps a topic keeps, by its settings."""

from __future__ import annotations

import time
from contextlib import nullcontext

import pytest

from spark_eos.errors import TopicError
from spark_eos.kafka.admin import retention
from spark_eos.kafka.admin.retention import check_age, unfit_setting
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient

CLIENT = BrokerClient(KafkaProperties({"bootstrap.servers": "127.0.0.1:1"}))
NOW_MS = 1_000_000
KEPT = {"retention.ms": "5"}
BEFORE, AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"


@pytest.mark.parametrize(
    ("settings", "age_ms", "unfit"),
    [
        (KEPT, 5, None),
        (KEPT, 6, "retention.ms"),
        ({"retention.ms": "0"}, 1, "retention.ms"),
        ({"retention.ms": "-1"}, NOW_MS, None),
        (KEPT | {"cleanup.policy": "compact"}, 6, None),
        (KEPT | {"cleanup.policy": "compact,delete"}, 6, "retention.ms"),
        (KEPT | {"message.timestamp.type": "CreateTime"}, 6, "retention.ms"),
        (KEPT | {"message.timestamp.type": "LogAppendTime", BEFORE: "1"}, 6, None),
        ({BEFORE: "5"}, 5, None),
        ({BEFORE: "5"}, 6, BEFORE),
        (KEPT | {BEFORE: "5"}, 6, "retention.ms"),
        ({AFTER: "5"}, -5, None),
        ({AFTER: "5"}, -6, AFTER),
        ({BEFORE: str(2**63 - 1), AFTER: str(2**63 - 1)}, NOW_MS, None),
        ({}, NOW_MS, None),
        (KEPT, NOW_MS, "retention.ms"),
        (KEPT, NOW_MS + 1, None),
        (KEPT | {BEFORE: "5"}, NOW_MS + 1, None),
        (KEPT | {BEFORE: "5"}, NOW_MS + 2, BEFORE),
    ],
)
def test_a_timestamp_that_a_topic_does_not_keep(settings, age_ms, unfit):
    """By the setting that says so; brokers that lack a setting have no such limit. Before 1970, they go by the time of
    their file; -1 is no timestamp, and is never refused."""
    assert unfit_setting(settings, NOW_MS - age_ms, NOW_MS) == unfit


@pytest.mark.parametrize(
    ("age_ms", "stops"),
    [(10_000, True), (-10_000, False), (1_000, False)],
    ids=["too old", "in the future", "new"],
)
def test_rows_that_brokers_would_delete_at_once(monkeypatch, age_ms, stops):
    """By name; what brokers refuse, they refuse themselves."""
    settings = {"retention.ms": "5000", AFTER: "1"}
    monkeypatch.setattr(retention, "topic_settings", lambda client, topic: settings)
    with pytest.raises(TopicError, match="EOS_ROWS_EXPIRED") if stops else nullcontext():
        check_age(CLIENT, "t", int(time.time() * 1000) - age_ms)


@pytest.mark.parametrize("oldest_ms", [None, -1])
def test_rows_without_a_timestamp_ask_for_nothing(oldest_ms):
    """Not even for the topic's settings, which a query without timestamps needs no right to see."""
    check_age(CLIENT, "t", oldest_ms)
