"""``spark-eos recover``: takes the first steps of a query's next start, without Spark. It aborts undecided transactions
and commits decided ones, never the other way round.

Without ``--yes`` it only plans. Each step is done only while the ledger has the head by which it was planned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from spark_eos.base.printable import in_lines
from spark_eos.base.retry import retrying
from spark_eos.checkpoint.files import Checkpoint
from spark_eos.errors import EosError, stop
from spark_eos.ledger.owners import Cluster, Transaction, find
from spark_eos.ops.answer import Answer, ago
from spark_eos.ops.query_states import query_states
from spark_eos.ops.state import QueryState
from spark_eos.ops.status import transaction_as_json
from spark_eos.protocol.commands import Ended, abort_undecided, closes, known_head, settle_decided
from spark_eos.protocol.commands import recover as recover_query
from spark_eos.protocol.end import decided_broken, find_held
from spark_eos.protocol.head import NOBODY, Head, Verdict
from spark_eos.protocol.ports import State

#: Coordinators answer before the markers are written; a partition without a leader delays its marker.
_MARKERS_S = 15.0


class Steps(Enum):
    """The part of a recovery that is wanted."""

    ALL = "all"
    ABORT = "abort"
    SETTLE = "settle"


@dataclass(frozen=True)
class SinkPlan:
    """The recovery of one sink.

    ``head``: None where it cannot be read, as a transaction of the query itself holds the ledger; to take the ledger
    ends that. ``aborts``, ``commits``: open transactions to abort and to commit; ``unsettled``: transactions of the
    last decision that the ledger does not say are committed; ``broken``: decided transactions that are aborted instead,
    in a plan; ``stays``: transactions that stay open. When it is done, ``ended``: transactions that it has ended;
    ``lost``: decided ones that are aborted; ``left``: transactions that should have been ended and are still open.
    ``error``: why it cannot be done, or was not done to its end.
    """

    key: str
    sink: str | None
    head: Head | None
    steps: Steps
    aborts: Sequence[str] = ()
    commits: Sequence[str] = ()
    unsettled: Sequence[str] = ()
    broken: Sequence[str] = ()
    stays: Sequence[Transaction] = ()
    ended: Sequence[str] = ()
    lost: Sequence[str] = ()
    left: Sequence[str] = ()
    error: EosError | None = None

    @property
    def closes(self) -> str | None:
        """The run that the recovery closes; None if there is none, or it is not known."""
        head = self.head
        return None if head is None or self.steps is Steps.SETTLE or head.run == NOBODY else head.run

    @property
    def needed(self) -> bool:
        """True if there is something to do. With two-phase commit, a run is closed even if nothing is open:
        transactions that it begins later would never expire."""
        if self.aborts or self.commits or self.unsettled or self.broken:
            return True
        return self.steps is not Steps.SETTLE and self.head is not None and self.head.two_phase and bool(self.closes)


@dataclass(frozen=True)
class Recovery:
    """The state of a query, and its recovery, planned or ``done``."""

    state: QueryState
    sinks: Sequence[SinkPlan]
    done: bool = False

    @property
    def needed(self) -> bool:
        """True if there is something to do."""
        return any(sink.needed for sink in self.sinks)

    @property
    def complete(self) -> bool:
        """True if nothing is left that only a start of the query, or time, can do."""
        return not any(sink.broken or sink.lost or sink.left for sink in self.sinks)

    @property
    def errors(self) -> list[EosError]:
        return [sink.error for sink in self.sinks if sink.error is not None]


@dataclass(frozen=True)
class Wanted:
    """The command's options. ``even_if_running``: also for a query that seems to be running; ``abort_broken``: abort
    the whole of a decided micro-batch that has lost rows in one partition, so that the query writes all of it again."""

    steps: Steps = Steps.ALL
    yes: bool = False
    even_if_running: bool = False
    abort_broken: bool = False
    watch_s: float = field(default=3.0, kw_only=True)
    quiet_s: float = field(default=60.0, kw_only=True)


def recover(cluster: Cluster, checkpoint: Checkpoint | None, queries: Sequence[str], wanted: Wanted) -> Answer:
    """Recover the query of a checkpoint, or queries by their ids; without ``wanted.yes``, only plan it. Exit code: 0 if
    it is done, or can be; 1 if something is left that it cannot do; 2 if there is an error at one of several sinks or
    queries, with the others in the answer. Raises EosError: EOS_RECOVER_RUNNING where a query that would be closed
    seems to be running, unless ``wanted.even_if_running``."""
    if checkpoint is not None and checkpoint.query_id() is None:
        raise stop("EOS_QUERY_UNKNOWN.checkpoint", location=checkpoint.location)
    states = query_states(cluster, checkpoint, queries, watch_s=wanted.watch_s, quiet_s=wanted.quiet_s)
    for state in states:
        if not state.sinks and state.table is None and not _of_ledger(state):
            known_head(cluster.head(state.query or ""), state.query or "")
    planned = [_planned(cluster, state, wanted.steps) for state in states]
    _raise_the_only(planned)
    if wanted.yes:
        planned = _all_recovered(cluster, planned, wanted)
    else:
        planned = [replace(r, sinks=[_looked_at(cluster, sink, wanted) for sink in r.sinks]) for r in planned]
    text = "\n\n".join(as_text(recovery, wanted) for recovery in planned)
    code = 2 if any(r.errors for r in planned) else 0 if all(r.complete for r in planned) else 1
    return Answer([as_json(r) for r in planned], text, code)


def _all_recovered(cluster: Cluster, planned: Sequence[Recovery], wanted: Wanted) -> list[Recovery]:
    """Carry out the plans. After an error of one, the others are still carried out; the error of an only plan is
    raised."""

    def tried(plan: SinkPlan) -> SinkPlan:
        try:
            return recovered(cluster, plan, wanted) if plan.needed else plan
        except EosError as error:
            return replace(plan, error=error)

    for recovery in planned:
        _check_running(recovery, wanted)
    done = [replace(recovery, sinks=list(map(tried, recovery.sinks)), done=True) for recovery in planned]
    _raise_the_only(done)
    return done


def _raise_the_only(recoveries: Sequence[Recovery]) -> None:
    """Raise the error of the only sink for which there is something to do, or to tell."""
    sinks = [sink for recovery in recoveries for sink in recovery.sinks if sink.needed or sink.error is not None]
    if len(sinks) == 1 and sinks[0].error is not None:
        raise sinks[0].error


def _of_ledger(state: QueryState) -> Sequence[Transaction]:
    """Return the query's own transactions that hold the ledger, if it cannot be read."""
    return [t for t in state.open if t.of_ledger] if state.unread else []


