"""Commit of a micro-batch, by the driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from spark_eos.errors import EosError, Unclear, stop
from spark_eos.protocol.abort import abort_all
from spark_eos.protocol.age import BeginTimes, check_expiry, earliest_begin_ms, find_broken, valid_for_ms
from spark_eos.protocol.checks import (
    check_missing,
    check_none_lost,
    check_written,
    checkpoint_ahead,
    checkpoint_behind,
    left_behind,
    superseded,
)
from spark_eos.protocol.end import settle
from spark_eos.protocol.extra import FeatureRecords, next_extra
from spark_eos.protocol.head import Decision, Digest, Head, Offsets, Pair, TransactionStarts, Verdict
from spark_eos.protocol.ports import Description, NotPublished, Ports, State, Term
from spark_eos.protocol.replay import (
    check_versions,
    compare,
    listed,
    needs_same_tasks,
    repairs,
    tasks_with_lost_rows,
)
from spark_eos.protocol.take import take, taking
from spark_eos.protocol.task import MicroBatch, TaskReport
from spark_eos.protocol.verify import Verified, marking, unverified_starts, verify_visible


@dataclass(frozen=True)
class CommitReport:
    """Result of a commit. Times are milliseconds: to take the ledger and check, to decide, to end. ``leftovers``:
    transactions that attempts had left open besides; ``still_open``: leftovers that could not be aborted. ``rows``: as
    decided. ``decision``: the committed one, which is still to be verified (`spark_eos.protocol.verify`);
    ``unverified``: starts of earlier decisions, as in the head."""

    transactions: int
    replayed: bool
    verify_ms: float = 0.0
    decide_ms: float = 0.0
    end_ms: float = 0.0
    still_open: int = 0
    leftovers: int = 0
    rows: int = 0
    decision: Decision | None = None
    unverified: TransactionStarts = field(default_factory=dict)


def take_ahead(ports: Ports, run: str) -> Term | None:
    """Take the ledger for the run's next commit, before that begins; None when the run was replaced. Raises as `take`
    does."""
    head = ports.ledger.read()
    if head is None or head.run != run:
        return None
    ports.reach("ahead.read")
    term = take(ports, head)
    ports.reach("ahead.taken")
    return term


@dataclass(frozen=True)
class _Taken:
    """The term of a ledger that was taken, and its head; ``ongoing`` waits for the list of open transactions.
    ``is_ahead``: it was taken before this commit began. That is enough to publish, but not to abort anything: somebody
    may have taken the ledger since, and be deciding just now."""

    term: Term
    head: Head
    ongoing: Callable[[], Collection[Description]]
    is_ahead: bool = False


@dataclass(frozen=True)
class _Prepared:
    """A decision that may be published, with the results of its checks; if it is not known whether it was published,
    the commit goes on with these. ``leftovers``: transactions that are open and not decided. ``valid_until_ms``: by
    ``elapsed_ms()``, its transactions count as whole until then. ``unverified``: starts of earlier decisions that are
    not verified yet."""

    decision: Decision
    leftovers: frozenset[Pair]
    valid_until_ms: float
    unverified: TransactionStarts
    verify_ms: float


def commit(
    ports: Ports, batch: MicroBatch, ahead: Term | None = None, verified: Verified | None = None
) -> CommitReport:
    """Make a micro-batch durable, by one decision. Every step is safe to repeat. ``ahead``: the term, where the ledger
    was taken ahead. ``verified``: the decision that this process has committed and verified; a last decision that is
    another one is verified before it is replaced in the ledger.

    1. Read the head, take the ledger, read again; meanwhile the open transactions are listed. Where the ledger was
       taken ahead, one read is enough: a later taker fences our publication, and an earlier holder can publish no more.
    2. A batch that is decided already is compared. Its transactions without a verdict are settled, and lost ones are
       replaced by their repair. A group that is set only now gets its offsets.
    3. Check that the brokers still hold the tasks' transactions; others that are open are leftovers.
    4. Decide: publish the new head, with the consumer offsets, the extra, and the starts of earlier decisions that
       are not verified yet.
    5. Commit every transaction. One that was lost all the same stops the query: its replay repairs it.
    6. Abort the leftovers.

    Raises EosError. After a ProtocolStop this call has decided nothing, unless it is TransactionLost, Unclear,
    EOS_DECISION_BROKEN, or EOS_ROWS_MISSING, which is then marked in the head. After other errors, such as of brokers
    that do not answer, it may have decided.
    """
    prepared: _Prepared | None = None
    clock = _Clock()
    ports.reach("commit.entered")
    with marking(ports, batch.run):
        for _ in ports.retrying():
            # 1. Take the ledger
            taken, ahead = _take(ports, batch, ahead), None
            ports.reach("commit.taken")
            # Otherwise a publication whose outcome was unknown has landed: the head has the decision that was prepared.
            if prepared is None or taken.head.decision != prepared.decision:
                try:
                    # 2. Compare with the last decision
                    decision = _next_decision(ports, batch, taken.head, taken.term)
                    if decision == taken.head.decision:
                        unverified = taken.head.unverified
                        _complete_decided(ports, decision)
                        return CommitReport(
                            0, True, clock.lap(), rows=decision.rows, decision=decision, unverified=unverified
                        )
                    # 3. Check the tasks' transactions
                    prepared = _prepare(ports, batch, taken, decision, verified, clock)
                    if prepared is None:
                        continue
                    # 4. Decide
                    _publish(batch, taken, decision, prepared.unverified)
                except NotPublished:
                    continue
            decide_ms = clock.lap()
            ports.reach("commit.decided")
            # 5. Commit every transaction
            verdicts = settle(ports, prepared.decision.written, valid_until_ms=prepared.valid_until_ms)
            check_none_lost(prepared.decision, verdicts)
            ports.reach("commit.ended")
            # 6. Abort the leftovers
            still_open = abort_all(ports, prepared.leftovers)
            ports.reach("commit.cleaned")
            return CommitReport(
                transactions=len(batch.written),
                replayed=batch.replayed,
                verify_ms=prepared.verify_ms,
                decide_ms=decide_ms,
                end_ms=clock.lap(),
                still_open=len(still_open),
                leftovers=len(prepared.leftovers),
                rows=prepared.decision.rows,
                decision=prepared.decision,
                unverified=prepared.unverified,
            )
        raise _unclear(batch)


def _unclear(batch: MicroBatch) -> EosError:
    return stop("EOS_DECISION_UNCLEAR", batch=batch.id, why="the ledger topic could not be written and read back")


class _Clock:
    """Milliseconds from one lap to the next."""

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def lap(self) -> float:
        now = time.perf_counter()
        lap, self._last = (now - self._last) * 1000, now
        return lap


def _take(ports: Ports, batch: MicroBatch, ahead: Term | None) -> _Taken:
    """Take step 1. A run that was replaced aborts its transactions and stops, without taking. The term that was taken
    ahead serves for a batch that is new; otherwise, which is rare, the ledger is taken anew."""
    # With two-phase commit, no timeout would end a transaction of an attempt that has not written anything yet.
    ongoing = ports.coordinator.begin_ongoing(empty=batch.two_phase)
    if ahead is not None:
        head = _own_head(ports, batch, ahead.read())
        if head.decision is None or head.decision.batch < batch.id:
            return _Taken(ahead, head, ongoing, is_ahead=True)
    for _ in ports.retrying():
        term = take(ports, _own_head(ports, batch, ports.ledger.read()))
        if term is not None:
            return _Taken(term, _own_head(ports, batch, term.read()), ongoing)
    raise _unclear(batch)


def _own_head(ports: Ports, batch: MicroBatch, head: Head | None) -> Head:
    """Return the head, if this run may decide. Raises LedgerError, Superseded, and ProtocolStop where rows are
    missing."""
    if head is None:
        raise stop("EOS_LEDGER_HEAD_MISSING", batch=batch.id)
    if head.run == batch.run:
        check_missing(head)
        return head
    if head.decision is None or head.decision.batch <= batch.id:
        decided = head.decision.pairs if head.decision else frozenset()
        abort_all(ports, batch.pairs - decided)
    raise superseded(batch.run, head)


def _next_decision(ports: Ports, batch: MicroBatch, head: Head, term: Term) -> Decision:
    """Take step 2, and return the decision to publish: the head's own when the batch was decided before, and nothing
    of that is to be changed. Raises ProtocolStop, NotPublished."""
    check_written(head, batch.id)
    last = head.decision
    if last is None or last.batch < batch.id:
        if last is not None:
            _check_passed(ports, batch, last, in_foreach_batch=head.in_foreach_batch)
        return _new_decision(batch, head)
    if last.batch > batch.id:
        raise checkpoint_behind(last, batch.id)
    check_versions(batch, batch.digests | {last.digest_by})
    compare(batch, last)
    decision = _next_revision(ports, batch, head, term) if last.lost else last
    if _offsets_to_give(batch, last) is not None:
        decision = replace(decision, offsets=batch.offsets, group=batch.group)
    return decision


def _complete_decided(ports: Ports, decision: Decision) -> None:
    """Commit decided transactions without a verdict: the run itself may have decided them, in a write within
    foreachBatch that failed after that, and is repeated while the run goes on. Raises as `settle` does, and
    TransactionLost."""
    check_none_lost(decision, settle(ports, decision.written))


def _check_passed(ports: Ports, batch: MicroBatch, last: Decision, *, in_foreach_batch: bool) -> None:
    """Raise ProtocolStop where an earlier micro-batch lost rows and was not repaired. Spark may pass a write within
    foreachBatch before it was settled."""
    if in_foreach_batch:
        last = last.judged(settle(ports, last.written))
    if last.lost:
        raise left_behind(batch.id, last) if in_foreach_batch else checkpoint_ahead(batch.id, last)


def _offsets_to_give(batch: MicroBatch, last: Decision | None) -> Offsets | None:
    """Return the offsets to commit with the head; None where the group has them already."""
    given = last is not None and last.batch == batch.id and last.group == batch.group
    return None if given else batch.offsets


def _records_to_write(batch: MicroBatch, last: Decision | None) -> FeatureRecords | None:
    """Return the feature's records to publish with the head; None for a replay, whose decision came with them."""
    return None if batch.kind is None or (last is not None and last.batch == batch.id) else batch.kind.records


