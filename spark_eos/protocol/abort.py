"""Aborts transactions that nobody will commit.

A run that is alive may decide its own in the next moment. So others abort them only once a published head has closed or
replaced it (`abort`, `clear_earlier`), or once their micro-batch is decided without them (`sweep`). The commit of a run
aborts its own leftovers, and transactions that it cannot decide (`abort_all`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from spark_eos.base.log import only_logged
from spark_eos.errors import EosError, stop
from spark_eos.kafka.transactions import FENCING_END
from spark_eos.protocol.head import Head, Pair
from spark_eos.protocol.names import SLOTS
from spark_eos.protocol.ports import EndTxnAnswer, NotPublished, Ports
from spark_eos.protocol.take import take_and_read, taking, was_published

#: How often open transactions of earlier generations are listed, at most, where they never expire.
_LOOKS = 4
_FAILED = "transactions that nobody will commit could not be aborted"


def abort_all(ports: Ports, pairs: Collection[Pair]) -> Collection[Pair]:
    """Abort transactions that nobody will ever commit; returns transactions that stay open.

    The caller must be certain that nobody will. An open transaction holds readers until its timeout; as no row is at
    stake, and the caller has committed, or has an error of its own to raise, this raises none.

    EndTxn is sent by the version for transactions that begin now: coordinators accept either.
    """
    left = set(pairs)
    if not left:
        return left
    with only_logged(_FAILED, EosError):
        version = ports.coordinator.endtxn_version()
        for _ in ports.retrying():
            answers = ports.coordinator.end(dict.fromkeys(left, version), commit=False)
            left = {pair for pair in left if answers[pair] is EndTxnAnswer.PENDING}
            if not left:
                break
    return left


def clear_earlier(ports: Ports, head: Head, *, empty: bool = False) -> Collection[Pair]:
    """Abort open and undecided transactions of generations before a published head; returns any that stay open.

    Where EndTxn does not fence, an attempt that is alive could begin its transaction once more. So its id is fenced:
    later decisions have ids of later generations, so that this can hit nothing else, however late it comes.

    With two-phase commit, no timeout will end a transaction that begins a moment later: the ids of attempts that have
    not written anything yet are fenced, too, and the transactions are listed again until there are none. With ``empty``
    these ids are fenced in any case.
    """
    left: Collection[Pair] = ()
    for _ in range(_LOOKS if head.two_phase else 1):
        pairs = undecided(ports, head, before=head.generation, empty=empty)
        left = end_for_good(ports, pairs)
        if not pairs or left:
            break
    return left


def clear_listed(ports: Ports, head: Head, listed: Collection[Pair]) -> Collection[Pair]:
    """Abort ``listed`` transactions, of any generation, then do the same as `clear_earlier`: where a ledger was lost,
    generations are counted anew. They were listed before the head was published; transactions that were decided
    meanwhile are left alone."""
    decided = {pair.id for pair in head.decision.pairs} if head.decision else set()
    end_for_good(ports, {pair for pair in listed if pair.id not in decided})
    return clear_earlier(ports, head)


def undecided(ports: Ports, head: Head, *, before: int | None = None, empty: bool = False) -> Collection[Pair]:
    """Return the open transactions of the query, or of generations ``before`` this one, that are not decided.

    Only their ids distinguish them: a broker that failed to fence one (Kafka 4.0.0) describes it at the next epoch.
    """
    waiting = {w.pair.id for w in head.decision.waiting} if head.decision else set()
    ongoing = ports.coordinator.ongoing(before=before, empty=empty or head.two_phase)
    return {d.pair for d in ongoing if d.pair.id not in waiting}


def end_for_good(ports: Ports, pairs: Collection[Pair]) -> Collection[Pair]:
    """Abort transactions, and fence their producers; returns any that stay open. Like `abort_all`, raises no error."""
    if not pairs or ports.coordinator.endtxn_version() >= FENCING_END:
        return abort_all(ports, pairs)
    left = {pair.id for pair in pairs}
    with only_logged(_FAILED, EosError):
        for _ in ports.retrying():
            left = set(ports.coordinator.fence(left))
            if not left:
                break
    return {pair for pair in pairs if pair.id in left}


# Closing a run


def close(
    ports: Ports,
    run: str | None = None,
    given_up: int | None = None,
    check: Callable[[Head], None] | None = None,
    *,
    by_operator: bool = False,
) -> Head | None:
    """Try once to take the ledger and publish a head that belongs to no run; returns it, or None when it was not
    published. With ``run``, only where the query's run is that one. ``given_up``: the micro-batch that the run has
    given up, if Spark may pass it all the same. ``check`` raises where this head is not to be closed.
    ``by_operator``: a command does it, after which the run does not start again by itself.

    From then on, no run before it can decide anything: each finds itself replaced. Raises as `take` does.
    """
    taken = take_and_read(ports)
    if taken is None:
        return None
    term, head = taken
    if head is None or (run is not None and head.run != run):
        return None
    if check is not None:
        check(head)
    closed = head.closed(by_operator=by_operator)
    if given_up is not None and head.unwritten is None:  # an earlier one is still missing
        closed = replace(closed, given_up=given_up)
    try:
        term.publish(closed)
    except NotPublished:
        return None
    return closed


def abort(ports: Ports, run: str, batch_id: int) -> Collection[Pair]:
    """Close the run and abort its open and undecided transactions; returns any that stay open.

    Within foreachBatch, the ledger notes that this write was given up, as Spark may continue without noticing.

    Spark calls this after a failed task, and after a commit that raised, so the batch may well be decided: only an
    authoritative read shows it. The run ends with it, so it is closed first: a commit or a task of it that still goes
    on somewhere finds itself replaced, and cannot decide transactions that are being aborted.
    """
    ports.reach("abort.entered")
    for _ in ports.retrying():
        head = ports.ledger.read()
        if head is None or head.run != run:
            return ()
        closed = close(ports, run, batch_id if head.in_foreach_batch else None)
        if closed is not None:
            ports.reach("abort.closed")
            return clear_earlier(ports, closed)
    return ()


def clear_late(ports: Ports) -> Collection[Pair]:
    """Abort transactions that attempts of a closed or replaced run have begun since; returns any that stay open.

    Spark aborts a write while it still kills its tasks: one that has its transactional id, but has not written
    anything yet, would hold readers until its timeout. Nothing of a generation before the head's can be decided any
    more.
    """
    ports.ledger.check_topic()
    head = ports.ledger.read()
    return () if head is None else clear_earlier(ports, head, empty=True)


def note_unwritten(ports: Ports, batch: int, first: Head) -> None:
    """Note that a write within foreachBatch failed, before its error is raised: a function that catches that lets Spark
    pass the micro-batch, and later writes of the sink then stop. The run stays as it is, so that the write can be
    repeated.

    Nothing is changed where the micro-batch is decided, or an earlier one is noted already. ``first``: the head to
    publish where the sink has none yet. Raises LedgerError (EOS_LEDGER_HEAD_LOST) where it has had one, Unclear, and
    the errors of the ledger.
    """
    ports.ledger.check_topic()
    if ports.ledger.read() is None and was_published(ports):
        raise stop("EOS_LEDGER_HEAD_LOST.write")
    for term, newest in taking(ports):
        head = newest or first
        decided = head.decision is not None and head.decision.batch >= batch
        if decided or head.unwritten is not None or head.marks.successor is not None:
            return
        try:
            term.publish(replace(head, given_up=batch))
        except NotPublished:
            continue
        return
    raise stop("EOS_LEDGER_BUSY")


# Sweeping, while a query is idle


#: When a query that has nothing to commit looks again, in seconds each after the look before. By then, attempts that
#: Spark kills are gone, and others have aborted themselves (`check_owner`).
SWEEPS_AFTER_S = (2, 8, 30)


def sweep(ports: Ports, run: str, batch: int) -> Collection[Pair] | None:
    """Abort transactions of the run's last micro-batch that its attempts have left open, and return them; None when
    the run has gone on, or was replaced.

    A commit aborts leftovers, but an attempt that nobody waits for may begin its transaction later, and be killed: it
    holds readers at the last stable offset until its timeout, or until the next commit, which may be far.

    1. List the open transactions in the micro-batch's slot.
    2. Then read the head. While the micro-batch is the last decision, no task of the one after the next has begun,
       which is the next to use that slot. So the listed transactions can never be decided, however late they are
       aborted.

    With two-phase commit no timeout would end an overlooked one: ids under which nothing is open yet are fenced, too,
    and transactions of earlier generations, which cannot be decided either, are listed again.
    """
    ports.ledger.check_topic()
    head = _last_of(ports, run, batch)
    if head is None:
        return None
    listed = [*ports.coordinator.ongoing(generation_and_slot=(head.generation, batch % SLOTS), empty=head.two_phase)]
    if head.two_phase:
        listed += ports.coordinator.ongoing(before=head.generation, empty=True)
    head = _last_of(ports, run, batch)
    if head is None:
        return None
    decided = {w.pair.id for w in head.decision.written} if head.decision else set()
    left = {d.pair for d in listed if d.pair.id not in decided}
    abort_all(ports, left)
    return left


def _last_of(ports: Ports, run: str, batch: int) -> Head | None:
    """Return the head, while it is this run's and this micro-batch is its last decision."""
    head = ports.ledger.read()
    if head is None or head.run != run or head.decision is None or head.decision.batch != batch:
        return None
    return head