def _planned(cluster: Cluster, state: QueryState, steps: Steps) -> Recovery:
    """Return the plan. Where a head cannot be read, it has the error of that. Raises EosError where another prefix was
    named."""
    if state.table is not None:
        return Recovery(state, [])
    held = _of_ledger(state)
    if held and steps is not Steps.SETTLE:
        stays = [t for t in state.open if not t.of_ledger]
        return Recovery(state, [SinkPlan(held[0].query, None, None, steps, [t.id for t in held], stays=stays)])
    sinks = []
    for key, name, known in [(sink.key, sink.name, sink.head) for sink in state.sinks] or [
        (state.query or "", None, None)
    ]:
        try:
            head = known or known_head(cluster.head(key), key)
        except EosError as error:  # where the ledger is held, only taking it would end that
            sinks.append(SinkPlan(key, name, None, steps, error=error))
            continue
        cluster.prefix_of(key)  # raises where another prefix was named, before anything is done
        sinks.append(_plan(key, name, head, [t for t in state.open if t.query == key], steps))
    return Recovery(state, sinks)


def _plan(key: str, sink: str | None, head: Head, open_: Sequence[Transaction], steps: Steps) -> SinkPlan:
    last = head.decision
    undecided, decided = [t for t in open_ if not t.decided], [t for t in open_ if t.decided]
    plan = SinkPlan(key, sink, head, steps)
    if steps is not Steps.SETTLE:
        plan = replace(plan, aborts=[t.id for t in undecided])
    if steps is not Steps.ABORT:
        plan = replace(
            plan,
            commits=[t.id for t in decided],
            unsettled=[] if last is None else [w.pair.id for w in last.waiting],
            lost=[] if last is None else [w.pair.id for w in last.lost],
        )
    stays = {Steps.ALL: [], Steps.ABORT: decided, Steps.SETTLE: undecided}
    return replace(plan, stays=stays[steps])


