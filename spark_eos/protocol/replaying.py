"""The steps of a replay in the ledger: a query that begins where another one was before, or that goes back itself.

The order is what keeps a crash between two steps harmless. The head that no start gets past is published first; then
the checkpoint is changed, or made; and in the end the head is published from which a query goes on. Where rows are
written to the same topic again, the old query is retired before the new one may begin, so that the two can never both
go on. The command may be repeated from its beginning, at any step of an earlier one: whoever does so takes over, and
the earlier one, if it only stalls, stops at its next step (`spark_eos.protocol.held`).
"""

from __future__ import annotations

from dataclasses import replace

from spark_eos.errors import ReplayError
from spark_eos.protocol.clearing import clear_earlier
from spark_eos.protocol.closing import known_head
from spark_eos.protocol.head import NOBODY, Decision, Head, Offsets
from spark_eos.protocol.held import publish_next
from spark_eos.protocol.looking_back import unseen_of
from spark_eos.protocol.marks import EachSink, Marks, Successor, Unfinished
from spark_eos.protocol.newest import taking
from spark_eos.protocol.ports import NotPublished, Ports
from spark_eos.protocol.run import verdicts_of
from spark_eos.protocol.stops import finishing, goes_on, ledger_busy


def intend(ports: Ports, unfinished: Unfinished, old: Head, each: EachSink | None = None) -> Head:
    """Publish the first head of the new query, which no start gets past. What its rows need to be dealt to partitions
    and told from those of others is as in the ``old`` query's head. Where an earlier command has published it, the same
    head is published once more, of the next generation, so that only this command goes on from there.

    Raises ReplayError (EOS_REPLAY_TARGET_USED) where the ledger knows a query there, and Unclear.
    """
    new: Head | None = None
    for term, head in taking(ports):
        if head is not None and head == new:
            return head  # it was not known whether this had worked
        if head is None:
            marks, version = Marks(each=each, unfinished=unfinished), ports.coordinator.endtxn_version()
            new = Head(
                NOBODY,
                1,
                (),
                version,
                prefix=old.prefix,
                partitioner=old.partitioner,
                marks=marks,
                topics=old.topics if unfinished.topic is None else (unfinished.topic,),
                more_topics=old.more_topics and unfinished.topic is None,
            )
        elif head.marks.unfinished == unfinished:
            new = head.succeeded_by(NOBODY, head.endtxn_version)
        else:
            raise _used(unfinished, head)
        try:
            term.publish(new)
        except NotPublished:
            continue
        ports.reach("replay.intended")
        return new
    raise ledger_busy()


def retire(
    ports: Ports, query: str, successor: Successor, passed: int | None = None, absent: Head | None = None
) -> Head:
    """Close the old query for good, in favour of its successor. What it has decided is committed first, and what it has
    open and not decided is aborted after that: nobody else ever would. A run that is alive stops (EOS_QUERY_RETIRED).
    ``passed``: the last micro-batch that Spark has noted as committed, where that proves that it was. ``absent`` stands
    for a head that is not there.

    Raises LedgerError (EOS_LEDGER_NO_QUERY), Unclear, and ReplayError where rows of the last decision are lost, or
    another query is the successor.
    """
    for term, found in taking(ports):
        head = known_head(found or absent, query)
        marks = Marks(each=head.marks.each, successor=successor, topic=head.marks.topic)
        if head.marks != marks:
            check_not_halted(head)
            head = _settled(ports, head, passed)
            closed = replace(head.closed(by_operator=True), marks=marks)
            try:
                term.publish(closed)
            except NotPublished:
                continue
            ports.reach("replay.halted")
            head = closed
        clear_earlier(ports, head)
        return head
    raise ledger_busy()


