"""Which topic takes the rows that others refuse, before anything is written."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.errors import EosError
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.options.parse import SinkOptions
from spark_eos.sink import dead_letters
from spark_eos.sink.dead_letters import check_dead_letters

SERVERS = KafkaProperties({"bootstrap.servers": "h:1"})
OUTPUT = {"max.message.bytes": "1048588", "min.insync.replicas": "1", "cleanup.policy": "delete"}
LETTERS = OUTPUT | {"max.message.bytes": "10000000"}


@pytest.mark.parametrize(
    ("name", "config", "replicas", "entry", "says"),
    [
        ("letters", LETTERS, 1, None, ""),
        ("letters", LETTERS | {"cleanup.policy": "compact,delete"}, 1, "EOS_DEAD_LETTER_TOPIC.compacted", "compacted"),
        ("letters", OUTPUT, 1, "EOS_DEAD_LETTER_TOPIC.too_small", "--add-config max.message.bytes=1114124"),
        ("letters", LETTERS, 2, "EOS_DEAD_LETTER_TOPIC.less_durable", "lost more easily"),
        ("out", LETTERS, 1, "EOS_OPTION_CONFLICT.same_topic", "'topic'"),
        ("ledger", LETTERS, 1, "EOS_OPTION_CONFLICT.same_topic", "'ledger.topic'"),
    ],
    ids=["it will do", "compacted", "no larger than others", "less durable", "the output", "the ledger"],
)
def test_a_dead_letter_topic_that_will_not_do(monkeypatch, name, config, replicas, entry, says):
    """Each before a task runs, with what to do. ``replicas``: of the output topic."""

    def describe(client: object, topic: str) -> Any:
        partition = SimpleNamespace(replica_nodes=[1] * (1 if topic == "letters" else replicas))
        return SimpleNamespace(partitions=[partition] * 3)

    monkeypatch.setattr(dead_letters, "describe_topic", describe)
    monkeypatch.setattr(dead_letters, "topic_config", lambda _, topic: config if topic == "letters" else OUTPUT)
    options = SinkOptions(SERVERS, topic="out", dead_letters=name, ledger_topic="ledger")
    client = BrokerClient(KafkaProperties({**SERVERS, "client.id": uuid.uuid4().hex}))  # by which settings are kept
    if entry is None:
        assert check_dead_letters(client, options) == 3
        return
    with pytest.raises(EosError) as caught:
        check_dead_letters(client, options)
    assert caught.value.entry == entry
    assert says in str(caught.value)
