"""The errors that end a run."""

from __future__ import annotations

from spark_eos.errors import LedgerError, ProtocolStop, Superseded, Unclear
from spark_eos.protocol.head import NOBODY, Decision, Head
from spark_eos.protocol.new_checkpoint import FROM_GROUP, is_visible, what_waits, where_it_ended


def checkpoint_ahead(batch: int, last: Decision) -> ProtocolStop:
    return ProtocolStop(
        "EOS_CHECKPOINT_AHEAD",
        f"The checkpoint is at micro-batch {batch}, but micro-batch {last.batch} lost {len(last.lost)} transaction(s) "
        "that were never repaired.",
        hint="Going on would lose their rows. To let Spark replay that micro-batch, stop the query and move out of the "
        f"checkpoint: commits/{last.batch} and later ones, the files in 'offsets' later than {last.batch}, and the "
        f"checksums beside each, such as .{last.batch}.crc: with one left behind, the replay fails.",
        batch=batch,
    )


def missing_head(batch: int) -> LedgerError:
    return LedgerError(
        "EOS_LEDGER_HEAD_MISSING",
        f"The checkpoint is at micro-batch {batch}, but the ledger knows nothing of this query.",
        hint="Either the ledger topic was lost or is another one (option 'ledger.topic'), or the checkpoint comes from "
        f"another sink. To begin a ledger here, set 'ledger.begin' to {batch}; it counts for that micro-batch only. It "
        "repeats no row if whoever had the checkpoint before left no micro-batch under way: each in 'offsets' is in "
        f"'commits', too, except {batch}, which this start has planned.",
        batch=batch,
    )


def superseded(run: str, head: Head) -> Superseded:
    if head.run == NOBODY:
        return Superseded(
            "EOS_RUN_CLOSED",
            f"Run {run} of this query was closed after a micro-batch failed or was stopped.",
            hint="Nothing is lost: the next start replays the batch.",
            run=run,
        )
    return Superseded(
        "EOS_SUPERSEDED",
        f"Run {run} of this query was replaced by run {head.run} (generation {head.generation}).",
        hint="The same checkpoint was started twice: one start goes on, this one stops. Nothing is doubled.",
        run=run,
        by=head.run,
    )


def checkpoint_behind(last: Decision, batch: int) -> ProtocolStop:
    """The error for a checkpoint at ``batch``, which is before the last decision."""
    said = {"batch": batch, "decided": last.batch, "offsets": last.offsets}
    if not is_visible(last):
        return ProtocolStop(
            "EOS_CHECKPOINT_BEHIND",
            f"The checkpoint is at micro-batch {batch}, but micro-batch {last.batch} of this query is decided.",
            hint="The checkpoint is older than the output: going on would write rows twice. Use the newest checkpoint, "
            f"and do not begin with a new one: {what_waits(last)}. The group's offsets are past those rows.",
            **said,
        )
    return ProtocolStop(
        "EOS_CHECKPOINT_BEHIND",
        f"The checkpoint is at micro-batch {batch}, but micro-batch {last.batch} of this query is decided: "
        f"{where_it_ended(last)}.",
        hint="The checkpoint is older than the output, as after a restore from a backup: going on would write rows "
        "twice. Use the newest checkpoint. If it is gone, and nothing goes on with it, begin with a new one, as all "
        f"that was decided is visible: {FROM_GROUP}; so do the offsets above as 'startingOffsets'.",
        **said,
    )


def expires(transactional_id: str, timeout_ms: int) -> ProtocolStop:
    """The error for a transaction that was begun by two-phase commit, and has a timeout nevertheless."""
    return ProtocolStop(
        "EOS_TWO_PHASE_EXPIRES",
        f"Transaction {transactional_id} was begun with two-phase commit, but the coordinator would abort it after "
        f"{timeout_ms} ms.",
        hint="Nothing was decided. Another program may use this query's transactional ids, or brokers may differ in "
        "their version of Kafka: give all of them the same one, or remove 'transaction.two.phase.commit'.",
        transactional_id=transactional_id,
    )


def decision_unclear(batch: int) -> Unclear:
    return Unclear(
        "EOS_DECISION_UNCLEAR",
        f"Whether micro-batch {batch} was decided is not known: the ledger could not be written and read.",
        hint="Nothing is lost: start the query again, from this checkpoint, when the cluster is well; it finds out.",
    )


def ledger_busy() -> Unclear:
    return Unclear(
        "EOS_LEDGER_BUSY",
        "The run could not publish itself in the ledger.",
        hint="Nothing was written: start the query again when the cluster is well.",
    )
