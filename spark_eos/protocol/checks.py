"""The checks that end a run, and their errors: the reason, and whether a new checkpoint may be begun instead.

The decision of a micro-batch commits the offsets of `offsets.group.id`. Its rows become visible after that, transaction
by transaction, and rows that the broker has lost only by a replay of that very micro-batch. So the group's offsets are
where the output ends only while every transaction of the last decision is known to be committed. Otherwise a query that
began there would leave rows out, without anybody noticing.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

from spark_eos.errors import EosError, phrase, stop
from spark_eos.protocol.head import (
    NOBODY,
    Decision,
    ForeachBatchWrite,
    Head,
    Marks,
    Missing,
    Offsets,
    Pair,
    Successor,
    Unfinished,
    Verdict,
)
from spark_eos.protocol.names import INGESTS
from spark_eos.protocol.status import HALTED, Start, Status, halted, stopping_mark

#: Offsets longer than this as JSON, of some 250 partitions, do not fit into an error's text.
OFFSETS_CHARS = 4_000


def offsets_text(offsets: Offsets) -> str:
    """Return offsets as the option `startingOffsets` takes them; a count where they are too many to print."""
    text = json.dumps({topic: _by_number(partitions) for topic, partitions in sorted(offsets.items())})
    if len(text) <= OFFSETS_CHARS:
        return text
    partitions = sum(map(len, offsets.values()))
    return f"those of {partitions} partitions, too many to print"


def _by_number(partitions: Mapping[str, int]) -> dict[str, int]:
    return {p: partitions[p] for p in sorted(partitions, key=int)}


def is_visible(decision: Decision) -> bool:
    """Return whether every row of the decision is visible to read_committed consumers, by the verdicts."""
    return all(w.verdict is Verdict.COMMITTED for w in decision.written)


def is_unknown_here(decision: Decision) -> bool:
    """Return whether the ledger begins after the micro-batch, and knows neither the outcome of its transactions nor the
    end of its input."""
    return decision.is_assumed and decision.offsets is None


def end_offsets_hint(decision: Decision) -> str:
    """Say where the input of the decided micro-batch ended: offsets for 'startingOffsets', or the file that has
    them."""
    if decision.offsets is not None:
        return f"its input ended at the offsets {offsets_text(decision.offsets)}"
    return (
        f"the offsets where its input ended are in offsets/{decision.batch} of the checkpoint that decided it, as "
        "'offsets.group.id' was not set"
    )


def new_checkpoint_hint(decision: Decision) -> str:
    """Say whether a new checkpoint may replace one whose replay differs from the decision, and where it begins."""
    if is_unknown_here(decision):
        return (
            "The ledger was begun after this micro-batch, and does not have its outcome: if no query runs with this "
            f"checkpoint or another, compare the output with the input (spark-eos verify). {phrase('if_complete')}"
        )
    if not is_visible(decision):
        return f"Do not begin with a new one: {pending_rows_hint(decision)}. The group's offsets are past those rows."
    if decision.offsets is None:
        return (
            "If no query runs with this checkpoint or another, begin with a new one, with 'startingOffsets', as all "
            f"decided rows are visible: {end_offsets_hint(decision)}."
        )
    return (
        "If no query runs with this checkpoint or another, begin with a new one, as all decided rows are visible: "
        f"{phrase('from_group')}; so do the decided offsets as 'startingOffsets'."
    )


def pending_rows_hint(decision: Decision) -> str:
    """Say why a new checkpoint would leave rows out, after a decision that is not all visible."""
    if decision.lost:
        return (
            f"{len(decision.lost)} of the {len(decision.written)} transactions of micro-batch {decision.batch} were "
            "lost, and only its replay writes their rows again"
        )
    return f"the transactions of micro-batch {decision.batch} are still to be committed"


# The errors, and the checks that raise them


def checkpoint_ahead(batch: int, last: Decision) -> EosError:
    return stop("EOS_CHECKPOINT_AHEAD", batch=batch, last_batch=last.batch, lost=len(last.lost))


def check_none_lost(decision: Decision, verdicts: Mapping[Pair, Verdict]) -> None:
    """Raise TransactionLost where the brokers have aborted a decided transaction."""
    lost = [w for w in decision.written if verdicts.get(w.pair) is Verdict.LOST]
    if lost:
        raise stop(
            "EOS_TRANSACTION_LOST",
            batch=decision.batch,
            lost=len(lost),
            transactions=len(decision.written),
            lost_ids=", ".join(w.pair.id for w in lost),
        )


def left_behind(batch: int, last: Decision) -> EosError:
    """Return the error where a write within foreachBatch failed half-way, and Spark went on all the same."""
    return stop(
        "EOS_WRITE_LEFT_BEHIND",
        batch=batch,
        last_batch=last.batch,
        lost=len(last.lost),
        failed_batch=last.batch,
        how=f"lost {len(last.lost)} of its {len(last.written)} transactions",
    )


def never_written(batch: int, unwritten: int) -> EosError:
    """Return the error where a write within foreachBatch failed, and Spark went on all the same."""
    return stop("EOS_WRITE_LEFT_BEHIND", batch=batch, failed_batch=unwritten, how="failed")


def check_written(head: Head, batch: int) -> None:
    """Raise ProtocolStop where a write of an earlier micro-batch failed, and Spark went on all the same."""
    if head.unwritten is not None and head.unwritten < batch:
        raise never_written(batch, head.unwritten)


def superseded(run: str, head: Head) -> EosError:
    status = halted(head)
    if status is not None:
        return _halted(status, head.marks)
    if head.run == NOBODY and head.closed_by_operator:
        return stop("EOS_CLOSED_BY_OPERATOR", run=run)
    if head.run == NOBODY:
        return stop("EOS_RUN_CLOSED", run=run)
    write = head.write
    what, hint = "this query", "The same checkpoint, or the same job, was started twice"
    if isinstance(write, ForeachBatchWrite) and write.query.startswith(INGESTS):
        what = f"{write.query} into {write.sink}"
        hint = "The ingest was started twice under the same name, with the same topic"
    return stop("EOS_SUPERSEDED", run=run, by=head.run, what=what, generation=head.generation, why=hint)


#: The condition of rows that were committed and are not visible.
ROWS_MISSING = "EOS_ROWS_MISSING"


def rows_missing(missing: Missing, *, batch: int | None = None, more: int = 0) -> EosError:
    """Return the error where rows of a committed transaction were aborted in a partition; ``batch``: its micro-batch,
    if that is known, and ``more``: the number of further transactions or partitions with missing rows."""
    return stop(
        "EOS_ROWS_MISSING",
        transactional_id=missing.transaction,
        topic=missing.topic,
        partition=missing.partition,
        offset=missing.offset,
        of_batch="" if batch is None else f" of micro-batch {batch}",
        and_more=f"; also in {more} more places" if more else "",
    )


def check_missing(head: Head) -> None:
    """Raise ProtocolStop where the head notes that rows of the query are missing."""
    if head.marks.missing is not None:
        raise rows_missing(head.marks.missing)


def check_halts(head: Head | None, topic: str | None) -> None:
    """Raise Superseded or ProtocolStop where the head bears a mark that this start must not get past. ``topic``: where
    it is to write to; None where a column says so."""
    status = None if head is None else stopping_mark(head, topic)
    if status is not None:
        raise stop_of(status, head, Start(None, topic=topic))


def stop_of(judged: Status, head: Head | None, start: Start) -> EosError:
    """Return the error of a start that stops by the status of its head (`spark_eos.protocol.status.status`)."""
    batch = start.batch or 0
    if head is None:
        return stop("EOS_LEDGER_HEAD_MISSING", batch=batch)
    last = head.decision
    if judged is Status.CHECKPOINT_BEHIND and last is not None:
        return checkpoint_behind(last, batch)
    if judged is Status.CHECKPOINT_AHEAD and last is not None:
        return left_behind(batch, last) if start.in_foreach_batch else checkpoint_ahead(batch, last)
    if judged in HALTED:
        return _halted(judged, head.marks)
    if judged is Status.ROWS_MISSING and head.marks.missing is not None:
        return rows_missing(head.marks.missing)
    if judged is Status.OTHER_TOPIC:
        new_topic = start.topic if start.topic is not None else "those of the column 'topic'"
        return stop("EOS_REPLAY_OTHER_TOPIC", topic=head.marks.topic or "", new_topic=new_topic)
    if judged is Status.HEADS_LOST:
        decided = "none" if last is None else f"micro-batch {last.batch}"
        sign = f"micro-batch {batch - 1} is committed, and the last decision is {decided}"
        return stop("EOS_LEDGER_TRUNCATED", generation=head.generation, sign=sign)
    if judged is Status.PREFIX_CHANGED:
        return stop("EOS_LEDGER_PREFIX_CHANGED", old_prefix=head.prefix, new_prefix=start.prefix or "")
    if judged is Status.GIVEN_UP:
        return never_written(batch, head.given_up or 0)
    assert judged is Status.SUPERSEDED
    return superseded(start.run or "", head)


def _halted(judged: Status, marks: Marks) -> EosError:
    successor, unfinished = marks.successor, marks.unfinished
    if successor is not None:
        return stop("EOS_QUERY_RETIRED", by=successor.query, goes_on=successor_hint(successor))
    assert unfinished is not None
    if judged is Status.DROP_UNFINISHED:
        return stop("EOS_DROP_UNFINISHED", dropped=unfinished.dropped, finishing=finish_command(unfinished))
    return stop(
        "EOS_REPLAY_UNFINISHED",
        replayed_query=unfinished.of,
        location=unfinished.to,
        finishing=finish_command(unfinished),
    )


def successor_hint(successor: Successor) -> str:
    """Name the successor of a retired query."""
    if not successor.query:
        return "'spark-eos mirror position' closed it for good, and a new checkpoint continues in its place"
    return f"query {successor.query}, with the checkpoint {successor.checkpoint}, continues in its place"


def finish_command(unfinished: Unfinished) -> str:
    """Return the command that finishes a replay, or the drop of a micro-batch."""
    # Quoted, as somebody copies it from the error to a shell, and others may write to the ledger.
    checkpoint, to = shlex.quote(unfinished.checkpoint), shlex.quote(unfinished.to)
    if unfinished.drops:
        return f"spark-eos --bootstrap-servers … recover {checkpoint} --drop-planned --yes"
    return f"spark-eos --bootstrap-servers … replay {checkpoint} --new {to} --yes"


def checkpoint_behind(last: Decision, batch: int) -> EosError:
    """Return the error for a checkpoint at ``batch``, which is before the last decision."""
    parameters = {"batch": batch, "decided": last.batch, "offsets": last.offsets}
    if is_unknown_here(last):
        return stop("EOS_CHECKPOINT_BEHIND.begun", **parameters)
    if not is_visible(last):
        return stop("EOS_CHECKPOINT_BEHIND.group_ahead", what_waits=pending_rows_hint(last), **parameters)
    return stop("EOS_CHECKPOINT_BEHIND.decided", where_it_ended=end_offsets_hint(last), **parameters)
