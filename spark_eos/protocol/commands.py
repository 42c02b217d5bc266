"""Commands on the ledger of a query: abort or settle its transactions, drop a planned micro-batch, and retire the query
in favour of another one that begins where it was before.

The order of steps keeps a crash between two of them harmless. A head that no start gets past is published
first; then the checkpoint is changed, or made; and in the end a head is published from which a query goes on. Where
rows are written to the same topic again, the old query is retired before the new one may begin, so that the two can
never both go on. A command may be repeated from its beginning, at any step of an earlier one, and
then takes over.

A command may stall for any time, while another one runs to its end and the query continues. So it goes on only from the
head that it has judged, or has published last: each publication by another process, and each start of the query, has
another run or another generation.

Where a mirror takes topics over, the position at which the new query begins was read while the old one could still
decide. So the old query is retired only if that position belongs to its last decision.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from spark_eos.errors import EosError, stop
from spark_eos.kafka.partitioners import DEFAULT_PARTITIONER
from spark_eos.protocol.abort import clear_earlier, close, undecided
from spark_eos.protocol.checks import finish_command, successor_hint
from spark_eos.protocol.end import abort_broken, settle
from spark_eos.protocol.head import (
    NOBODY,
    Decision,
    ForeachBatchWrite,
    Head,
    Marks,
    Offsets,
    Pair,
    Successor,
    Unfinished,
    Verdict,
)
from spark_eos.protocol.open import verdicts_of
from spark_eos.protocol.ports import NotPublished, Ports
from spark_eos.protocol.take import newest_head, take, taking
from spark_eos.protocol.verify import head_with_verdicts


def known_head(head: Head | None, query: str) -> Head:
    """Return the head. Raises LedgerError where there is none: transactions may be decided elsewhere, and must not be
    ended."""
    if head is None:
        raise stop("EOS_QUERY_UNKNOWN.ledger", query=query)
    return head


# Heads one after the other


def publish_next(
    ports: Ports, query: str, judged: Head, following: Callable[[Head], Head], offsets: Offsets | None = None
) -> Head:
    """Publish the head that ``following`` makes of the newest one, as long as that is of the same run and generation as
    the one that was ``judged``; returns it. This fences the publisher of that one.

    Where the answer is lost, a head is published once more, of the next generation: another command may have published
    the very same head, and is overtaken by this.

    Raises CommandError (EOS_COMMAND_OVERTAKEN) where the newest head is of another run or generation, the errors of
    ``following``, LedgerError and Unclear (EOS_LEDGER_BUSY).
    """
    published: Head | None = None
    for _ in ports.retrying():
        # Taking the ledger ends its last transaction, which is the evidence of a ledger that was lost.
        term = take(ports, known_head(ports.ledger.read(), query))
        if term is None:
            continue
        head = known_head(term.read(), query)
        if head == published:
            judged = head
        check_not_overtaken(head, judged)
        published = following(head)
        try:
            term.publish(published, offsets)
        except NotPublished:
            continue
        return published
    raise stop("EOS_LEDGER_BUSY")


def check_still(ports: Ports, query: str, mine: Head) -> None:
    """Raise CommandError (EOS_COMMAND_OVERTAKEN) unless the newest head is the one that this command has published."""
    check_not_overtaken(known_head(ports.ledger.read(), query), mine)


def check_not_overtaken(head: Head, judged: Head) -> None:
    """Raise CommandError (EOS_COMMAND_OVERTAKEN) unless this is the run and the generation that was judged."""
    if (head.run, head.generation) != (judged.run, judged.generation):
        raise overtaken(f"the query's newest record is of generation {head.generation}, and was of {judged.generation}")


def closes(judged: Head, *, decided: bool = False) -> Callable[[Head], None]:
    """Return a check to pass to `close`: that the head is of the run and generation that was ``judged``; with
    ``decided``, also that this run has decided nothing since, as one that is alive does."""

    def check(head: Head) -> None:
        if (head.run, head.generation, head.decision) == (NOBODY, judged.generation + 1, judged.decision):
            return  # it is closed already, maybe by a try of which nobody knew whether it had worked
        check_not_overtaken(head, judged)
        if decided and head.decision != judged.decision:
            raise overtaken(f"run {head.run} has decided a micro-batch since then")

    return check


def overtaken(why: str) -> EosError:
    """Return the error for a command that finds that something else has gone on while it was at work."""
    return stop("EOS_COMMAND_OVERTAKEN", why=why)


# Recover: close a query, abort its undecided transactions, commit the decided ones


@dataclass(frozen=True)
class Ended:
    """Result of ending a query's transactions. ``head``: of the ledger; ``left``: transactions that could not be
    aborted; ``verdicts``: on the last decision, where it was settled."""

    head: Head
    left: frozenset[Pair] = frozenset()
    verdicts: tuple[tuple[Pair, Verdict], ...] = ()

    @property
    def is_complete(self) -> bool:
        """True where all transactions have ended, and no run has begun since."""
        return not self.left and self.head.run == NOBODY

    @property
    def decision(self) -> Decision | None:
        """The last decision with its verdicts."""
        return None if self.head.decision is None else self.head.decision.judged(dict(self.verdicts))


def abort_undecided(ports: Ports, query: str, check: Callable[[Head], None] | None = None) -> Ended:
    """Close the query and abort its open and undecided transactions. A run that is alive stops
    (EOS_CLOSED_BY_OPERATOR); its next start goes on. ``check`` raises where the query's head is not the one to close.

    Raises CommandError (EOS_QUERY_UNKNOWN) where the ledger knows nothing of the query, and Unclear
    (EOS_LEDGER_BUSY).
    """
    for _ in ports.retrying():
        _check_known(ports, query)
        closed = close(ports, check=check, by_operator=True)
        if closed is not None:
            ports.reach("recover.closed")
            return Ended(closed, frozenset(clear_earlier(ports, closed)))
    known_head(ports.ledger.read(), query)
    raise stop("EOS_LEDGER_BUSY")


def recover(
    ports: Ports, query: str, check: Callable[[Head], None] | None = None, *, and_abort_broken: bool = False
) -> Ended:
    """Take the first steps of the query's next start, without starting it. ``check`` raises where the query's head is
    not the one to close.

    1. Close the query: from here on, no run before can decide anything.
    2. Abort open transactions that are not decided.
    3. Commit the decision, and note that it is; ``and_abort_broken``: as `settle_decided` does.
    4. Abort transactions that have begun since then under an id of the decision.

    It may be interrupted anywhere, and repeated. Raises as `abort_undecided` and `settle_decided` do.
    """
    left = abort_undecided(ports, query, check).left
    ports.reach("recover.cleared")
    ended = settle_decided(ports, query, and_abort_broken=and_abort_broken)
    for _ in ports.retrying():
        head = known_head(ports.ledger.read(), query)
        if head.run != NOBODY or not undecided(ports, head):  # a run that has begun since then does that itself
            return replace(ended, head=head, left=left)
        closed = close(ports, NOBODY)
        if closed is not None:
            return replace(ended, head=closed, left=frozenset(clear_earlier(ports, closed)))
    raise stop("EOS_LEDGER_BUSY")


def _check_known(ports: Ports, query: str) -> None:
    """Raise CommandError where the ledger knows nothing of the query, before it is taken: the coordinator's state of
    the last transaction shows that a ledger was lost, and taking the ledger would remove that evidence. A ledger that
    somebody holds cannot be read, which proves nothing; where the query itself holds it, taking it ends that."""
    try:
        known_head(ports.ledger.read(), query)
    except EosError as error:
        if error.condition != "EOS_LEDGER_HELD":
            raise


def settle_decided(ports: Ports, query: str, *, and_abort_broken: bool = False) -> Ended:
    """Commit every transaction of the query's last decision; returns their verdicts. With ``and_abort_broken``,
    transactions that have lost rows in one partition are aborted as a whole before.

    No run need be closed for that: a decision is final, any process may complete it, and a run that is alive does the
    same. The ledger notes that all of it is committed. From then on, a transaction that is open under one of its
    transactional ids is no part of it, and may be aborted.

    Raises CommandError (EOS_QUERY_UNKNOWN), Unclear, and ProtocolStop where rows of a transaction are gone.
    """
    for _ in ports.retrying():
        head = known_head(newest_head(ports), query)
        decision = head.decision
        written = decision.written if decision is not None else ()
        known = {w.pair: w.verdict for w in written if w.verdict is not None}
        if and_abort_broken:
            abort_broken(ports, written)
        verdicts = known | settle(ports, written)
        judged = head_with_verdicts(ports, head, verdicts)
        ended = Ended(head, verdicts=tuple(sorted(verdicts.items(), key=lambda item: item[0].id)))
        if Verdict.LOST in verdicts.values() and known_head(ports.ledger.read(), query).decision != decision:
            continue  # the query has gone on meanwhile
        if decision is None or len(known) == len(verdicts) or Verdict.LOST in verdicts.values():
            return ended  # lost transactions are noted by the run that writes them again
        ports.reach("recover.committed")
        if _note(ports, head, judged):
            return ended
    raise stop("EOS_LEDGER_BUSY")


def _note(ports: Ports, read: Head, judged: Head) -> bool:
    """Try once to publish the verdicts, with the head as it is otherwise. True also where there is another decision by
    now, which was made on these verdicts."""
    term = take(ports, read)
    if term is None:
        return False
    head = term.read()
    if head is None or head.decision != read.decision:
        return True
    noted = head.closed(by_operator=head.closed_by_operator) if head.run == NOBODY else head
    # A publication that has changed starts of earlier decisions since has verdicts on this one.
    try:
        term.publish(replace(noted, decision=judged.decision, unverified=judged.unverified))
    except NotPublished:
        return False
    return True


# Drop: a micro-batch that is planned and not decided


def halt(
    ports: Ports, unfinished: Unfinished, judged: Head, check_files: Callable[[], None] = lambda: None
) -> tuple[Head, Collection[Pair]]:
    """Publish a head that belongs to no run and that no start gets past, then abort open and undecided transactions.
    Returns the head, and the transactions that stay open all the same. A run that is alive can decide nothing from then
    on, and stops; so does a command that has published the same mark before, and has stalled since.

    ``judged``: the head by which it was found that the micro-batch may be dropped. ``check_files`` raises where the
    checkpoint is not as it was judged; it is called when the ledger is taken.

    Raises LedgerError, Unclear, CommandError (EOS_COMMAND_OVERTAKEN), and ReplayError where the micro-batch is
    decided, or something else has halted the query.
    """

    def following(head: Head) -> Head:
        if head.marks.unfinished != unfinished:
            check_not_halted(head)
        check_undecided(head, unfinished.dropped)
        check_files()
        halted = head.closed(by_operator=True)
        return replace(halted, marks=replace(head.marks, unfinished=unfinished))

    halted = publish_next(ports, unfinished.of, judged, following)
    ports.reach("drop.halted")
    return halted, clear_earlier(ports, halted)


def resume(ports: Ports, unfinished: Unfinished, halted: Head) -> Head:
    """Publish the head without the mark: from here on, a start plans the micro-batch anew. ``halted``: the head that
    `halt` has published. Raises CommandError (EOS_COMMAND_OVERTAKEN) where it is no longer the newest, and Unclear."""

    def following(head: Head) -> Head:
        return replace(head.closed(by_operator=True), marks=replace(head.marks, unfinished=None))

    resumed = publish_next(ports, unfinished.of, halted, following)
    ports.reach("drop.resumed")
    return resumed


def check_undecided(head: Head, batch: int) -> None:
    """Raise ReplayError where the micro-batch is decided: its rows are, or will be, visible."""
    last = head.decision
    if last is not None and last.batch >= batch:
        raise stop("EOS_DROP_REFUSED.decided", batch=batch, last_batch=last.batch)


# Replay: a query that begins where another one was before


def intend(ports: Ports, unfinished: Unfinished, old: Head, write: ForeachBatchWrite | None = None) -> Head:
    """Publish the first head of the new query, which no start gets past. The prefix, the partitioner and, unless the
    new query has its own, the topics are the ``old`` query's. ``write``: within foreachBatch, the new query's. Where an
    earlier command has published the head, or this one without an answer, it is published once more, of the next
    generation, so that only this command goes on from there.

    Raises ReplayError (EOS_REPLAY_REFUSED) where the ledger knows a query there, and Unclear.
    """
    for term, head in taking(ports):
        if head is None:
            new = Head(
                NOBODY,
                1,
                (),
                ports.coordinator.endtxn_version(),
                prefix=old.prefix,
                partitioner=old.partitioner,
                write=write,
                marks=Marks(unfinished=unfinished),
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
    raise stop("EOS_LEDGER_BUSY")


def retire(
    ports: Ports, query: str, successor: Successor, passed: int | None = None, absent: Head | None = None
) -> Ended:
    """Close the old query for good, in favour of its successor. Its decision is committed first, and its undecided
    transactions are aborted after that: nobody else ever would. A run that is alive stops (EOS_QUERY_RETIRED).
    ``passed``: the last micro-batch that Spark has noted as committed, where that proves that it was. ``absent``: the
    head to assume where there is none.

    Raises CommandError (EOS_QUERY_UNKNOWN), Unclear, and ReplayError where rows of the last decision are lost, or
    another query is the successor.
    """
    if absent is None:
        _check_known(ports, query)
    for term, newest in taking(ports):
        head = known_head(newest or absent, query)
        marks = Marks(successor=successor, topic=head.marks.topic)
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
        return Ended(head, frozenset(clear_earlier(ports, head)))
    raise stop("EOS_LEDGER_BUSY")


def begin(ports: Ports, unfinished: Unfinished, offsets: Offsets | None, intended: Head) -> Head:
    """Publish the head from which the new query goes on, as if it had done ``unfinished.batch`` and stopped, and give
    the group its offsets. The head of writes within foreachBatch needs no decision: they may begin anywhere.
    ``intended``: the head that this command has published by `intend`.

    Raises Unclear, and CommandError (EOS_COMMAND_OVERTAKEN) where that is not the newest head any more.
    """
    done = None  # of writes within foreachBatch
    if intended.write is None:
        done = Decision.without_rows(unfinished.batch, offsets, intended.partitioner, unfinished.group)

    def following(head: Head) -> Head:
        marks = replace(head.marks, unfinished=None, topic=unfinished.topic)
        return replace(head.closed(by_operator=True), decision=done, marks=marks)

    given = offsets if done is not None and unfinished.group is not None else None
    begun = publish_next(ports, unfinished.of, intended, following, given)
    ports.reach("replay.begun")
    return begun


def _settled(ports: Ports, head: Head, passed: int | None) -> Head:
    """Return the head with its last decision settled and looked at, also where others keep readers from its rows: no
    later start would do it."""
    last = head.decision
    if last is None:
        return head
    verdicts = verdicts_of(ports, last, passed=passed is not None and last.batch <= passed)
    if Verdict.LOST in verdicts.values() or last.lost:
        raise rows_lost(last.judged(verdicts))
    return head_with_verdicts(ports, head, verdicts, wait_for_others=True)


def rows_lost(last: Decision) -> EosError:
    """Return the error for a query whose last decision is not repaired."""
    return stop("EOS_REPLAY_ROWS_LOST", batch=last.batch, lost=len(last.lost), transactions=len(last.written))


def check_not_halted(head: Head) -> None:
    """Raise ReplayError where the query was retired, or another replay of it is not finished."""
    successor, unfinished = head.marks.successor, head.marks.unfinished
    if successor is not None:
        raise stop("EOS_REPLAY_REFUSED.retired", by=successor.query, goes_on=successor_hint(successor))
    if unfinished is None:
        return
    command = f"A replay of query {unfinished.of} to {unfinished.to}"
    if unfinished.drops:
        command = f"'spark-eos recover --drop-planned' of micro-batch {unfinished.dropped} of query {unfinished.of}"
    raise stop("EOS_REPLAY_NOT_FINISHED", command=command, finishing=finish_command(unfinished))


def _used(unfinished: Unfinished, head: Head) -> EosError:
    before = head.marks.unfinished
    if before is not None:
        check_not_halted(head)
    return stop(
        "EOS_REPLAY_REFUSED.target_used",
        location=unfinished.to,
        why="a query of the ledger topic began there by an earlier replay",
    )


# Hand over: a mirror takes topics from another one


@dataclass(frozen=True)
class SettledState:
    """State of a query: its last ``decision`` with all verdicts, None where it has decided nothing. ``retired``: no
    start gets past its head, so that this is final, and ``successor`` is the query that goes on instead."""

    decision: Decision | None
    retired: bool = False
    successor: str = ""


def settled_state(ports: Ports) -> SettledState:
    """Settle the query's last decision, which any process may complete; returns the state of the query.

    It may decide in the next moment, unless it is retired. Raises Unclear, the errors of reading the ledger, and
    ProtocolStop (EOS_ROWS_MISSING), too, as a query that goes on from here would leave out rows that an operator has
    aborted.
    """
    head = newest_head(ports)
    if head is None:
        return SettledState(None)
    successor = head.marks.successor
    verdicts = {} if head.decision is None else settle(ports, head.decision.written)
    decision = head_with_verdicts(ports, head, verdicts).decision
    return SettledState(decision, successor is not None, "" if successor is None else successor.query)


def hand_over(ports: Ports, successor: Successor, seen: Decision | None, prefix: str) -> bool:
    """Retire the query in favour of its successor, as long as it has decided nothing since its last decision was
    ``seen``, settled. False where it has: then it goes on, unless somebody else has retired it since.

    1. Take the ledger, and read: from here on, its previous holder can decide nothing more.
    2. Verify committed transactions that could not be verified yet, as nobody else ever would.
    3. Publish the head that no start gets past; a query without a head gets its first one, with this ``prefix``.
    4. Abort open and undecided transactions: nobody else ever would.

    A run that is alive stops (EOS_QUERY_RETIRED). It may be repeated. Raises Unclear, also where somebody's open
    transaction keeps readers from rows of the query, ProtocolStop (EOS_ROWS_MISSING), and ReplayError where a replay of
    the query, or the drop of a micro-batch, is not finished.
    """
    for term, newest in taking(ports):
        head = newest or _first_head(ports, prefix)
        as_seen = is_same(head.decision, seen)
        if head.marks.successor is None:
            check_not_halted(head)
            if not as_seen:
                return False
            verdicts: dict[Pair, Verdict] = {}
            if seen is not None:  # transactions without a verdict, whose rows others hold, are looked at here
                verdicts = {w.pair: w.verdict for w in seen.written if w.verdict} | settle(ports, seen.written)
            judged = head_with_verdicts(ports, head, verdicts, wait_for_others=True)
            marks = replace(head.marks, successor=successor)
            retired = replace(judged.closed(by_operator=True), marks=marks)
            try:
                term.publish(retired)
            except NotPublished:
                continue
            ports.reach("mirror.retired")
            head = retired
        clear_earlier(ports, head)
        return as_seen
    raise stop("EOS_LEDGER_BUSY")


def is_same(decision: Decision | None, other: Decision | None) -> bool:
    """Return whether these are one decision, with whichever verdicts."""
    if decision is None or other is None:
        return decision is other
    return (decision.batch, decision.rev, decision.pairs) == (other.batch, other.rev, other.pairs)


def _first_head(ports: Ports, prefix: str) -> Head:
    """Make a head for a query that has none: it has begun no task, or its ledger is lost."""
    begun = ports.coordinator.generations(thorough=True).begun
    version = ports.coordinator.endtxn_version()
    return Head(NOBODY, begun, (), version, prefix=prefix, partitioner=DEFAULT_PARTITIONER)
