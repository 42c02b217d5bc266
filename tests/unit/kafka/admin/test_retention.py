"""Which timestamps a topic keeps, by its settings."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.errors import TopicError
from spark_eos.kafka.admin.retention import check_age, unfit_setting

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


class Cluster:
    """``settings``: of every topic."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = settings

    def ask_any(self, *_: object) -> SimpleNamespace:
        rows = [SimpleNamespace(name=name, value=value) for name, value in self.settings.items()]
        return SimpleNamespace(results=[SimpleNamespace(error_code=0, configs=rows)])


@pytest.mark.parametrize(
    ("age_ms", "stops"),
    [(10_000, True), (-10_000, False), (1_000, False)],
    ids=["too old", "in the future", "new"],
)
def test_rows_that_brokers_would_delete_at_once(age_ms, stops):
    """By name; what brokers refuse, they refuse themselves."""
    client: Any = Cluster({"retention.ms": "5000", AFTER: "1"})
    with pytest.raises(TopicError, match=r"EOS_ROWS_EXPIRED.* are 1\d s old") if stops else nullcontext():
        check_age(client, "t", int(time.time() * 1000) - age_ms)


@pytest.mark.parametrize("oldest_ms", [None, -1])
def test_rows_without_a_timestamp_ask_for_nothing(oldest_ms):
    """Not even for the topic's settings, which a query without timestamps needs no right to see."""
    nobody: Any = None
    check_age(nobody, "t", oldest_ms)
