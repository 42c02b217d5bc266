"""When the source must stop or wait, and what it asks of the brokers meanwhile."""

from __future__ import annotations

import json
import time
import uuid

import pytest

from spark_eos.errors import TopicError
from spark_eos.source import lag, watch
from tests.support.queries.source_calls import run, until_new, values
from tests.support.waiting import TIMEOUT


def test_a_missing_topic_is_named_and_not_created(reader, topic, admin):
    """Asking for it must not bring it about."""
    name = f"missing-{uuid.uuid4().hex}"
    with pytest.raises(TopicError, match=name) as caught:
        reader(f"{topic()},{name}").initialOffset()
    assert caught.value.condition == "EOS_TOPIC_MISSING"
    assert name not in admin.list_topics(timeout=TIMEOUT).topics


def test_a_start_inside_an_open_transaction_waits_for_it(reader, topic, transactions):
    """The stable end lies before the start that the user gave; that is no loss."""
    name = topic()
    transactions.producer.begin_transaction()
    transactions.put(name, *"abc")
    source = reader(name, json.dumps({name: {"0": 2}}))
    batches, at = run(source)
    assert values(batches) == []
    transactions.producer.commit_transaction(TIMEOUT)
    until_new(source, at)
    assert values(run(source, at)[0]) == ["c"]


def test_an_idle_stream_asks_the_broker_at_most_every_50_ms(reader, topic, monkeypatch):
    """Spark asks the reader every 10 ms. High watermarks, which it asks for each second, are left out."""
    asked = []
    real = watch.ends_and_epochs
    monkeypatch.setattr(lag, "_LOOK_S", TIMEOUT)
    monkeypatch.setattr(watch, "ends_and_epochs", lambda *args: asked.append(args) or real(*args))
    source = reader(topic())
    _, at = run(source)
    asked.clear()
    began = time.monotonic()
    for _ in range(100):
        source.latestOffset(at, source.getDefaultReadLimit())
        time.sleep(0.002)
    assert 1 < len(asked) <= 1 + (time.monotonic() - began) / 0.05
