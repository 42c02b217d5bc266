"""Looking back, once more, at what was committed: are its rows visible, or has somebody aborted them in a partition.

After every end, a transaction is looked at in the background; the next commit waits for the answer, and so does a
caller that waits for the end of the query. The commit's marker ends nothing in a partition in which the transaction was
aborted before, but that partition's log knows: for as long as the abort's marker is in it, Fetch names the transaction
as aborted, to readers who are past it.

Open transactions of others keep readers from a place for a while. Such places are handed on: from look to look in the
process that has committed, and from head to head in the ledger. What is found to be missing is marked in the head.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from spark_eos.errors import EosError, ProtocolStop, stop
from spark_eos.protocol.checks import ROWS_MISSING, lost_at_end, rows_missing, stop_of
from spark_eos.protocol.head import NOBODY, Decision, Head, Missing, Pair, Place, Places, Verdict
from spark_eos.protocol.ports import Found, NotPublished, Ports, Term
from spark_eos.protocol.status import Start, Status, at_end
from spark_eos.protocol.take import newest_head, taking, was_published

#: So long after the end of a transaction, its markers are in the log, unless a leader is away.
MARKERS_MS = 2_000


#: How many places may wait at a time behind open transactions of other producers.
MOST_WAITING = 100_000


@dataclass(frozen=True)
class Looked:
    """A process has looked at everything that was committed up to this decision, but for the places that were
    ``waiting`` behind open transactions of others."""

    decision: Decision | None
    waiting: Places


def places_of(decision: Decision | None) -> Places:
    """Where the transactions of a decision begin, of those that nobody has looked at: a verdict in a head is one that
    a start has given, which looks at them itself. A head that would be too long names only one place of each."""
    if decision is None:
        return {}
    own = (w for w in decision.written if w.verdict is None)
    return {(w.pair, probe): decision.batch for w in own for probe in w.begins or (w.probe,)}


def unseen_places(head: Head) -> Places:
    """All places that nobody has looked at, by the head: those of its decision, and of earlier ones."""
    return {**head.unseen, **places_of(head.decision)}


def look_back(ports: Ports, places: Places, *, wait_for_others: bool = False, within_ms: int | None = None) -> Places:
    """Look at places of committed transactions until the markers are there; return those that open transactions of
    others keep readers from, to be looked at later. ``wait_for_others``: wait for these, too.

    With ``within_ms``, that is all the time there is, and whatever has no answer by then is returned.

    Raises ProtocolStop (EOS_ROWS_MISSING) where a transaction was aborted, and Unclear where leaders do not answer or
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
        if left and until_ms is None:
            raise _unanswered(left)
    if len(left) > MOST_WAITING:
        raise _unanswered(left)
    return left


def judged_head(ports: Ports, head: Head, verdicts: Mapping[Pair, Verdict], *, wait_for_others: bool = False) -> Head:
    """The head with the verdicts on its decision, right after settling it. What was committed is looked at, for as long
    as markers take, and so are the places of earlier decisions. What others still keep readers from is left to whoever
    comes next: a transaction of the decision without a verdict, places of earlier ones as they are. With
    ``wait_for_others`` nothing is left, as nobody comes next.

    Raises ProtocolStop (EOS_ROWS_MISSING), and with ``wait_for_others`` Unclear.
    """
    last, own = head.decision, places_of(None)
    if last is not None:
        committed = tuple(w for w in last.written if verdicts.get(w.pair) is Verdict.COMMITTED)
        own = places_of(replace(last, written=committed))
    within_ms = None if wait_for_others else MARKERS_MS
    left = look_back(ports, {**head.unseen, **own}, wait_for_others=wait_for_others, within_ms=within_ms)
    waiting = {pair for pair, probe in left if (pair, probe) in own}
    seen = {pair: verdict for pair, verdict in verdicts.items() if pair not in waiting}
    unseen = {place: batch for place, batch in left.items() if place not in own}
    return replace(head, decision=None if last is None else last.judged(seen), unseen=unseen)


def look_at_last(ports: Ports, done: int | None = None, *, stopped: bool = False) -> None:
    """Look once more at the last commit of a query that has ended, as no commit follows it that would, and at what of
    earlier ones others have kept readers from. Any process may do that. ``done``: the last micro-batch that Spark has
    noted as committed in this run, None where there was none. ``stopped``: the last commit may not have come to its
    end, which its next start sees to, and the caller waits; then what has no answer within the time that markers take
    is left to that start.

    Raises EosError as `look_back` does, and LedgerError where the ledger has lost the head that names it.
    """
    head = _head_at_end(ports, done)
    if head is not None:
        within_ms = MARKERS_MS if stopped else None
        look_back(ports, unseen_places(head), wait_for_others=not stopped, within_ms=within_ms)


def _head_at_end(ports: Ports, done: int | None) -> Head | None:
    """The newest head, which has to know of the micro-batch; None for a query that has never had one. A head that does
    not know of it, or none, may come from a leader that was replaced and has not noticed. Raises LedgerError, and
    ProtocolStop where the head says that rows are missing."""
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
        raise lost_at_end()
    if found is not None:
        raise stop_of(found, head, Start(None if done is None else done + 1))
    return head


def _check_none_missing(places: Places, found: Mapping[Place, Found | None]) -> None:
    missing = [place for place in places if found.get(place) is Found.MISSING]
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
    """The rows that are missing according to an error; None for any other error."""
    if error.condition != ROWS_MISSING:
        return None
    rows = error.parameters
    return Missing(rows["transactional_id"], rows["topic"], rows["partition"], rows["offset"])


def mark_missing(term: Term, head: Head, error: ProtocolStop) -> None:
    """Note in the head that rows are missing, so that every start stops, also when the log no longer shows it. Raises
    NotPublished."""
    missing = missing_in(error)
    if missing is not None:
        own = head.succeeded_by(NOBODY, head.endtxn_version) if head.run == NOBODY else head
        term.publish(replace(own, marks=replace(own.marks, missing=missing)))


def mark_missing_of(ports: Ports, run: str, error: ProtocolStop) -> None:
    """Take the ledger and note the missing rows in the head; nothing where another run has taken over, as its start
    looks for itself. Raises EosError."""
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
    """Where what is done within raises an error of missing rows, it is noted in the head, as by `marked`."""
    try:
        yield
    except ProtocolStop as error:
        marked(ports, run, error)
        raise


def marked(ports: Ports, run: str, error: ProtocolStop) -> ProtocolStop:
    """The error, once it is noted in the head if it is one of missing rows. Where that fails, the next start finds them
    in the log."""
    if missing_in(error) is not None:
        with suppress(EosError):
            mark_missing_of(ports, run, error)
    return error
