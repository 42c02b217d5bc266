"""Verifies that the rows of committed transactions are visible: a transaction may have been aborted in a partition.

Each transaction is verified in the background after its commit; the next commit waits for the result, and so does a
caller that waits for the end of the query. In a partition where the transaction was aborted before, the commit marker
has no effect. The partition's log shows this for as long as it has the abort marker: Fetch lists the transaction as
aborted, for a read position behind that marker. And Fetch by the topic's id shows whether the topic is still the one
that the rows were written to: the coordinator commits transactions by its name.

Open transactions of other producers can hold readers back before the position where a transaction begins. Such starts
are verified later: the process that has committed keeps them for its next commit, and heads in the ledger name them.
Missing rows are marked in the head.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from spark_eos.errors import EosError, ProtocolStop, stop
from spark_eos.protocol.checks import ROWS_MISSING, rows_missing, stop_of
from spark_eos.protocol.head import NOBODY, Decision, Head, Missing, Pair, TransactionStart, TransactionStarts, Verdict
from spark_eos.protocol.ports import NotPublished, Ports, Term, Visibility
from spark_eos.protocol.status import Start, Status, at_end
from spark_eos.protocol.take import newest_head, taking, was_published

#: The time after the end of a transaction within which its markers are in the log, unless a leader is away.
MARKERS_MS = 2_000


#: How many starts of transactions may be blocked by open transactions of other producers.
MOST_BLOCKED = 100_000


@dataclass(frozen=True)
class Verified:
    """All transactions up to this decision's are verified to be visible, except the ``blocked`` starts, which are
    behind open transactions of other producers."""

    decision: Decision | None
    blocked: TransactionStarts


def starts_of(decision: Decision | None) -> TransactionStarts:
    """Return where the transactions of a decision begin that are not verified yet, in each partition. One with a
    verdict was verified by the start that gave the verdict. A head that would be too long has only one start of each
    transaction."""
    if decision is None:
        return {}
    return {(w.pair, probe): decision.batch for w in decision.waiting for probe in w.begins or (w.probe,)}


def unverified_starts(head: Head) -> TransactionStarts:
    """Return every start that, by the head, is not verified: of its decision and of earlier ones."""
    return {**head.unverified, **starts_of(head.decision)}


def verify_visible(
    ports: Ports, starts: TransactionStarts, *, wait_for_others: bool = False, within_ms: int | None = None
) -> TransactionStarts:
    """Verify that committed transactions are visible where they begin, as soon as their markers are there. Returns the
    starts that open transactions of other producers block; with ``wait_for_others``, waits for these, too.

    ``within_ms``: give up after this time, and return all starts that are not known by then. Raises ProtocolStop
    (EOS_ROWS_MISSING) where a transaction was aborted or its topic deleted, and Unclear where leaders do not answer or
    more than `MOST_BLOCKED` starts are blocked.
    """
    left = dict(starts)
    until_ms = None if within_ms is None else ports.elapsed_ms() + within_ms
    for _ in ports.retrying() if left else ():
        states = ports.data.look_each(left.keys())
        _check_none_missing(left, states)
        left = {start: batch for start, batch in left.items() if states.get(start) in (None, Visibility.BLOCKED)}
        due = any(states.get(start) is None for start in left) or (wait_for_others and left)
        if not due or (until_ms is not None and ports.elapsed_ms() >= until_ms):
            break
    else:
        if left:
            raise _unanswered(left)
    if len(left) > MOST_BLOCKED:
        raise _unanswered(left)
    return left


def head_with_verdicts(
    ports: Ports, head: Head, verdicts: Mapping[Pair, Verdict], *, wait_for_others: bool = False
) -> Head:
    """Return the head with the verdicts on its decision, right after the decision was settled.

    Committed transactions, and starts of earlier decisions, are verified for `MARKERS_MS`. Any that are still blocked
    are left to the next start or commit: a transaction of the decision gets no verdict, and starts of earlier decisions
    stay in the head. ``wait_for_others``: wait until nothing is blocked, as no start or commit follows. Raises
    ProtocolStop (EOS_ROWS_MISSING), and with ``wait_for_others`` Unclear.
    """
    last, own = head.decision, starts_of(None)
    if last is not None:
        committed = tuple(w for w in last.written if verdicts.get(w.pair) is Verdict.COMMITTED)
        own = starts_of(replace(last, written=committed))
    within_ms = None if wait_for_others else MARKERS_MS
    left = verify_visible(ports, {**head.unverified, **own}, wait_for_others=wait_for_others, within_ms=within_ms)
    blocked = {pair for pair, _ in left}
    final = {pair: verdict for pair, verdict in verdicts.items() if pair not in blocked}
    earlier = {start: batch for start, batch in left.items() if start not in own}
    return replace(head, decision=None if last is None else last.judged(final), unverified=earlier)


def verify_last(ports: Ports, done: int | None = None, *, stopped: bool = False) -> None:
    """Verify the last commit of a query that has ended, as no later commit does, and unverified starts of earlier ones.
    Any process may do this.

    ``done``: the last micro-batch in Spark's commit log in this run, None without one. ``stopped``: the query was
    stopped, so that its last commit may be unfinished, and a caller waits: starts that are not known after `MARKERS_MS`
    are left to the next start of the query. Raises the errors of `verify_visible`, and LedgerError where the ledger has
    lost the head of the last commit.
    """
    head = _head_at_end(ports, done)
    if head is not None:
        within_ms = MARKERS_MS if stopped else None
        verify_visible(ports, unverified_starts(head), wait_for_others=not stopped, within_ms=within_ms)


def _head_at_end(ports: Ports, done: int | None) -> Head | None:
    """Return the newest head, which has to have the micro-batch ``done``; None for a query that never had a head. A
    replaced leader that has not noticed may return an older head, or none, so that the ledger is read again. Raises
    LedgerError, and ProtocolStop where the head has a mark of missing rows."""
    head = wrong = None
    is_lost = False
    for _ in ports.retrying():
        head = newest_head(ports)
        wrong = at_end(head, done)
        # A run that had nothing to do knows of no commit; the one before it may not have looked at its last one.
        is_lost = head is None and wrong is None and was_published(ports)
        if wrong is Status.ROWS_MISSING or (wrong is None and not is_lost):
            break
    if is_lost:
        risk = "nobody can check whether all rows of its last commit are visible"
        raise stop("EOS_LEDGER_HEAD_LOST.query", risk=risk)
    if wrong is not None:
        raise stop_of(wrong, head, Start(None if done is None else done + 1))
    return head


def _check_none_missing(starts: TransactionStarts, states: Mapping[TransactionStart, Visibility | None]) -> None:
    missing = [start for start in starts if states.get(start) in (Visibility.ABORTED, Visibility.DELETED)]
    if missing:
        pair, probe = missing[0]
        lost = Missing(pair.id, probe.topic, probe.partition, probe.offset)
        raise rows_missing(lost, batch=starts[missing[0]], more=len(missing) - 1)


def _unanswered(starts: TransactionStarts) -> EosError:
    (pair, probe), batch = next(iter(starts.items()))
    return stop(
        "EOS_OUTCOME_UNCLEAR.rows",
        transactional_id=pair.id,
        batch=batch,
        offset=probe.offset,
        topic=probe.topic,
        partition=probe.partition,
        and_more=f" (and {len(starts) - 1} more)" if len(starts) > 1 else "",
    )


def missing_in(error: EosError) -> Missing | None:
    """Return the missing rows that an error reports; None for any other error."""
    if error.condition != ROWS_MISSING:
        return None
    rows = error.parameters
    return Missing(rows["transactional_id"], rows["topic"], rows["partition"], rows["offset"])


def mark_missing(term: Term, head: Head, error: ProtocolStop) -> None:
    """Mark missing rows in the head, so that every start stops, even when the log no longer shows the loss. Raises
    NotPublished."""
    missing = missing_in(error)
    if missing is not None:
        own = head.succeeded_by(NOBODY, head.endtxn_version) if head.run == NOBODY else head
        term.publish(replace(own, marks=replace(own.marks, missing=missing)))


def mark_missing_of(ports: Ports, run: str, error: ProtocolStop) -> None:
    """Take the ledger and mark missing rows in the head. Where another run has taken over, do nothing, as its start has
    looked back itself. Raises EosError."""
    for term, head in taking(ports):
        if head is None or head.run != run or head.marks.missing is not None:
            return
        try:
            mark_missing(term, head, error)
        except NotPublished:
            continue
        return


@contextmanager
def marking(ports: Ports, run: str) -> Iterator[None]:
    """Mark missing rows in the head, as by `with_missing_marked`, if the block raises an error of them."""
    try:
        yield
    except ProtocolStop as error:
        with_missing_marked(ports, run, error)
        raise


def with_missing_marked(ports: Ports, run: str, error: ProtocolStop) -> ProtocolStop:
    """Mark missing rows that an error reports in the head, and return the error. If marking fails, the next start finds
    them in the log."""
    if missing_in(error) is not None:
        with suppress(EosError):
            mark_missing_of(ports, run, error)
    return error
