"""Opens a run of a query: it becomes the one that may decide, settles the last decision, and clears leftovers."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace

from spark_eos.errors import EosError, ProtocolStop, Unclear, stop
from spark_eos.kafka.partitioners import DEFAULT_PARTITIONER
from spark_eos.protocol.abort import clear_earlier, clear_listed, close, undecided
from spark_eos.protocol.checks import stop_of
from spark_eos.protocol.end import settle
from spark_eos.protocol.head import BatchWrite, Decision, ForeachBatchWrite, Head, Pair, Verdict, Write
from spark_eos.protocol.ports import NotPublished, Ports, Term
from spark_eos.protocol.status import Start, Status, at_batch, status
from spark_eos.protocol.take import agrees, is_newest, was_published
from spark_eos.protocol.verify import head_with_verdicts, mark_missing


@dataclass(frozen=True)
class NewRun:
    """Run of a query that is to open. ``batch``: the micro-batch that it writes first.

    A ledger that does not know the query begins with micro-batch 0, or with ``begin_at``. ``driver`` names the Spark
    application of the run, for an abort that knows no more than its own. ``prefix`` is that of the transactional ids; a
    query keeps it for good. ``partitioner`` is for a query that begins here. ``two_phase``: the run begins transactions
    that never expire. ``write``: the write, where it is no streaming query. A batch write keeps the topic that was
    decided. A write within foreachBatch may begin with any micro-batch, and Spark may have passed one that was not
    written. ``topic``: where all rows go, if an option says so.
    """

    id: str
    batch: int
    begin_at: int | None = None
    driver: str = ""
    prefix: str = ""
    partitioner: str = DEFAULT_PARTITIONER
    two_phase: bool = False
    write: Write | None = None
    topic: str | None = None

    @property
    def in_foreach_batch(self) -> bool:
        return isinstance(self.write, ForeachBatchWrite)


def open_run(ports: Ports, run: NewRun) -> Head:
    """Publish the run as the owner of the query, before it writes its micro-batch; returns its head.

    Open transactions that are not decided may hide the outcome of the last decision in the log, with two-phase commit
    for ever. Then the query is closed, these are aborted, and all is tried once more.

    1. Read the head; a head that names the run ends it, one that has replaced the run stops it.
    2. Ask the coordinator whether the ledger's id has committed a newer head than this. Take the ledger and read again:
       from here on, nobody else has decided anything. Check with the coordinators whether their transactions show a
       newer head.
    3. Settle the last decision.
    4. Publish the run. From here on, no run before it can decide anything.
    5. Abort open and undecided transactions of earlier generations. That is safe however long it takes: later runs
       decide on later generations.

    Raises Superseded, LedgerError (also where a query that has run before has no head), Unclear, and by `stop_of`.
    """
    try:
        return _open(ports, run)
    except Unclear as unclear:
        if unclear.condition != "EOS_OUTCOME_UNCLEAR" or not _cleared(ports, run):
            raise
    return _open(ports, run)


def _open(ports: Ports, run: NewRun) -> Head:
    ports.ledger.check_topic()
    for _ in ports.retrying():
        head = _checked(ports, ports.ledger.read(), run)
        if head is not None and head.run == run.id:
            return head
        seems_new = head is None and run.batch != run.begin_at
        if seems_new and was_published(ports):
            head = _checked(ports, ports.ledger.read(), run)
            if head is None:
                raise _lost(run)
        if not agrees(ports, head, ports.coordinator.of_ledger()):
            continue
        term = ports.ledger.take()
        head = _checked(ports, term.read(), run)
        # Taking the ledger ends the evidence of its own id. Between the look and this, there may have been a decision,
        # in a ledger that is lost by now; unless somebody else has taken it since, and begun.
        if seems_new and was_published(ports) and _checked(ports, ports.ledger.read(), run) is None:
            raise _lost(run)
        if head is not None and head.run == run.id:
            return head
        if head is not None and not is_newest(ports, head):
            continue
        ports.reach("open.taken")
        new = _next_head_or_mark(ports, term, head, run)
        ports.reach("open.settled")
        try:
            term.publish(new)
        except NotPublished:
            continue
        ports.reach("open.published")
        clear_earlier(ports, new)
        ports.reach("open.cleaned")
        return new
    raise stop("EOS_LEDGER_BUSY")


def _next_head_or_mark(ports: Ports, term: Term, head: Head | None, run: NewRun) -> Head:
    """Return the head to publish. Where rows of the last decision are missing, mark them in its own head and raise."""
    try:
        return _next_head(ports, head, run)
    except ProtocolStop as error:
        with suppress(NotPublished):
            if head is not None:
                mark_missing(term, head, error)
        raise


def _lost(run: NewRun) -> EosError:
    if run.write is not None:
        return stop("EOS_LEDGER_HEAD_LOST.write")
    risk = f"micro-batch {run.batch}, at which its checkpoint is, may be decided"
    return stop("EOS_LEDGER_HEAD_LOST.query", batch=run.batch, risk=risk)


def _cleared(ports: Ports, run: NewRun) -> bool:
    """Abort open and undecided transactions of runs before this one; False where there were none. Until a run opens the
    query again, it is closed, so that none of them can be decided."""
    for _ in ports.retrying():
        head = ports.ledger.read()
        if head is None:
            return False
        if head.run == run.id:
            return True  # by another task of this run
        listed = undecided(ports, head)
        if not listed:
            return False
        closed = close(ports, head.run)
        if closed is not None:
            clear_listed(ports, closed, listed)
            return True
    return False


def _write_of(run: NewRun, before: Head) -> Write | None:
    """Return the write. Decided rows of a batch write went to the topic of its earlier run."""
    if isinstance(run.write, BatchWrite) and isinstance(before.write, BatchWrite) and before.decision is not None:
        return before.write
    return run.write or before.write


def _checked(ports: Ports, head: Head | None, run: NewRun) -> Head | None:
    """Return the head; raise where a start with it stops. Where the checkpoint is behind, settle the last decision
    before."""
    start = Start(run.batch, run.id, run.prefix, run.topic, run.begin_at, run.in_foreach_batch)
    judged = status(head, start)
    if judged is Status.CHECKPOINT_BEHIND and head is not None and head.decision is not None:
        head = replace(head, decision=_settled(ports, head.decision))
    # Whether rows are lost is judged by `_next_head`, once the last decision is settled.
    if judged.stops and judged is not Status.CHECKPOINT_AHEAD:
        raise stop_of(judged, head, start)
    return head


def _settled(ports: Ports, last: Decision) -> Decision:
    """Settle the decision. This start stops, and a new checkpoint that goes on from it would not settle it: its
    transactions are ended now or never. A decision is final, so that no ledger need be taken."""
    return last.judged(settle(ports, last.written))


def _next_head(ports: Ports, head: Head | None, run: NewRun) -> Head:
    """Return the head to publish, with the last decision settled."""
    version = ports.coordinator.endtxn_version()
    if head is None:
        # Where a ledger was lost, transactions that were begun before have generations of earlier runs, as ever.
        begins = run.batch == run.begin_at
        before = ports.coordinator.generations(thorough=True).begun if begins else 0
        new = Head(run.id, 1 + before, (), version, driver=run.driver, partitioner=run.partitioner)
        if begins and run.batch:
            new = replace(new, decision=Decision.without_rows(run.batch - 1, None, run.partitioner))
    else:
        new = head.succeeded_by(run.id, version, run.driver)
    new = replace(new, write=_write_of(run, new), opened_ms=ports.now_ms())
    new = replace(new, prefix=run.prefix, two_phase=run.two_phase or new.two_phase)
    new = new if run.topic is None else new.with_topics([run.topic])
    last = new.decision
    if last is None:
        return new
    behind = last.batch < run.batch
    verdicts = verdicts_of(ports, last, passed=behind and not run.in_foreach_batch)
    new = head_with_verdicts(ports, new, verdicts)
    if at_batch(new, run.batch) is Status.CHECKPOINT_AHEAD:
        raise stop_of(Status.CHECKPOINT_AHEAD, new, Start(run.batch, in_foreach_batch=run.in_foreach_batch))
    return new


def verdicts_of(ports: Ports, last: Decision, *, passed: bool) -> dict[Pair, Verdict]:
    """Settle the last decision. Once Spark has ``passed`` it, its commit has returned, which it does on verdicts only:
    then it was committed, even when the evidence is gone."""
    try:
        return settle(ports, last.written, valid_until_ms=math.inf if passed else -math.inf)
    except Unclear:
        if not passed:
            raise
        return {w.pair: Verdict.COMMITTED for w in last.waiting}
