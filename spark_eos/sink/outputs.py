"""Topics that rows go to: not a ledger, nor any other topic that is not for rows. On the driver, and in tasks where a
column names the topics."""

from __future__ import annotations

import time
from collections.abc import Collection

from spark_eos.kafka.admin.topics import Topic, describe_topics
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.ledger.own_topics import check_for_rows
from spark_eos.options.parse import SinkOptions

#: Seconds for which a process does not look into the same topic again: it may become a ledger later.
_FRESH_S = 30.0

_looked_at: dict[tuple[KafkaProperties, str, str], float] = {}


def output_partitions(options: SinkOptions, topics: Collection[str]) -> dict[str, int]:
    """``{topic: number of partitions}``, of topics that rows go to.

    Raises TopicError (EOS_TOPIC_RESERVED), and what `describe_topics` raises.
    """
    found = describe_topics(broker_client(options.kafka), topics)
    check_outputs(options, found)
    return {name: topic.partitions for name, topic in found.items()}


def check_outputs(options: SinkOptions, topics: dict[str, Topic]) -> None:
    """Raise TopicError (EOS_TOPIC_RESERVED) where one of these is not for rows."""
    now, kafka = time.monotonic(), options.kafka
    new = {
        name: topic
        for name, topic in topics.items()
        if now - _looked_at.get((kafka, name, topic.id), float("-inf")) >= _FRESH_S
    }
    check_for_rows(broker_client(kafka), new, ledger=options.ledger_topic)
    _looked_at.update({(kafka, name, topic.id): now for name, topic in new.items()})
