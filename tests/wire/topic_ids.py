"""The ids of topics, by which Fetch names them."""

from __future__ import annotations

import uuid
from typing import Any

from .codec import Asked

#: The version of Fetch from which on it names topics by their ids.
BY_ID = 13
#: Id → name, of every topic that anybody has asked about.
_names: dict[uuid.UUID, str] = {}


def id_of(topic: str) -> uuid.UUID:
    """The id of a topic, the same in each schedule."""
    id_ = uuid.uuid5(uuid.NAMESPACE_OID, topic)
    _names[id_] = topic
    return id_


def fetched_topic(asked: Asked, topic: Any) -> str:
    """The name of a topic that a Fetch request asks for."""
    name: str = topic.topic if asked.version < BY_ID else _names.get(topic.topic_id, "")
    return name
