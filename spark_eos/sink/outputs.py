"""Topics that rows go to: not a ledger, nor any other topic that is not for rows. On the driver, and in tasks where a
column names the topics."""

from __future__ import annotations

import time

from spark_eos.kafka.admin.topics import Topic
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.ledger.own_topics import check_for_rows

#: Seconds for which a process does not look into the same topic again: it may become a ledger later.
_FRESH_S = 30.0

_looked_at: dict[tuple[KafkaProperties, str, str], float] = {}


def check_not_reserved(client: BrokerClient, topics: dict[str, Topic], *, ledger: str) -> None:
    """Raise TopicError (EOS_TOPIC_RESERVED) where one of these is not for rows."""
    now, kafka = time.monotonic(), client.properties
    for key in [key for key, at in _looked_at.copy().items() if now - at >= _FRESH_S]:
        _looked_at.pop(key, None)
    new = {name: topic for name, topic in topics.items() if (kafka, name, topic.id) not in _looked_at}
    check_for_rows(client, new, ledger=ledger)
    _looked_at.update({(kafka, name, topic.id): now for name, topic in new.items()})
