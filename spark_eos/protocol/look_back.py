"""Looks back at committed transactions: are their rows visible, or was the transaction aborted in a partition?

Each transaction is looked at in the background after its commit; the next commit waits for the result, and so does a
caller that waits for the end of the query. In a partition where the transaction was aborted before, the commit marker
has no effect. The partition's log shows this for as long as it has the abort marker: Fetch lists the transaction as
aborted, for a read position behind that marker. And Fetch by the topic's id shows whether the topic is still the one
that the rows were written to: the coordinator commits transactions by its name.

Open transactions of other producers can hold back readers before such a position. These places are looked at again
later: the process that has committed keeps them for its next look, and heads in the ledger name them. Missing rows are
marked in the head.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from spark_eos.errors import EosError, ProtocolStop, stop
from spark_eos.protocol.checks import ROWS_MISSING, rows_missing, stop_of
from spark_eos.protocol.head import NOBODY, Decision, Head, Missing, Pair, Place, Places, Verdict
from spark_eos.protocol.ports import Found, NotPublished, Ports, Term
from spark_eos.protocol.status import Start, Status, at_end
from spark_eos.protocol.take import newest_head, taking, was_published

#: The time after the end of a transaction within which its markers are in the log, unless a leader is away.
MARKERS_MS = 2_000


#: The most places that may wait behind open transactions of other producers.
MOST_WAITING = 100_000


@dataclass(frozen=True)
class Looked:
    """A process has looked at all transactions up to those of this decision, except the places that are ``waiting``
    behind open transactions of other producers."""

    decision: Decision | None
    waiting: Places


def places_of(decision: Decision | None) -> Places:
    """The first offsets, in each partition, of those transactions of a decision that nobody has looked at. One with a
    verdict was looked at by the start that gave the verdict. A head that would be too long has only one place of each
    transaction."""
    if decision is None:
        return {}
    own = (w for w in decision.written if w.verdict is None)
    return {(w.pair, probe): decision.batch for w in own for probe in w.begins or (w.probe,)}


def unseen_places(head: Head) -> Places:
    """All places that, by the head, nobody has looked at: those of its decision and of earlier decisions."""
    return {**head.unseen, **places_of(head.decision)}


def look_back(ports: Ports, places: Places, *, wait_for_others: bool = False, within_ms: int | None = None) -> Places:
    """Look at places of committed transactions until their markers are there. Returns the places that cannot be read
    yet because of open transactions of other producers; with ``wait_for_others``, wait for these, too.

    ``within_ms``: give up after this time, and return all places that are not known by then. Raises ProtocolStop
    (EOS_ROWS_MISSING) where a transaction was aborted or its topic deleted, and Unclear where leaders do not answer or
    too many places wait.
    """
    left = dict(places)
    until_ms = None if within_ms is None else ports.elapsed_ms() + within_ms
    for _ in ports.retrying() if left else ():
        found = ports.data.look_each(left.keys())
        _check_none_missing(left, found)
        left = {place: batch for place, batch in left.items() if found.get(place) in (None, Found.HELD)}
        due = any(found.get(place) is None for place in left) or (wait_for_others and left)
        if not due or (until_ms is not None and ports.elapsed_ms() >= until_ms):
            break
    else:
        if left:
            raise _unanswered(left)
    if len(left) > MOST_WAITING:
        raise _unanswered(left)
    return left


def judged_head(ports: Ports, head: Head, verdicts: Mapping[Pair, Verdict], *, wait_for_others: bool = False) -> Head:
    """The head with the verdicts on its decision, right after the decision was settled.

    Committed transactions are looked at for `MARKERS_MS`, and so are the places of earlier decisions. Places that
    cannot be read by then are left to the next start or commit: a transaction of the decision gets no verdict, and
    places of earlier decisions stay in the head. ``wait_for_others``: wait until none is left, as no start or commit
    follows. Raises ProtocolStop (EOS_ROWS_MISSING), and with ``wait_for_others`` Unclear.
    """
    last, own = head.decision, places_of(None)
    if last is not None:
        committed = tuple(w for w in last.written if verdicts.get(w.pair) is Verdict.COMMITTED)
        own = places_of(replace(last, written=committed))
    within_ms = None if wait_for_others else MARKERS_MS
    left = look_back(ports, {**head.unseen, **own}, wait_for_others=wait_for_others, within_ms=within_ms)
    waiting = {pair for pair, _ in left}
    seen = {pair: verdict for pair, verdict in verdicts.items() if pair not in waiting}
    unseen = {place: batch for place, batch in left.items() if place not in own}
    return replace(head, decision=None if last is None else last.judged(seen), unseen=unseen)


def look_at_last(ports: Ports, done: int | None = None, *, stopped: bool = False) -> None:
    """Look back at the last commit of a query that has ended, as no later commit does, and at the places that are left
    of earlier ones. Any process may do this.

    ``done``: the last micro-batch in Spark's commit log in this run, None without one. ``stopped``: the query was
    stopped, so that its last commit may be unfinished, and a caller waits: places that are not known after
    `MARKERS_MS` are left to the next start. Raises the errors of `look_back`, and LedgerError where the ledger has lost
    the head of the last commit.
    """
    head = _head_at_end(ports, done)
    if head is not None:
        within_ms = MARKERS_MS if stopped else None
        look_back(ports, unseen_places(head), wait_for_others=not stopped, within_ms=within_ms)


def _head_at_end(ports: Ports, done: int | None) -> Head | None:
    """The newest head, which has to have the micro-batch ``done``; None for a query that never had a head. A replaced
    leader that has not noticed may return an older head, or none, so that the ledger is read again. Raises LedgerError,
    and ProtocolStop where the head has a mark of missing rows."""
    head = found = None
    is_lost = False
    for _ in ports.retrying():
        head = newest_head(ports)
        found = at_end(head, done)
        # A run that had nothing to do knows of no commit; the one before it may not have looked at its last one.
        is_lost = head is None and found is None and was_published(ports)
        if found is Status.ROWS_MISSING or (found is None and not is_lost):
            break
    if is_lost:
        raise stop("EOS_LEDGER_HEAD_LOST.end")
    if found is not None:
        raise stop_of(found, head, Start(None if done is None else done + 1))
    return head


def _check_none_missing(places: Places, found: Mapping[Place, Found | None]) -> None:
    missing = [place for place in places if found.get(place) in (Found.MISSING, Found.DELETED)]
    if missing:
        pair, probe = missing[0]
        lost = Missing(pair.id, probe.topic, probe.partition, probe.offset)
        raise rows_missing(lost, batch=places[missing[0]], more=len(missing) - 1)


def _unanswered(places: Places) -> EosError:
    (pair, probe), batch = next(iter(places.items()))
    return stop(
        "EOS_OUTCOME_UNCLEAR.rows",
        transactional_id=pair.id,
        batch=batch,
        offset=probe.offset,
        topic=probe.topic,
        partition=probe.partition,
        and_more=_and_more(len(places) - 1),
    )


def _and_more(count: int) -> str:
    return f" (and {count} more)" if count else ""


def missing_in(error: EosError) -> Missing | None:
    """The missing rows that an error reports; None for any other error."""
    if error.condition != ROWS_MISSING:
        return None
    rows = error.parameters
    return Missing(rows["transactional_id"], rows["topic"], rows["partition"], rows["offset"])


def mark_missing(term: Term, head: Head, error: ProtocolStop) -> None:
    """Mark missing rows in the head, so that every start stops, even when the log no longer shows what is missing.
    Raises NotPublished."""
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
    """If the block raises an error of missing rows, mark them in the head, as by `marked`."""
    try:
        yield
    except ProtocolStop as error:
        marked(ports, run, error)
        raise


def marked(ports: Ports, run: str, error: ProtocolStop) -> ProtocolStop:
    """Mark missing rows that an error reports in the head, and return the error. If marking fails, the next start finds
    them in the log."""
    if missing_in(error) is not None:
        with suppress(EosError):
            mark_missing_of(ports, run, error)
    return error