def _looked_at(cluster: Cluster, plan: SinkPlan, wanted: Wanted) -> SinkPlan:
    """Return the plan of a sink, once the leaders have said which decided transactions have lost rows: these cannot be
    committed. An actual recovery asks the leaders itself."""
    if not plan.unsettled or plan.head is None or plan.head.decision is None:
        return plan
    open_ones = [w for w in plan.head.decision.written if w.pair.id in plan.unsettled]
    try:
        _, broken = find_held(cluster.ports(plan.key), open_ones)
    except EosError as error:
        return replace(plan, error=error)
    stays = [one for one in broken if not wanted.abort_broken or one.outcome_gone or one.behind is not None]
    if stays:
        return replace(plan, error=decided_broken(stays[0]))
    ids = [one.pair.id for one in broken]
    commits, unsettled = ([id_ for id_ in some if id_ not in ids] for some in (plan.commits, plan.unsettled))
    return replace(plan, commits=commits, unsettled=unsettled, broken=ids)


def _check_running(recovery: Recovery, wanted: Wanted) -> None:
    """Raise CommandError where the query seems to be running, and this would close its run. Decided transactions may be
    committed all the same: a run that is alive does that, too."""
    state = recovery.state
    if wanted.steps is Steps.SETTLE or wanted.even_if_running or not recovery.needed or not state.liveness.running:
        return
    signs = ", ".join(state.liveness.signs) or f"its last sign of life was {ago(state.liveness.last_s)}"
    raise stop("EOS_RECOVER_RUNNING", query=state.query or "", query_id=state.query, signs=signs)


def recovered(cluster: Cluster, plan: SinkPlan, wanted: Wanted) -> SinkPlan:
    """Carry out the plan of a sink, if the ledger still has its head. Raises EosError: CommandError
    (EOS_COMMAND_OVERTAKEN) where it has another one, and Unclear."""
    done = _carried_out(cluster, plan, wanted)
    lost = [pair.id for pair, verdict in done.verdicts if verdict is Verdict.LOST]
    still = {t.id for t in _after(cluster, plan.key)}
    maybe = [] if plan.head is not None else [t.id for t in plan.stays if t.decided is None]  # they were ended, too
    planned = list(dict.fromkeys([*plan.aborts, *plan.commits, *maybe]))
    left = sorted({pair.id for pair in done.left} | {id_ for id_ in planned if id_ in still} - {*lost})
    ended = [id_ for id_ in planned if id_ not in still and id_ not in lost]
    stays = [t for t in plan.stays if t.id in still]
    return replace(plan, head=done.head, ended=ended, lost=lost, left=left, stays=stays)


def _carried_out(cluster: Cluster, plan: SinkPlan, wanted: Wanted) -> Ended:
    ports = cluster.ports(plan.key)
    # A run that has begun, or decided, since the plan was made is alive, and is left alone.
    decided = plan.steps is Steps.ALL
    check = None if plan.head is None or (wanted.even_if_running and decided) else closes(plan.head, decided=decided)
    if plan.steps is Steps.ABORT:
        return abort_undecided(ports, plan.key, check)
    if plan.steps is Steps.SETTLE:
        return settle_decided(ports, plan.key, and_abort_broken=wanted.abort_broken)
    return recover_query(ports, plan.key, check, and_abort_broken=wanted.abort_broken)


def _after(cluster: Cluster, key: str) -> list[Transaction]:
    """Return the transactions that are still open once the markers of the ended ones are written."""
    open_: list[Transaction] = []
    for _ in retrying(_MARKERS_S):
        open_ = find(cluster, [key])
        if all(t.state == State.ONGOING.value for t in open_):
            break
    return open_


def as_json(recovery: Recovery) -> dict[str, Any]:
    state = recovery.state
    return {
        "query": state.query,
        "checkpoint": None if state.checkpoint is None else state.checkpoint.location,
        "dry_run": not recovery.done,
        "running": state.liveness.running,
        "table": None if state.table is None else state.table.as_json(),
        "sinks": [_sink_as_json(sink) for sink in recovery.sinks],
    }


