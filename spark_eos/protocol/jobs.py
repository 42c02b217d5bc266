"""Batch writes: a query of one micro-batch, number 0, that anybody may write again by its id."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from spark_eos.errors import Diverged, ProtocolStop
from spark_eos.protocol.clearing import clear_earlier
from spark_eos.protocol.head import Head, Job, Pair
from spark_eos.protocol.newest import taking
from spark_eos.protocol.ports import NotPublished, Ports
from spark_eos.protocol.run import was_published
from spark_eos.protocol.stops import ledger_busy, lost_head

#: The one micro-batch of a batch write.
BATCH = 0


def complete(ports: Ports, run: str) -> None:
    """Publish that all of the job is committed: its decision without transactions, with rows and digest alone.

    The brokers forget a transactional id after a week, and retention takes the rows; whoever writes the job again later
    finds by this that there is nothing to settle. Called when the run's commit has returned, which it does on verdicts
    only. Where another run has taken over meanwhile, that one has settled the decision, and completes the job.

    Raises Unclear (EOS_LEDGER_BUSY); the rows are visible then.
    """
    for term, head in taking(ports):
        if head is None or head.run != run or head.decision is None or not head.decision.written:
            return
        try:
            term.publish(replace(head, decision=replace(head.decision, written=())))
        except NotPublished:
            continue
        ports.reach("commit.completed")
        return
    raise ledger_busy()


def clear_late(ports: Ports) -> Collection[Pair]:
    """Abort what attempts of a closed or replaced run have begun since it was; what stays open is returned.

    Spark asks for an abort while it still kills the tasks: one that has its transactional id, but has not written
    anything yet, would hold readers until its timeout. Nothing of a generation before the head's can be decided any
    more.
    """
    ports.ledger.check_topic()
    head = ports.ledger.read()
    return () if head is None else clear_earlier(ports, head, empty=True)


def note_unwritten(ports: Ports, batch: int, first: Head) -> None:
    """Note that a write within foreachBatch failed, before its error is raised: whoever catches that lets Spark pass
    the micro-batch, and later writes of the sink then stop. The run stays as it is, so that the write can be repeated.

    Nothing is changed where the micro-batch is decided, or an earlier one is noted already. ``first``: what is
    published where the sink has no head yet. Raises LedgerError (EOS_LEDGER_HEAD_LOST) where it has had one, Unclear,
    and what the ledger raises.
    """
    ports.ledger.check_topic()
    if ports.ledger.read() is None and was_published(ports):
        raise lost_head()
    for term, found in taking(ports):
        head = found or first
        decided = head.decision is not None and head.decision.batch >= batch
        if decided or head.unwritten is not None or head.marks.successor is not None:
            return
        try:
            term.publish(replace(head, given_up=batch))
        except NotPublished:
            continue
        return
    raise ledger_busy()


def check_target(head: Head, job: Job) -> None:
    """Raise Diverged where the job's rows are decided, and went elsewhere."""
    if head.decision is None or head.job is None or head.job.topic == job.topic:
        return
    raise Diverged(
        "EOS_JOB_DIFFERS",
        f"The batch write with job.id '{job.id}' has written {head.decision.rows:,} rows to {_named(head.job.topic)}, "
        f"and is now to write to {_named(job.topic)}.",
        hint="Nothing was written. One job.id stands for one set of rows: use another one for another topic.",
        job=job.id,
    )


def check_time(job: Job, timeout_ms: int, now_ms: int) -> None:
    """Raise ProtocolStop where the transactions of the job's first tasks have expired, as nothing of it can be decided
    any more. ``now_ms`` is by the clock of a task, which may be another machine's than that which opened the run."""
    age_ms = now_ms - job.opened_ms
    if age_ms > timeout_ms:
        raise ProtocolStop(
            "EOS_JOB_TOO_LONG",
            f"The batch write has gone on for {age_ms // 1000:,} s, by the clocks of two tasks, and its transactions "
            f"expire after {timeout_ms // 1000:,} s: those of its first tasks are gone.",
            hint="Nothing was decided. If it did not take that long, the clocks of the executors' machines differ: set "
            "them. Else all tasks have to end within 'transaction.timeout.ms', at most the brokers' "
            "transaction.max.timeout.ms: raise both, write fewer rows at a time, give Spark more cores, or use "
            "'transaction.two.phase.commit', with which transactions do not expire.",
        )


def _named(topic: str | None) -> str:
    return f"topic {topic}" if topic is not None else "the topics of the column 'topic'"
