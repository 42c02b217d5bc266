"""The heads of a query in the ledger: that of its sink, or those of the sinks within its foreachBatch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from spark_eos.errors import ReplayError
from spark_eos.kafka.ports.owners import Cluster
from spark_eos.protocol.head import NOBODY, Head
from spark_eos.protocol.head_json import decode
from spark_eos.protocol.marks import WHOLE, EachSink, Marks
from spark_eos.protocol.names import query_of_sink


@dataclass(frozen=True)
class OwnHead:
    """``key``: what stands for the query in the ledger and in transactional ids; ``sink``: the name of a sink within
    foreachBatch, `WHOLE` for all of them, None for the sink of a stream."""

    key: str
    sink: str | None
    head: Head


def heads_of(cluster: Cluster, query: str) -> list[OwnHead]:
    """Every head of a query, by the sinks' names. The checkpoint does not know these; their heads name the query.

    Raises EosError where the ledger cannot be read, or one of the heads is not known to this version.
    """
    own = cluster.ports(query).ledger.read()
    found = [] if own is None else [OwnHead(query, None if own.marks.each is None else own.marks.each.name, own)]
    for key, newest in cluster.heads.newest_of_all().items():
        name = _sink_of(newest.value, query)
        if name and key == query_of_sink(query, name):
            head = cluster.ports(key).ledger.read()
            found.append(OwnHead(key, name, decode(newest.value) if head is None else head))
    return sorted(found, key=lambda own: own.sink or "")


def with_the_whole(heads: list[OwnHead], query: str) -> list[OwnHead]:
    """Those within foreachBatch with one for the query itself before them, which stands for sinks without a head."""
    if not heads or heads[0].sink in (None, WHOLE):
        return heads
    each = EachSink(query, WHOLE)
    head = replace(heads[0].head, run=NOBODY, decision=None, given_up=None, marks=Marks(each=each))
    return [OwnHead(query, WHOLE, head), *heads]


def check_prefix(heads: Iterable[OwnHead], cluster: Cluster) -> None:
    """Raise ReplayError where the query has another prefix than the command, which would look for other ids."""
    for own in heads:
        if own.head.prefix != cluster.prefix:
            raise ReplayError(
                "EOS_REPLAY_OPTIONS",
                f"The query's transactional ids begin with '{own.head.prefix}', and --prefix is '{cluster.prefix}'.",
                hint=f"Set --prefix to {own.head.prefix}.",
            )


def _sink_of(value: bytes, query: str) -> str | None:
    """The sink's name, if this is the head of one within the query's foreachBatch."""
    try:
        each = json.loads(value).get("each") or {}
    except (ValueError, AttributeError):
        return None  # somebody else's record
    return str(each.get("name")) if each.get("query") == query else None
