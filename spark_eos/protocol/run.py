"""Open: a run of a query makes itself the one that may decide, settles the last decision, clears what is left."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from spark_eos.errors import LedgerError, Unclear
from spark_eos.protocol.head import DEFAULT_PARTITIONER, Decision, Head, Pair, Verdict
from spark_eos.protocol.new_checkpoint import FROM_GROUP
from spark_eos.protocol.ports import NotPublished, Ports, State
from spark_eos.protocol.stops import checkpoint_ahead, checkpoint_behind, ledger_busy, missing_head, superseded
from spark_eos.protocol.verdicts import abort_all, settle

_LOOKS = 4
"""How often it is looked for what earlier generations have left open, at most, where that never expires."""


def open_run(
    ports: Ports,
    run: str,
    batch: int,
    *,
    endtxn_version: int,
    begin_at: int | None = None,
    driver: str = "",
    prefix: str = "",
    partitioner: str = DEFAULT_PARTITIONER,
    two_phase: bool = False,
) -> Head:
    """Publish ``run`` as the owner of the query, before it writes micro-batch ``batch``; returns its head.

    ``driver`` names the Spark application of the run, for an abort that knows no more than its own. ``prefix`` is
    that of the transactional ids; a query keeps it for good. ``partitioner`` is for a query that begins here. A ledger
    that does not know the query begins with micro-batch 0, or with ``begin_at``. ``two_phase``: the run
    begins transactions that never expire.

    1. Read the head; a head that names the run ends it, one that has replaced the run stops it.
    2. Take the ledger and read again: from here on, nobody else has decided anything.
    3. Settle the last decision.
    4. Publish the run. From here on, no run before it can decide anything.
    5. Describe what earlier generations have open and not decided, and abort it. That is safe however long it takes:
       what runs after this one decide is of later generations.

    Raises Superseded, LedgerError (no head in mid-life), Unclear.
    """
    for _ in ports.retrying():
        head = _checked(ports, ports.ledger.read(), run, batch, begin_at, prefix)
        if head is not None and head.run == run:
            return head
        if head is None and batch != begin_at and _was_published(ports):
            head = _checked(ports, ports.ledger.read(), run, batch, begin_at, prefix)
            if head is None:
                raise missing_head(batch)
        term = ports.ledger.take()
        head = _checked(ports, term.read(), run, batch, begin_at, prefix)
        if head is not None and head.run == run:
            return head
        ports.reach("open.taken")
        new = _successor(ports, head, run, batch, endtxn_version, driver)
        new = replace(
            new,
            prefix=prefix,
            partitioner=partitioner if head is None else head.partitioner,
            two_phase=two_phase or new.two_phase,
        )
        ports.reach("open.settled")
        try:
            term.publish(new)
        except NotPublished:
            continue
        ports.reach("open.published")
        clear_earlier(ports, new)
        ports.reach("open.cleaned")
        return new
    raise ledger_busy()


def _was_published(ports: Ports) -> bool:
    """Whether the coordinators know, as they do for a week, of a head of the query, or of a task that it has decided
    on: a head that is not there any more was lost with the ledger, and maybe the decision of the first micro-batch."""
    known = ports.coordinator.describe(ports.ledger.first_names)
    return any(found.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT) for found in known.values())


def clear_earlier(ports: Ports, head: Head) -> Collection[Pair]:
    """Abort what generations before a published head have open and not decided; what stays open is returned.

    What waits for its verdict is told by its id: a broker that failed to fence it (Kafka 4.0.0) describes it at the
    next epoch.

    With two-phase commit, no timeout will end what begins a moment later: the ids of attempts that have not written
    anything yet are fenced, too, and the coordinators are asked again until there is nothing more.
    """
    unsettled = {w.pair.id for w in head.decision.written if w.verdict is None} if head.decision else set()
    left: Collection[Pair] = ()
    for _ in range(_LOOKS if head.two_phase else 1):
        found = ports.coordinator.ongoing(before=head.generation, empty=head.two_phase)
        pairs = {d.pair for d in found if d.pair.id not in unsettled}
        left = abort_all(ports, pairs)
        if not pairs or left:
            break
    return left


def _checked(ports: Ports, head: Head | None, run: str, batch: int, begin_at: int | None, prefix: str) -> Head | None:
    if head is None and batch not in (0, begin_at):
        raise missing_head(batch)
    if head is not None and head.prefix != prefix:
        raise LedgerError(
            "EOS_LEDGER_PREFIX_CHANGED",
            f"The query has written under the transactional id prefix '{head.prefix}', and now has '{prefix}'.",
            hint="Put 'transactionalIdPrefix' back: under another one, a run that is still alive could not be fenced. "
            "To change it, let the query end under the old one, its last micro-batch committed; then begin with a new "
            f"checkpoint: {FROM_GROUP}.",
            was=head.prefix,
            now=prefix,
        )
    if head is not None and run in head.earlier:
        raise superseded(run, head)
    if head is not None and head.decision is not None and head.decision.batch > batch:
        raise checkpoint_behind(_settled(ports, head.decision), batch)
    return head


def _settled(ports: Ports, last: Decision) -> Decision:
    """The decision with its verdicts. Nobody goes on from it here, but a new checkpoint may, which would not settle it:
    what this checkpoint has decided is ended now or never. A decision is final, so that no ledger need be taken."""
    return last.judged(settle(ports, last.written))


def _successor(ports: Ports, head: Head | None, run: str, batch: int, endtxn_version: int, driver: str) -> Head:
    if head is None:
        return Head(run=run, generation=1, earlier=(), endtxn_version=endtxn_version, driver=driver)
    new = head.succeeded_by(run, endtxn_version, driver)
    last = head.decision
    if last is None:
        return new
    settled = last.judged(_verdicts(ports, last, passed=last.batch < batch))
    if settled.lost and last.batch < batch:
        raise checkpoint_ahead(batch, settled)
    return replace(new, decision=settled)


def _verdicts(ports: Ports, last: Decision, passed: bool) -> dict[Pair, Verdict]:
    """What became of the last decision. Once Spark has passed it, its commit has returned, which it does on verdicts
    only: then it was committed, even when nobody can tell any more."""
    try:
        return settle(ports, last.written, fresh=passed)
    except Unclear:
        if not passed:
            raise
        return {w.pair: Verdict.COMMITTED for w in last.written if w.verdict is None}