def _new_decision(batch: MicroBatch, head: Head) -> Decision:
    """Make the decision on a micro-batch that is new."""
    check_versions(batch, batch.digests)
    return Decision(
        batch.id,
        0,
        len(batch.reports),
        batch.rows,
        batch.digest,
        batch.offsets,
        batch.written,
        digest_by=next(iter(batch.digests), Digest.ROWS),
        partitioner=batch.partitioner or head.partitioner,
        group=batch.group,
        two_phase=batch.two_phase,
        extra=next_extra(batch.kind, head.decision, batch.id, batch.reports),
    )


def _next_revision(ports: Ports, batch: MicroBatch, head: Head, term: Term) -> Decision:
    """Make the decision's next revision: lost transactions replaced by the replay's.

    Where the replay dealt its rows to tasks in another way, the ledger notes which tasks have the lost rows: they write
    in the next replay. Raises NotPublished.
    """
    last = head.decision
    assert last is not None
    if repairs(last, batch.written):
        kept = [w for w in last.written if w.verdict is not Verdict.LOST]
        written = tuple(sorted([*kept, *batch.written], key=lambda w: w.partition))
        repaired = replace(last, rev=last.rev + 1, tasks=len(batch.reports), written=written, rewrite=None)
        # As the option is now: the cluster may have withdrawn two-phase commit since.
        return replace(repaired, two_phase=batch.two_phase)
    abort_all(ports, batch.pairs)
    if batch.kind is not None and batch.kind.is_read:
        raise batch.kind.not_repaired(last, batch.rows)
    rewrite = tasks_with_lost_rows(last, batch.reports)
    if rewrite is None:
        raise needs_same_tasks(batch, last)
    term.publish(replace(head, decision=replace(last, rewrite=rewrite)))
    raise stop("EOS_REPAIR_BY_OTHER_TASKS", batch=batch.id, partitions=listed(rewrite))