def go_back(ports: Ports, query: str, unfinished: Unfinished, judged: Head, passed: int | None = None) -> Head:
    """The same for a query that goes back in place: no start gets past its head until `begin`. ``judged``: the head by
    which it was found that the query can go back. Raises CommandError (EOS_COMMAND_OVERTAKEN), too."""

    def following(head: Head) -> Head:
        if head.marks.unfinished != unfinished:
            check_not_halted(head)
            head = _settled(ports, head, passed)
        marks = Marks(each=head.marks.each, unfinished=unfinished, topic=head.marks.topic)
        return replace(head.closed(by_operator=True), marks=marks)

    halted = publish_next(ports, query, judged, following)
    ports.reach("replay.halted")
    clear_earlier(ports, halted)
    return halted


def begin(ports: Ports, unfinished: Unfinished, offsets: Offsets | None, halted: Head) -> Head:
    """Publish the head from which the query goes on, as if it had done ``unfinished.batch`` and stopped, and give the
    group its offsets. The head of writes within foreachBatch needs no decision: they may begin anywhere. ``halted``:
    what this command has published before, by `intend` or `go_back`.

    Raises Unclear, and CommandError (EOS_COMMAND_OVERTAKEN) where that is not the newest head any more.
    """
    done = None  # of writes within foreachBatch
    if halted.marks.each is None:
        done = Decision.without_rows(unfinished.batch, offsets, halted.partitioner, unfinished.group)

    def following(head: Head) -> Head:
        return replace(
            head.closed(by_operator=True),
            decision=done,
            given_up=None if unfinished.in_place else head.given_up,
            marks=replace(head.marks, unfinished=None, topic=unfinished.topic or head.marks.topic),
        )

    given = offsets if done is not None and unfinished.group is not None else None
    begun = publish_next(ports, unfinished.of, halted, following, given)
    ports.reach("replay.begun")
    return begun


def _settled(ports: Ports, head: Head, passed: int | None) -> Head:
    last = head.decision
    if last is None:
        return head
    verdicts = verdicts_of(ports, last, passed=passed is not None and last.batch <= passed)
    unseen_of(ports, last, verdicts)
    settled = last.judged(verdicts)
    if settled.lost:
        raise rows_lost(settled)
    return replace(head, decision=settled)


def rows_lost(last: Decision) -> ReplayError:
    """The error for a query whose last decision is not repaired."""
    return ReplayError(
        "EOS_REPLAY_ROWS_LOST",
        f"Micro-batch {last.batch} of the query lost {len(last.lost)} of its {len(last.written)} transactions, and "
        "only its own replay writes their rows again.",
        hint="Start the query once more with its checkpoint, trigger(availableNow=True), so that it repairs them; "
        "then replay.",
        batch=last.batch,
    )


def check_not_halted(head: Head) -> None:
    """Raise ReplayError where the query was retired, or another replay of it is not finished."""
    successor, unfinished = head.marks.successor, head.marks.unfinished
    if successor is not None:
        raise ReplayError(
            "EOS_REPLAY_OF_RETIRED",
            f"The query was retired: {goes_on(successor)}.",
            hint="Nothing was changed. Replay that one.",
            by=successor.query,
        )
    if unfinished is not None and unfinished.drops:
        raise ReplayError(
            "EOS_REPLAY_NOT_FINISHED",
            f"'spark-eos checkpoint drop' of micro-batch {unfinished.dropped} of query {unfinished.of} has begun and "
            "is not finished.",
            hint=f"Nothing was changed. Finish that first: {finishing(unfinished)}",
        )
    if unfinished is not None:
        raise ReplayError(
            "EOS_REPLAY_NOT_FINISHED",
            f"Another replay of query {unfinished.of} to {unfinished.to} has begun and is not finished.",
            hint=f"Nothing was changed. Finish that one first: {finishing(unfinished)}",
        )


def _used(unfinished: Unfinished, head: Head) -> ReplayError:
    before = head.marks.unfinished
    if before is not None:
        check_not_halted(head)
    return ReplayError(
        "EOS_REPLAY_TARGET_USED",
        f"The ledger knows a query that began at {unfinished.to} by an earlier replay.",
        hint="Nothing was changed. Choose another place for the new checkpoint.",
    )
