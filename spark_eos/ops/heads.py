"""The newest heads of queries in the ledger, one for each sink: of streams, of the sinks within a foreachBatch, and of
batch writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from spark_eos.base import system
from spark_eos.errors import LedgerError, stop
from spark_eos.ledger.owners import Cluster
from spark_eos.ledger.reader import StoredHead
from spark_eos.protocol.head import NO_MARKS, NOBODY, WHOLE, ForeachBatchWrite, Head, Unfinished
from spark_eos.protocol.head_codec import decode, foreach_batch_write_of


@dataclass(frozen=True)
class SinkHead:
    """The newest head of one sink: of a stream, of a batch write, or of the writes to one sink within a foreachBatch.

    ``key``: the sink's key in the ledger and in transactional ids; ``query``: the id of the query, which is another
    one than the key for a sink within foreachBatch; ``name``: of the sink within foreachBatch, `WHOLE` for all of them,
    None for the sink of a stream. ``head``: None where this version cannot read it, for the reason in ``problem``.
    ``partition``, ``offset``: where its record is in the ledger topic, -1 where that was not looked up; ``age_s``:
    seconds since it was published, by the clocks of the publisher and of this machine, None where that is not known.
    """

    key: str
    query: str
    name: str | None
    head: Head | None
    partition: int = -1
    offset: int = -1
    age_s: float | None = None
    problem: str = ""

    @property
    def known(self) -> Head:
        """The head. `heads_of` returns none that cannot be read."""
        assert self.head is not None, self.problem
        return self.head


def sink_head(
    key: str, record: StoredHead, head: Head | None, age_s: float | None = None, problem: str = ""
) -> SinkHead:
    """Return the head that a record of the ledger holds.

    Every user that may write to the ledger can name any query in it. So the query that a head names counts only under
    the key of that query's sink. A head that this version cannot read may still name its query.
    """
    write = foreach_batch_write_of(record.value) if head is None else head.write
    query, name = key, None
    if isinstance(write, ForeachBatchWrite) and key == write.query_id:
        query, name = write.query, write.sink
    return SinkHead(key, query, name, head, record.partition, record.offset, age_s, problem)


def newest_heads(cluster: Cluster) -> list[SinkHead]:
    """Return every head in the ledger, the newest first. The whole topic is read. Raises EosError."""
    _ = cluster.partitions  # raises where the topic does not exist
    now_ms = 1000 * system.time_of_day()
    heads = [_read(key, record, now_ms) for key, record in cluster.heads.newest_of_all().items()]
    return sorted(heads, key=lambda sink: sink.age_s if sink.age_s is not None else float("inf"))


def _read(key: str, record: StoredHead, now_ms: float) -> SinkHead:
    age_s = None if record.time_ms is None else max(0.0, (now_ms - record.time_ms) / 1000)
    try:
        return sink_head(key, record, decode(record.value), age_s)
    except LedgerError as error:
        return sink_head(key, record, None, age_s, f"[{error.condition}] {error.message}")


def heads_of(cluster: Cluster, query: str) -> list[SinkHead]:
    """Return the heads of all sinks of a query, by the sinks' names. The checkpoint does not have these names: the
    heads name the query.

    Raises EosError where the ledger cannot be read, or one of the heads cannot be read by this version.
    """
    sinks = []
    own = cluster.head(query)
    if own is not None:
        write = own.write
        sinks.append(SinkHead(query, query, write.sink if isinstance(write, ForeachBatchWrite) else None, own))
    for key, record in cluster.heads.newest_of_all().items():
        sink = sink_head(key, record, None)
        if sink.query == query and sink.name:
            head = cluster.head(key)
            sinks.append(replace(sink, head=decode(record.value) if head is None else head))
    for sink in sinks:
        cluster.prefix_of(sink.key)  # raises where another prefix was named
    return sorted(sinks, key=lambda sink: sink.name or "")


def with_the_whole(sinks: list[SinkHead], query: str) -> list[SinkHead]:
    """Return the heads within foreachBatch, preceded by one for the query itself, which represents sinks without a
    head."""
    if not sinks or sinks[0].name in (None, WHOLE):
        return sinks
    write = ForeachBatchWrite(query, WHOLE)
    head = replace(sinks[0].known, run=NOBODY, decision=None, given_up=None, write=write, marks=NO_MARKS, unverified={})
    return [SinkHead(query, query, WHOLE, head), *sinks]


def check_named(mark: Unfinished, query: str, checkpoint: str, to: str) -> None:
    """Raise ReplayError unless a mark in the ledger names the query and the locations that the command names: a user
    that may write to the ledger must not choose which files a command changes. ``to``: the location of a new
    checkpoint, or of the checkpoint itself."""
    wanted = {"query": query, "checkpoint": checkpoint, "new checkpoint": to}
    check_agree({"query": mark.of, "checkpoint": mark.checkpoint, "new checkpoint": mark.to}, wanted)


def check_agree(marked: Mapping[str, object], wanted: Mapping[str, object]) -> None:
    """Raise ReplayError unless each field of a mark in the ledger has the value that the command expects."""
    for field, value in wanted.items():
        if marked[field] != value:
            raise stop("EOS_REPLAY_REFUSED.mark", field=field, by_ledger=marked[field], by_command=value)