def _prepare(
    ports: Ports, batch: MicroBatch, taken: _Taken, decision: Decision, verified: Verified | None, clock: _Clock
) -> _Prepared | None:
    """Take step 3. None where something is wrong and the ledger was taken ahead: it is taken anew, and judged by that.
    Otherwise the error is raised, and the tasks' transactions are aborted, unless the brokers do not know their
    outcome.

    The decision that is about to be replaced is verified before, if this process has not done that since its commit.
    """
    last, unverified = taken.head.decision, taken.head.unverified
    if last is not None and last.batch != decision.batch:
        if verified is not None and verified.decision == last:
            unverified = verified.blocked
        else:
            unverified = verify_visible(ports, unverified_starts(taken.head))
    asked_ms, now_ms = ports.elapsed_ms(), ports.now_ms()
    open_ones = {d.pair: d for d in taken.ongoing()}
    starts = _check_transactions(ports, batch, open_ones)
    if isinstance(starts, EosError):
        if taken.is_ahead:
            return None
        if not isinstance(starts, Unclear):
            abort_all(ports, batch.pairs)
        raise starts
    ports.reach("commit.verified")
    valid_until_ms = asked_ms + valid_for_ms(batch, starts, now_ms)
    return _Prepared(decision, frozenset(open_ones) - decision.pairs, valid_until_ms, unverified, clock.lap())


