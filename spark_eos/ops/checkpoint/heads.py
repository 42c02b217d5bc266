"""The heads of a query in the ledger: that of its sink, or those of the sinks within its foreachBatch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from spark_eos.errors import ReplayError
from spark_eos.ledger.owners import Cluster
from spark_eos.protocol.head import NOBODY, WHOLE, EachSink, Head, Marks, Unfinished
from spark_eos.protocol.head_codec import decode
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
    own = cluster.head(query)
    found = [] if own is None else [OwnHead(query, None if own.marks.each is None else own.marks.each.name, own)]
    for key, newest in cluster.heads.newest_of_all().items():
        name = _sink_of(newest.value, query)
        if name and key == query_of_sink(query, name):
            head = cluster.head(key)
            found.append(OwnHead(key, name, decode(newest.value) if head is None else head))
    for each in found:
        cluster.prefix_of(each.key)  # another one that was named is refused at once
    return sorted(found, key=lambda own: own.sink or "")


def with_the_whole(heads: list[OwnHead], query: str) -> list[OwnHead]:
    """Those within foreachBatch with one for the query itself before them, which stands for sinks without a head."""
    if not heads or heads[0].sink in (None, WHOLE):
        return heads
    each = EachSink(query, WHOLE)
    head = replace(heads[0].head, run=NOBODY, decision=None, given_up=None, marks=Marks(each=each))
    return [OwnHead(query, WHOLE, head), *heads]


def check_named(mark: Unfinished, query: str, checkpoint: str, to: str | None = None) -> None:
    """Raise ReplayError where a mark in the ledger names another query, or another place, than the command was told:
    whoever may write to the ledger must not choose whose files a command changes. ``to``: of a new checkpoint."""
    asked = {"query": query, "checkpoint": checkpoint, "new checkpoint": checkpoint if to is None else to}
    named = {"query": mark.of, "checkpoint": mark.checkpoint, "new checkpoint": mark.to}
    check_agree(named, asked)


def check_agree(named: Mapping[str, object], asked: Mapping[str, object]) -> None:
    """The same for anything that a mark says, each by what it is."""
    for what, value in asked.items():
        if named[what] != value:
            raise ReplayError(
                "EOS_LEDGER_MARK_DIFFERS",
                f"By the ledger, the {what} of what has begun is {named[what]}; by the command and the checkpoint, it "
                f"is {value}.",
                hint="Nothing was changed. If the checkpoint was moved, name it as before. Otherwise somebody else may "
                "have written to the ledger topic: find out who may, and what its records were before.",
            )


def _sink_of(value: bytes, query: str) -> str | None:
    """The sink's name, if this is the head of one within the query's foreachBatch."""
    try:
        each = json.loads(value).get("each") or {}
    except (ValueError, AttributeError):
        return None  # somebody else's record
    return str(each.get("name")) if each.get("query") == query else None
