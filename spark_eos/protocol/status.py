"""Determines the action of a query's next start, by its head in the ledger and the micro-batch of the checkpoint.

Only `status` determines it: a start stops by it, ``spark-eos status`` prints it, and ``spark-eos recover`` and the
other commands refuse by it; a wait for the end of a query ends by `at_end`. It decides nothing about transactions that
have no verdict yet: a start settles them first, and calls it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from spark_eos.protocol.head import NOBODY, Head

#: Stands for a topic, where the query's is not known. No topic can have this name.
ANY_TOPIC = "*"


class Status(Enum):
    """Action of a start. Where it stops, the value is the condition of its error; by head and checkpoint, a start can
    stop only by these. `HEADS_LOST` is for the end of a query alone."""

    #: Rows of a committed transaction were aborted in a partition.
    ROWS_MISSING = "EOS_ROWS_MISSING"
    #: Another query continues instead of this one.
    RETIRED = "EOS_QUERY_RETIRED"
    #: A command has begun to drop a planned micro-batch, or to replay, and has not finished.
    DROP_UNFINISHED = "EOS_DROP_UNFINISHED"
    REPLAY_UNFINISHED = "EOS_REPLAY_UNFINISHED"
    #: The query was replayed to one topic, and is to write to another.
    OTHER_TOPIC = "EOS_REPLAY_OTHER_TOPIC"
    #: The ledger has no head, and the checkpoint is past the first micro-batch.
    HEAD_MISSING = "EOS_LEDGER_HEAD_MISSING"
    #: The last decision is before a micro-batch that the query has had committed by this ledger.
    HEADS_LOST = "EOS_LEDGER_TRUNCATED"
    #: The query has written under another prefix of transactional ids.
    PREFIX_CHANGED = "EOS_LEDGER_PREFIX_CHANGED"
    #: A write within foreachBatch failed, and Spark has gone on to a later micro-batch.
    GIVEN_UP = "EOS_WRITE_LEFT_BEHIND"
    #: Another run has replaced this one.
    SUPERSEDED = "EOS_SUPERSEDED"
    #: A later micro-batch than the checkpoint's is decided.
    CHECKPOINT_BEHIND = "EOS_CHECKPOINT_BEHIND"
    #: The last decision has lost rows, and the checkpoint is at a later micro-batch, which does not write them again.
    CHECKPOINT_AHEAD = "EOS_CHECKPOINT_AHEAD"
    #: The micro-batch is not decided: its rows are written.
    WRITES = "writes"
    #: The micro-batch is decided, and some of its rows were lost: these are written again.
    REPAIRS = "repairs"
    #: The micro-batch is decided: it is committed, where that is not done, and not written again.
    COMPLETES = "completes"

    @property
    def stops(self) -> bool:
        """True where a start stops with an error, before it writes anything."""
        return self.value.startswith("EOS_")


#: States that no start can leave: only the command that set the mark, or another checkpoint, helps.
HALTED = (Status.RETIRED, Status.DROP_UNFINISHED, Status.REPLAY_UNFINISHED)


@dataclass(frozen=True)
class Start:
    """A start of a query. ``batch``: the micro-batch that it runs first; None where there is no checkpoint. ``run``,
    ``prefix`` and ``topic`` (None: a column names it) are not judged where they are not given. ``begin_at``: the option
    `ledger.begin`. ``in_foreach_batch``: a write within foreachBatch, which may begin at any micro-batch."""

    batch: int | None
    run: str | None = None
    prefix: str | None = None
    topic: str | None = ANY_TOPIC
    begin_at: int | None = None
    in_foreach_batch: bool = False


def status(head: Head | None, start: Start) -> Status:
    """Return the action of this start on a query that has this head, or none."""
    if head is None:
        first = start.batch in (None, 0, start.begin_at) or start.in_foreach_batch
        return Status.WRITES if first else Status.HEAD_MISSING
    return stopping_mark(head, start.topic) or _replaced(head, start) or at_batch(head, start.batch)


def at_end(head: Head | None, done: int | None) -> Status | None:
    """Return the problem with the head of a query that has ended; None if there is none. ``done``: the last micro-batch
    that Spark has noted as committed in this run, so that it was decided in this ledger; None where there was none.

    A start is not judged by Spark's commit log, as another sink may have had the checkpoint in between.
    """
    if head is None:
        return None if done is None else status(None, Start(done + 1))
    if head.marks.missing is not None:
        return Status.ROWS_MISSING
    last = head.decision
    return None if done is None or (last is not None and last.batch >= done) else Status.HEADS_LOST


def stopping_mark(head: Head, topic: str | None = ANY_TOPIC) -> Status | None:
    """Return the first of the head's marks that stops every start."""
    marks = head.marks
    if marks.missing is not None:
        return Status.ROWS_MISSING
    if (halt := halted(head)) is not None:
        return halt
    if marks.topic is not None and topic not in (marks.topic, ANY_TOPIC):
        return Status.OTHER_TOPIC
    return None


def halted(head: Head) -> Status | None:
    """Return which command has halted the query: it is retired, or a replay or the drop of a micro-batch is not
    finished."""
    if head.marks.successor is not None:
        return Status.RETIRED
    unfinished = head.marks.unfinished
    if unfinished is not None:
        return Status.DROP_UNFINISHED if unfinished.drops else Status.REPLAY_UNFINISHED
    return None


def _replaced(head: Head, start: Start) -> Status | None:
    # A command that publishes the first head of a query does not know the option's prefix.
    if start.prefix not in (None, head.prefix) and (head.run != NOBODY or head.earlier):
        return Status.PREFIX_CHANGED
    if head.unwritten is not None and (start.batch is None or head.unwritten < start.batch):
        return Status.GIVEN_UP
    if start.run is not None and start.run in head.earlier:
        return Status.SUPERSEDED
    return None


def at_batch(head: Head, batch: int | None) -> Status:
    """Return the status of a micro-batch, by the last decision alone; without a number, of the last decided one."""
    last = head.decision
    if last is None:
        return Status.WRITES
    if batch is not None and last.batch > batch:
        return Status.CHECKPOINT_BEHIND
    if batch is not None and last.batch < batch:
        return Status.CHECKPOINT_AHEAD if last.lost else Status.WRITES
    return Status.REPAIRS if last.lost else Status.COMPLETES