def _check_transactions(
    ports: Ports, batch: MicroBatch, open_ones: Mapping[Pair, Description]
) -> BeginTimes | EosError:
    """Return when each transaction of the tasks began; or the error, where brokers do not hold one, or not for long
    enough any more.

    An optimisation that spares repairs, as a transaction may still expire after it: safety rests on the verdicts. It is
    enough that ``open_ones`` were listed when all tasks had ended.
    """
    # A coordinator that is being moved lists nothing; a request that names an id waits for it.
    missing = [pair.id for pair in batch.pairs if pair not in open_ones]
    named = ports.coordinator.describe(missing) if missing else {}
    starts: dict[Pair, int] = {}
    committed = [pair.id for pair in batch.pairs if _is_committed(named.get(pair.id), pair)]
    if committed:
        why = f"its transaction {min(committed)} is committed, and the ledger topic does not have the decision"
        return stop("EOS_DECISION_UNCLEAR", transactional_id=min(committed), batch=batch.id, why=why)
    for report in batch.reports:
        if report.written is not None:
            pair = report.written.pair
            described = open_ones.get(pair) or named.get(pair.id)
            problem = _problem(ports, batch, report, pair, described)
            if problem is not None:
                return problem
            assert described is not None
            starts[pair] = earliest_begin_ms(ports.now_ms(), report.began_ms, described.started_ms)
    return find_broken(ports, batch, starts) or starts


def _is_committed(described: Description | None, pair: Pair) -> bool:
    """Return whether a decision has committed this transaction, or a later one of its id. An end may take the next
    epoch, and after the last epoch the first one of another producer id."""
    return (
        described is not None
        and described.state.commits
        and (described.pair.producer_id != pair.producer_id or described.pair.epoch >= pair.epoch)
    )


def _problem(
    ports: Ports, batch: MicroBatch, report: TaskReport, pair: Pair, described: Description | None
) -> EosError | None:
    if described is None or described.state is not State.ONGOING or described.pair != pair:
        state = (
            "forgotten"
            if described is None
            else f"{described.state.value} (epoch {described.pair.epoch}, not {pair.epoch})"
        )
        return stop(
            "EOS_TRANSACTION_EXPIRED",
            timeout_ms=report.timeout_ms,
            transactional_id=pair.id,
            partition=report.partition,
            state=state,
        )
    if not described.expires:
        return None
    passed_ms = None if batch.planned_ms is None else ports.elapsed_ms() - batch.planned_ms
    return check_expiry(ports.now_ms(), passed_ms, report, pair, described)


def _publish(batch: MicroBatch, taken: _Taken, decision: Decision, unverified: TransactionStarts) -> None:
    """Take step 4: from here on, no transaction of the decision is ever aborted. Raises NotPublished."""
    last = taken.head.decision
    head = replace(taken.head.with_topics(batch.topics), decision=decision, unverified=unverified)
    taken.term.publish(head, _offsets_to_give(batch, last), _records_to_write(batch, last))


# Batch writes


def complete(ports: Ports, run: str) -> None:
    """Publish that all of the job is committed: its decision without transactions, with rows and digest alone.

    The brokers forget a transactional id after a week, and retention takes the rows; by this head, a later run of the
    same job knows that there is nothing to settle. Called when the run's commit has returned, which it does on verdicts
    only, and is verified. Where another run has taken over meanwhile, that one has settled the decision, and completes
    the job.

    Raises Unclear (EOS_LEDGER_BUSY); the rows are visible then.
    """
    for term, head in taking(ports):
        if head is None or head.run != run or head.decision is None or not head.decision.written:
            return
        try:
            term.publish(replace(head, decision=replace(head.decision, written=()), unverified={}))
        except NotPublished:
            continue
        ports.reach("commit.completed")
        return
    raise stop("EOS_LEDGER_BUSY")
