"""Recognizes records of spark-eos' own topics by their form, as topics may have any name: heads of queries, entries of
an offset map and notes of an ingest.

Only records that have all parts of a form count, as rows of users must never be taken for one of these.
"""

from __future__ import annotations

import re
from enum import Enum

from spark_eos.protocol.head_codec import names_in


class OwnTopic(Enum):
    """A kind of topic that spark-eos keeps for itself."""

    LEDGER = "a ledger of spark-eos"
    OFFSET_MAP = "an offset map of spark-eos"
    NOTES = "the notes of ingests of spark-eos"


_QUERY = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


_OF_ANY_HEAD = frozenset(["format", "run"])
_OF_HEADS = _OF_ANY_HEAD | frozenset(["generation", "earlier", "endtxn", "decision"])


#: For each form of a JSON key, the fields that its value has at least.
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
    """Return the kind of topic that such a record is of; None where it may be anybody's."""
    if key is None or value is None:
        return None
    has = names_in(value)
    if _QUERY.fullmatch(key) is not None:
        return OwnTopic.LEDGER if has >= _OF_HEADS else None
    names = names_in(key)
    return next((kind for of_key, of_value, kind in _FORMS if names == of_key and has.issuperset(of_value)), None)


def may_be_head(key: bytes | None, value: bytes | None) -> bool:
    """Return whether a record may be a head of any version of the library."""
    if key is None or value is None or _QUERY.fullmatch(key) is None:
        return False
    return names_in(value) >= _OF_ANY_HEAD
