"""What was committed is looked at once more: nobody has aborted it in one of its partitions.

EndTxn's answer 0 says that the coordinator has ended a transaction. If an operator has aborted it in one partition
before that (``kafka-transactions.sh abort``), the coordinator does not know, and the commit's marker ends nothing
there. The partition's log does know: for as long as the abort's marker is in it, Fetch names the transaction as
aborted, to readers who are past it. So this is looked up after the commit, in the background; the next commit, and
whoever waits for the end of the query, waits for the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from spark_eos.errors import EosError, ProtocolStop, Unclear
from spark_eos.protocol.head import NOBODY, Decision, Head, Pair, Verdict
from spark_eos.protocol.marks import Missing
from spark_eos.protocol.newest import taking
from spark_eos.protocol.ports import Found, NotPublished, Place, Ports, Term
from spark_eos.protocol.stops import ROWS_MISSING, check_missing, rows_missing

#: So long after the end of a transaction, its markers are in the log, unless a leader is away.
MARKERS_MS = 2_000

#: How many places may wait at a time until somebody else's transaction no longer keeps readers from them.
MOST_WAITING = 100_000

#: Places, and the micro-batch that each belongs to.
Places = Mapping[Place, int]


def places_of(decision: Decision | None) -> Places:
    """Where the transactions of a decision begin, of those that nobody has looked at: a verdict in a head is one that
    a start has given, which looks at them itself. A head that would be too long names only one place of each."""
    if decision is None:
        return {}
    own = (w for w in decision.written if w.verdict is None)
    return {(w.pair, probe): decision.batch for w in own for probe in w.begins or (w.probe,)}


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


def unseen_of(ports: Ports, last: Decision, verdicts: Mapping[Pair, Verdict]) -> frozenset[Pair]:
    """Look at what was committed of a decision, by whoever has settled it, for as long as markers take. Returns the
    transactions that could not be looked at everywhere: without a verdict in the head, the next commit looks at them.

    Raises ProtocolStop (EOS_ROWS_MISSING).
    """
    committed = tuple(w for w in last.written if w.verdict is None and verdicts.get(w.pair) is Verdict.COMMITTED)
    left = look_back(ports, places_of(replace(last, written=committed)), within_ms=MARKERS_MS)
    return frozenset(pair for pair, _ in left)


def look_at_last(ports: Ports, *, stopped: bool = False) -> None:
    """What whoever waits for the end of a query does, as no commit follows the last one: look at that once more, in
    whichever process. ``stopped``: the last commit may not have come to its end, which its next start sees to, and
    somebody waits; then what has no answer within the time that markers take is left to that start.

    Raises EosError as `look_back` does.
    """
    head = ports.ledger.read()
    if head is not None:
        check_missing(head)
        within_ms = MARKERS_MS if stopped else None
        look_back(ports, places_of(head.decision), wait_for_others=not stopped, within_ms=within_ms)


def _check_none_missing(places: Places, found: Mapping[Place, Found | None]) -> None:
    missing = [place for place in places if found.get(place) is Found.MISSING]
    if missing:
        pair, probe = missing[0]
        lost = Missing(pair.id, probe.topic, probe.partition, probe.offset)
        raise rows_missing(lost, batch=places[missing[0]], more=len(missing) - 1)


def _unanswered(places: Places) -> Unclear:
    (pair, probe), batch = next(iter(places.items()))
    return Unclear(
        "EOS_OUTCOME_UNCLEAR",
        f"Micro-batch {batch} is committed, but nobody has said whether its rows from offset {probe.offset} of "
        f"{probe.topic}-{probe.partition} on are visible{_and_more(len(places) - 1)}: a leader is away, or something "
        "else that is open there keeps readers from them.",
        hint="Start the query again, from this checkpoint, once the cluster is healthy: it looks at them again. If it "
        "stays so, kafka-transactions.sh find-hanging names what holds the partition open.",
        transactional_id=pair.id,
    )


def _and_more(count: int) -> str:
    return f" (and {count} more)" if count else ""


def missing_in(error: EosError) -> Missing | None:
    """Which rows an error says to be missing; None where it is another one."""
    if error.condition != ROWS_MISSING:
        return None
    said = error.parameters
    return Missing(said["transactional_id"], said["topic"], said["partition"], said["offset"])


def mark_missing(term: Term, head: Head, error: ProtocolStop) -> None:
    """Note in the head that rows are missing, so that every start stops, also when the log no longer tells. Raises
    NotPublished."""
    missing = missing_in(error)
    if missing is not None:
        own = head.succeeded_by(NOBODY, head.endtxn_version) if head.run == NOBODY else head
        term.publish(replace(own, marks=replace(own.marks, missing=missing)))


def mark_missing_of(ports: Ports, run: str, error: ProtocolStop) -> None:
    """The same by whoever has not taken the ledger; nothing where another run has taken over, as its start looks for
    itself. Raises EosError."""
    for term, head in taking(ports):
        if head is None or head.run != run or head.marks.missing is not None:
            return
        try:
            mark_missing(term, head, error)
        except NotPublished:
            continue
        return


def marked(ports: Ports, run: str, error: ProtocolStop) -> ProtocolStop:
    """The error, once it is noted in the head if it is one of missing rows. Where that fails, the next start finds them
    in the log."""
    if missing_in(error) is not None:
        with suppress(EosError):
            mark_missing_of(ports, run, error)
    return error
