"""The heads of queries in the ledger: that of a stream's sink, those of the sinks within a foreachBatch, and those of
batch writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from spark_eos import system
from spark_eos.errors import LedgerError, stop
from spark_eos.ledger.owners import Cluster
from spark_eos.ledger.reader import Dated
from spark_eos.protocol.head import NOBODY, WHOLE, EachSink, Head, Marks, Unfinished
from spark_eos.protocol.head_codec import decode, each_sink_of
from spark_eos.protocol.names import query_of_sink


@dataclass(frozen=True)
class NewestHead:
    """The newest head under a key of the ledger, or why it cannot be read. ``age_s``: how long ago it was published, by
    the clocks of who did and of this machine; None where nobody tells."""

    key: str
    dated: Dated
    age_s: float | None
    head: Head | None
    problem: str = ""

    @property
    def query(self) -> str:
        """The query's id; that of the checkpoint, where the head is that of a sink within its foreachBatch."""
        each = self._each
        return self.key if each is None else each.query

    @property
    def sink(self) -> str | None:
        """The name of the sink within foreachBatch, `WHOLE` for all of them; None for a stream's sink."""
        each = self._each
        return None if each is None else each.name

    @property
    def _each(self) -> EachSink | None:
        """By the head itself, also where this version cannot read the rest of it. Whoever may write to the ledger may
        name any query, so that it counts only under the key of that sink."""
        each = each_sink_of(self.dated.value) if self.head is None else self.head.marks.each
        if each is None:
            return None
        own = query_of_sink(each.query, each.name) if each.name else each.query
        return each if self.key == own else None


def newest_heads(cluster: Cluster) -> list[NewestHead]:
    """Every head in the ledger, the newest first. The whole topic is read. Raises EosError."""
    _ = cluster.partitions  # a topic that is not there is an error at once
    now_ms = 1000 * system.time_of_day()
    found = [_newest(key, dated, now_ms) for key, dated in cluster.heads.newest_of_all().items()]
    return sorted(found, key=lambda entry: entry.age_s if entry.age_s is not None else float("inf"))


def _newest(key: str, dated: Dated, now_ms: float) -> NewestHead:
    age_s = None if dated.time_ms is None else max(0.0, (now_ms - dated.time_ms) / 1000)
    try:
        return NewestHead(key, dated, age_s, decode(dated.value))
    except LedgerError as error:
        return NewestHead(key, dated, age_s, None, f"[{error.condition}] {error.message}")


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
    for key, dated in cluster.heads.newest_of_all().items():
        newest = NewestHead(key, dated, None, None)
        if newest.query == query and newest.sink:
            head = cluster.head(key)
            found.append(OwnHead(key, newest.sink, decode(dated.value) if head is None else head))
    for one in found:
        cluster.prefix_of(one.key)  # another one that was named is refused at once
    return sorted(found, key=lambda one: one.sink or "")


def with_the_whole(heads: list[OwnHead], query: str) -> list[OwnHead]:
    """The heads within foreachBatch, with one for the query itself before them, which stands for sinks without a
    head."""
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
    """Raise ReplayError where a mark says something else than the command; ``named`` and ``asked`` by field."""
    for what, value in asked.items():
        if named[what] != value:
            raise stop("EOS_REPLAY_REFUSED.mark", field=what, by_ledger=named[what], by_command=value)
