"""What a record says of its topic: heads of queries, entries of an offset map and notes of an ingest are recognized by
their form, whatever the topic is called.

Only records that have all of a form count, as rows of users must never be taken for one of these.
"""

from __future__ import annotations

import json
import re
from enum import Enum


class OwnTopic(Enum):
    """A kind of topic that spark-eos keeps for itself."""

    LEDGER = "a ledger of spark-eos"
    OFFSET_MAP = "an offset map of spark-eos"
    NOTES = "what ingests of spark-eos have noted"


_QUERY = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_OF_HEADS = frozenset(["format", "run", "generation", "earlier", "endtxn", "decision"])
#: For each form of a JSON key, what its value has at least.
_FORMS = (
    (
        frozenset(["cluster", "topic", "partition", "first"]),
        ("topic", "end", "target", "id", "runs"),
        OwnTopic.OFFSET_MAP,
    ),
    (frozenset(["origin", "source"]), ("target", "source", "chain"), OwnTopic.OFFSET_MAP),
    (frozenset(["query", "batch", "place"]), ("ingest", "topic", "uri", "digest", "task", "tasks"), OwnTopic.NOTES),
)


def own_topic_of(key: bytes | None, value: bytes | None) -> OwnTopic | None:
    """The kind of topic that such a record is of; None where it may be anybody's."""
    if key is None or value is None:
        return None
    has = _names_in(value)
    if is_query(key):
        return OwnTopic.LEDGER if has >= _OF_HEADS else None
    names = _names_in(key)
    return next((kind for of_key, of_value, kind in _FORMS if names == of_key and has.issuperset(of_value)), None)


def is_query(key: bytes | None) -> bool:
    """Whether this may be the key of a head: what stands for a query in the ledger."""
    return key is not None and _QUERY.fullmatch(key) is not None


def _names_in(text: bytes) -> frozenset[str]:
    """The names in a JSON object; none where it is anything else."""
    if not text.startswith(b"{"):
        return frozenset()
    try:
        return frozenset(json.loads(text))
    except (ValueError, RecursionError):
        return frozenset()