def _sink_as_json(sink: SinkPlan) -> dict[str, Any]:
    error = sink.error
    names = ("aborts", "commits", "unsettled", "broken", "ended", "lost", "left")
    return {
        "ledger_key": sink.key,
        "sink": sink.sink,
        "needed": sink.needed,
        "closes_run": sink.closes,
        **{name: list(getattr(sink, name)) for name in names},
        "stays": [transaction_as_json(t) for t in sink.stays],
        "error": error and {"condition": error.condition, "message": error.message, "hint": error.hint},
    }


def as_text(recovery: Recovery, wanted: Wanted) -> str:
    lines = [f"query {recovery.state.query}"]
    for sink in recovery.sinks:
        lines += _lines(sink, recovery.done)
    if recovery.state.table is not None:
        lines.append(
            f"  It writes to {recovery.state.table.name}, and so has no transactions: a start needs no recovery."
        )
    if not recovery.needed:
        lines.append("  Nothing needs to be done.")
    elif not recovery.done:
        if recovery.state.liveness.running and wanted.steps is not Steps.SETTLE:
            lines.append("  A run of it seems to be alive: --yes is refused without --even-if-running.")
        lines.append("  Nothing was done." if recovery.errors else "  Nothing was done: add --yes.")
    return in_lines(lines)


def _lines(sink: SinkPlan, done: bool) -> list[str]:
    name = "sink" if sink.sink is None else f"sink {sink.sink or '(all)'}"
    if done and sink.error is not None:
        return [f"  {name}: not done, or not to its end: {sink.error}"]
    lines = _steps(sink, name, done) if sink.needed else []
    if sink.error is not None:
        lines.append(f"  {name}: but that cannot be done: {sink.error}")
    return lines + [f"  {name}: {line}" for line in _remaining(sink)]


def _steps(sink: SinkPlan, name: str, done: bool) -> list[str]:
    """Return the steps that are done, or would be."""
    abort, commit = ("aborted", "committed") if done else ("would abort", "would commit")
    last = sink.head.decision if sink.head is not None else None
    batch = "" if last is None else f" of micro-batch {last.batch}"
    not_so = {*sink.lost, *sink.left} if done else set()
    aborts, commits, unsettled = (
        [id_ for id_ in ids if id_ not in not_so] for ids in (sink.aborts, sink.commits, sink.unsettled)
    )
    lines = []
    if sink.steps is not Steps.SETTLE:
        what = "undecided" if sink.head is not None else "ledger"
        lines += [f"  {name}: {abort} {len(aborts)} {what} transaction(s)", *_ids(aborts)]
    if sink.broken:
        number = f"{len(sink.broken)} decided transaction(s){batch} that have lost rows"
        lines += [f"  {name}: {abort} {number}: the query then writes all of their rows again", *_ids(sink.broken)]
    if sink.steps is not Steps.ABORT and sink.head is not None:
        number = f"{len(unsettled)} decided transaction(s){batch}"
        lines += [f"  {name}: {commit} {number}; {len(commits)} {'were' if done else 'are'} open", *_ids(commits)]
    if sink.closes is not None and not done:
        lines.append(f"  {name}: would first close run {sink.closes}, so that it decides nothing more")
    return lines


def _ids(ids: Sequence[str]) -> list[str]:
    return [f"    {id_}" for id_ in ids]


def _remaining(sink: SinkPlan) -> list[str]:
    """Return sentences that name the remaining steps."""
    lines = []
    if sink.left:
        lines.append(f"{len(sink.left)} transaction(s) are still open: {', '.join(sink.left)}")
    if sink.lost:
        lines.append(
            f"{len(sink.lost)} decided transaction(s) are aborted: {', '.join(sink.lost)}. Start the query from its "
            "checkpoint: it writes their rows again."
        )
    if sink.stays:
        why = "they are not decided, and --abort-only aborts them"
        if sink.steps is Steps.ABORT:
            why = "they are decided, and --settle-only commits them"
        if any(t.decided is None for t in sink.stays):
            why = "whether they are decided is not known until the ledger can be read"
        lines.append(f"{len(sink.stays)} other transaction(s) stay open: {why}")
    return lines
