"""The checks that end a run, and their errors: what is wrong, and whether a new checkpoint may be begun instead.

The decision of a micro-batch commits the offsets of `offsets.group.id`. Its rows become visible after that, transaction
by transaction, and what the broker has lost of them only by a replay of that very micro-batch. So the group's offsets
are where the output ends only while every transaction of the last decision is known to be committed. Otherwise a query
that began there would leave rows out, without anybody noticing.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

from spark_eos.errors import EosError, LedgerError, ProtocolStop, Superseded, TransactionLost, Unclear
from spark_eos.protocol.head import (
    NOBODY,
    Decision,
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
from spark_eos.protocol.status import HALTED, Start, Status, halted, marked

FROM_GROUP = (
    "'startingOffsets' = group, with the old 'offsets.group.id' as 'kafka.group.id', continues exactly where the "
    "output ends"
)


#: What to do after the output was compared with the input, as decisions may have been lost.
IF_COMPLETE = (
    f"If all its rows are there, begin with a new checkpoint: {FROM_GROUP}. If some are missing, write them first: the "
    "group's offsets are past them."
)


#: What to do where decisions were lost with a topic or a replica, and that cannot be brought back.
OR_COMPARE = f"Where that cannot be done, compare the output with the input (spark-eos verify). {IF_COMPLETE}"


#: Offsets longer than this as JSON, those of some 250 partitions, do not fit into an error's text.
OFFSETS_CHARS = 4_000


def as_json(offsets: Offsets) -> str:
    """Offsets as the option `startingOffsets` takes them; only a count where they are too many to print."""
    text = json.dumps({topic: _by_number(partitions) for topic, partitions in sorted(offsets.items())})
    if len(text) <= OFFSETS_CHARS:
        return text
    partitions = sum(map(len, offsets.values()))
    return f"those of {partitions} partitions, too many to print"


def _by_number(partitions: Mapping[str, int]) -> dict[str, int]:
    return {p: partitions[p] for p in sorted(partitions, key=int)}


def is_visible(decision: Decision) -> bool:
    """Whether every row of the decision is known to be visible to read_committed consumers."""
    return all(w.verdict is Verdict.COMMITTED for w in decision.written)


def is_untold(decision: Decision) -> bool:
    """Whether the ledger begins behind it, and does not know what became of its rows, or where its input ended."""
    return decision.is_assumed and decision.offsets is None


def where_it_ended(decision: Decision) -> str:
    """Where the decided micro-batch left its input: what 'startingOffsets' takes, or where to find it."""
    if decision.offsets is not None:
        return f"its input ended at the offsets {as_json(decision.offsets)}"
    return (
        f"where its input ended is in offsets/{decision.batch} of the checkpoint that decided it, as "
        "'offsets.group.id' was not set"
    )


def instead_of_replay(decision: Decision) -> str:
    """Whether a new checkpoint may take the place of one whose replay is not what was decided, and where it begins."""
    if is_untold(decision):
        return (
            "The ledger was begun behind it, and does not know what of it is in the output: if nothing goes on with "
            f"this checkpoint or another, compare the output with the input (spark-eos verify). {IF_COMPLETE}"
        )
    if not is_visible(decision):
        return f"Do not begin with a new one: {what_waits(decision)}. The group's offsets are past those rows."
    if decision.offsets is None:
        return (
            "If nothing goes on with this checkpoint or another, begin with a new one, with 'startingOffsets', as all "
            f"that was decided is visible: {where_it_ended(decision)}."
        )
    return (
        "If nothing goes on with this checkpoint or another, begin with a new one, as all that was decided is visible: "
        f"{FROM_GROUP}; so do the decided offsets as 'startingOffsets'."
    )


def what_waits(decision: Decision) -> str:
    """Why a new checkpoint would leave rows out, after a decision that is not all visible."""
    if decision.lost:
        return (
            f"{len(decision.lost)} of the {len(decision.written)} transactions of micro-batch {decision.batch} were "
            "lost, and only its replay writes their rows again"
        )
    return f"the transactions of micro-batch {decision.batch} are still to be committed"


# The errors, and the checks that raise them


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


def check_none_lost(decision: Decision, verdicts: Mapping[Pair, Verdict]) -> None:
    """Raise TransactionLost where the brokers have aborted a decided transaction."""
    lost = [w for w in decision.written if verdicts.get(w.pair) is Verdict.LOST]
    if lost:
        raise TransactionLost(
            "EOS_TRANSACTION_LOST",
            f"Micro-batch {decision.batch} is decided, but {len(lost)} of its {len(decision.written)} transactions "
            f"were aborted by the broker before they could be committed: {', '.join(w.pair.id for w in lost)}.",
            hint="Start the query again, from this checkpoint: it writes exactly the lost rows again. Until then "
            "readers see a part of the batch. A new checkpoint would leave those rows out: the offsets of "
            "'offsets.group.id' are past them.",
            batch=decision.batch,
            lost=len(lost),
        )


_SWALLOWED = (
    "The function of foreachBatch must not catch the errors of a write, nor leave one out when a micro-batch runs "
    "again. Write the missing rows of that micro-batch (compare the output with the source: spark-eos verify), and "
    "begin with a new checkpoint, at the offsets in the file of 'offsets' that has its number. Other sinks of the "
    "function that have later micro-batches already get those twice."
)


def left_behind(batch: int, last: Decision) -> ProtocolStop:
    """The error where a write within foreachBatch failed half-way, and Spark went on all the same."""
    return ProtocolStop(
        "EOS_WRITE_LEFT_BEHIND",
        f"The write of micro-batch {last.batch} lost {len(last.lost)} of its {len(last.written)} transactions, and was "
        f"not repeated: Spark is at micro-batch {batch}.",
        hint=_SWALLOWED,
        batch=batch,
    )


def never_written(batch: int, unwritten: int) -> ProtocolStop:
    """The error where a write within foreachBatch failed, and Spark went on all the same."""
    return ProtocolStop(
        "EOS_WRITE_LEFT_BEHIND",
        f"The write of micro-batch {unwritten} failed, and was not repeated: Spark is at micro-batch {batch}.",
        hint=_SWALLOWED,
        batch=batch,
    )


def check_written(head: Head, batch: int) -> None:
    """Raise ProtocolStop where a write of an earlier micro-batch failed, and Spark went on all the same."""
    if head.unwritten is not None and head.unwritten < batch:
        raise never_written(batch, head.unwritten)


def lost_head() -> LedgerError:
    """The error where the brokers know of a write that the ledger does not know."""
    return LedgerError(
        "EOS_LEDGER_HEAD_LOST",
        "The ledger knows nothing of this write, but the brokers know that it was done, at least in part.",
        hint="The ledger topic was lost, or is another one (option 'ledger.topic'): put it back. Otherwise compare the "
        "output with the input, and write what is missing under another job.id. Within foreachBatch, write it by other "
        "means, then begin with a new checkpoint, at the offsets in the newest file of 'offsets'.",
    )


def heads_lost(head: Head, known: str) -> LedgerError:
    """The error where the brokers know of decisions, or of runs, that are newer than the newest head; ``known``: by
    what."""
    return LedgerError(
        "EOS_LEDGER_TRUNCATED",
        f"The newest head of the query is of generation {head.generation}, but the brokers know {known}: the ledger "
        "has lost its newest records, as after an unclean leader election.",
        hint=f"Bring back the replica that has them. {OR_COMPARE}",
        generation=head.generation,
    )


def decision_lost(head: Head, done: int) -> LedgerError:
    """The error where a micro-batch is committed, and the newest head knows of none as late as that."""
    last = "none" if head.decision is None else f"micro-batch {head.decision.batch}"
    return LedgerError(
        "EOS_LEDGER_TRUNCATED",
        f"Micro-batch {done} is committed, but the last decision in the ledger is {last}: the ledger has lost its "
        "newest records, as after an unclean leader election.",
        hint=f"Bring back the replica that has them. {OR_COMPARE}",
        generation=head.generation,
    )


def missing_head(batch: int) -> LedgerError:
    return LedgerError(
        "EOS_LEDGER_HEAD_MISSING",
        f"The checkpoint is at micro-batch {batch}, but the ledger knows nothing of this query.",
        hint="Either the ledger topic was lost or is another one (option 'ledger.topic'; 'spark-eos status' lists the "
        "queries in one), or the checkpoint comes from another sink. To begin a ledger here, and so take it over, "
        f"set 'ledger.begin' to {batch}; it counts for that micro-batch only. It repeats no "
        "row if the previous owner of the checkpoint left no micro-batch unfinished: each in 'offsets' is in "
        f"'commits', too, except {batch}, which this start has planned.",
        batch=batch,
    )


def lost_first(batch: int) -> LedgerError:
    """The error for a query's first micro-batch, where the ledger does not know the query and the brokers do."""
    return LedgerError(
        "EOS_LEDGER_HEAD_LOST",
        "The ledger knows nothing of this query, but the brokers know of its transactions: it has run before, and "
        f"micro-batch {batch}, at which its checkpoint is, may be decided.",
        hint="The ledger topic was lost, or is another one (option 'ledger.topic'; 'spark-eos status' lists the "
        "queries in one): put it back. Do not set 'ledger.begin', by which the micro-batch would be written once more. "
        f"{OR_COMPARE}",
        batch=batch,
    )


def superseded(run: str, head: Head) -> Superseded:
    found = halted(head)
    if found is not None:
        return _halted(found, head.marks)
    if head.run == NOBODY and head.closed_by_operator:
        return Superseded(
            "EOS_CLOSED_BY_OPERATOR",
            f"Run {run} of this query was closed by a command: 'spark-eos recover', 'replay' or 'mirror'.",
            hint="Nothing is lost, and it does not start again by itself, as somebody may have begun elsewhere what it "
            "would do once more. If it is to go on from this checkpoint, start it again.",
            run=run,
        )
    if head.run == NOBODY:
        return Superseded(
            "EOS_RUN_CLOSED",
            f"Run {run} of this query was closed after a micro-batch failed or was stopped.",
            hint="Nothing is lost: the next start replays the batch.",
            run=run,
        )
    each = head.marks.each
    what, hint = "this query", "The same checkpoint, or the same job, was started twice"
    if each is not None and each.query.startswith(INGESTS):
        what = f"{each.query} into {each.name}"
        hint = "The ingest was started twice under the same name, with the same topic"
    return Superseded(
        "EOS_SUPERSEDED",
        f"Run {run} of {what} was replaced by run {head.run} (generation {head.generation}).",
        hint=f"{hint}: one start goes on, this one stops. Nothing is doubled. 'spark-eos status' says which run "
        "goes on.",
        run=run,
        by=head.run,
    )


#: The condition of rows that were committed and are not visible.
ROWS_MISSING = "EOS_ROWS_MISSING"


def rows_missing(missing: Missing, *, batch: int | None = None, more: int = 0) -> ProtocolStop:
    """The error where rows of a committed transaction were aborted in a partition; ``batch``: its micro-batch, if that
    is known, and ``more``: in how many places besides."""
    return ProtocolStop(
        "EOS_ROWS_MISSING",
        f"Transaction {missing.transaction}{'' if batch is None else f' of micro-batch {batch}'} was committed, but "
        f"its rows from offset {missing.offset} of {missing.topic}-{missing.partition} on had been aborted there by "
        f"then{f'; so in {more} more places' if more else ''}: readers never see them.",
        hint="Somebody has ended it in that partition alone, as kafka-transactions.sh abort does; 'spark-eos "
        "recover' does not. Compare the output with the source for the last micro-batch (spark-eos verify), and "
        "write the missing rows by other means; then begin with a new checkpoint, at the offsets where that "
        "micro-batch ends, or, for a batch write, with another job.id. With this one, every start stops here.",
        transactional_id=missing.transaction,
        topic=missing.topic,
        partition=missing.partition,
        offset=missing.offset,
    )


def check_missing(head: Head) -> None:
    """Raise ProtocolStop where the head notes that rows of the query are missing."""
    if head.marks.missing is not None:
        raise rows_missing(head.marks.missing)


def check_halts(head: Head | None, topic: str | None) -> None:
    """Raise Superseded or ProtocolStop where the head bears a mark that this start must not get past. ``topic``: where
    it is to write to; None where a column says so."""
    found = None if head is None else marked(head, topic)
    if found is not None:
        raise stop_of(found, head, Start(None, topic=topic))


def stop_of(found: Status, head: Head | None, start: Start) -> EosError:
    """The error of a start that stops by what was ``found`` of its head (`spark_eos.protocol.status.status`)."""
    batch = start.batch or 0
    if head is None:
        return missing_head(batch)
    last = head.decision
    if found is Status.CHECKPOINT_BEHIND and last is not None:
        return checkpoint_behind(last, batch)
    if found is Status.CHECKPOINT_AHEAD and last is not None:
        return left_behind(batch, last) if start.in_foreach_batch else checkpoint_ahead(batch, last)
    if found in HALTED:
        return _halted(found, head.marks)
    if found is Status.ROWS_MISSING and head.marks.missing is not None:
        return rows_missing(head.marks.missing)
    if found is Status.OTHER_TOPIC:
        return _other_topic(head.marks.topic or "", start.topic)
    if found is Status.HEADS_LOST:
        return decision_lost(head, batch - 1)
    if found is Status.PREFIX_CHANGED:
        return _prefix_changed(head.prefix, start.prefix or "")
    if found is Status.GIVEN_UP:
        return never_written(batch, head.given_up or 0)
    assert found is Status.SUPERSEDED
    return superseded(start.run or "", head)


def _other_topic(only: str, topic: str | None) -> ProtocolStop:
    return ProtocolStop(
        "EOS_REPLAY_OTHER_TOPIC",
        f"The checkpoint was made by 'spark-eos replay' for the topic {only}, and the query now writes to "
        f"{topic if topic is not None else 'the topics of a column'}.",
        hint=f"Nothing was written. Set option 'topic' to {only}: its rows are in the other topic already.",
        topic=only,
    )


def _prefix_changed(was: str, now: str) -> LedgerError:
    return LedgerError(
        "EOS_LEDGER_PREFIX_CHANGED",
        f"The query has written under the transactional id prefix '{was}', and now has '{now}'.",
        hint="Put 'transactionalIdPrefix' back: under another one, a run that is still alive could not be fenced. "
        "To change it, let the query end under the old one, its last micro-batch committed; then begin with a new "
        f"checkpoint: {FROM_GROUP}. 'spark-eos recover' ends what the query has open under the old one.",
        was=was,
        now=now,
    )


def _halted(found: Status, marks: Marks) -> Superseded:
    successor, unfinished = marks.successor, marks.unfinished
    if successor is not None:
        return Superseded(
            "EOS_QUERY_RETIRED",
            f"This query was retired, by 'spark-eos replay' or as a mirror: {goes_on(successor)}.",
            hint="Start the query with that checkpoint. If it stops with EOS_REPLAY_UNFINISHED, the replay was "
            "interrupted: run the command that the error names. With this checkpoint, rows would be doubled.",
            by=successor.query,
        )
    assert unfinished is not None
    if found is Status.DROP_UNFINISHED:
        return Superseded(
            "EOS_DROP_UNFINISHED",
            f"'spark-eos recover --drop-planned' of micro-batch {unfinished.dropped} has begun and is not finished.",
            hint=f"Nothing was written. Finish it: {finishing(unfinished)}",
        )
    return Superseded(
        "EOS_REPLAY_UNFINISHED",
        f"A replay of query {unfinished.of} to {unfinished.to} has begun and is not finished.",
        hint=f"Nothing was written. Finish it: {finishing(unfinished)}",
    )


def goes_on(successor: Successor) -> str:
    """Who does, in place of a query that was retired."""
    if not successor.query:
        return "'spark-eos mirror position' has closed it for good, and a new checkpoint goes on in its place"
    return f"query {successor.query}, with the checkpoint {successor.checkpoint}, goes on in its place"


def finishing(unfinished: Unfinished) -> str:
    """The command that finishes a replay, or the drop of a micro-batch."""
    # Whoever may write to the ledger could else have a shell run what somebody copies from the error.
    checkpoint, to = shlex.quote(unfinished.checkpoint), shlex.quote(unfinished.to)
    if unfinished.drops:
        return f"spark-eos --bootstrap-servers … recover {checkpoint} --drop-planned --yes"
    target = "--in-place" if unfinished.in_place else f"--new {to}"
    return f"spark-eos --bootstrap-servers … replay {checkpoint} {target} --finish --yes"


def checkpoint_behind(last: Decision, batch: int) -> ProtocolStop:
    """The error for a checkpoint at ``batch``, which is before the last decision."""
    parameters = {"batch": batch, "decided": last.batch, "offsets": last.offsets}
    if is_untold(last):
        return ProtocolStop(
            "EOS_CHECKPOINT_BEHIND",
            f"The checkpoint is at micro-batch {batch}, but the query's ledger begins behind micro-batch {last.batch}.",
            hint="The checkpoint is older than the one with which that was begun: going on could write rows twice. Use "
            f"the newest checkpoint. {OR_COMPARE}",
            **parameters,
        )
    if not is_visible(last):
        return ProtocolStop(
            "EOS_CHECKPOINT_BEHIND",
            f"The checkpoint is at micro-batch {batch}, but micro-batch {last.batch} of this query is decided.",
            hint="The checkpoint is older than the output: going on would write rows twice. Use the newest checkpoint, "
            f"and do not begin with a new one: {what_waits(last)}. The group's offsets are past those rows.",
            **parameters,
        )
    return ProtocolStop(
        "EOS_CHECKPOINT_BEHIND",
        f"The checkpoint is at micro-batch {batch}, but micro-batch {last.batch} of this query is decided: "
        f"{where_it_ended(last)}.",
        hint="The checkpoint is older than the output, as after a restore from a backup: going on would write rows "
        "twice. Use the newest checkpoint. If it is gone, and nothing goes on with it, begin with a new one, as all "
        f"that was decided is visible: {FROM_GROUP}; so do the offsets above as 'startingOffsets'.",
        **parameters,
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
        f"It is not known whether micro-batch {batch} was decided: the ledger could not be written and read back.",
        hint="Nothing is lost: start the query again from this checkpoint once the cluster is healthy; that start "
        "determines the outcome.",
    )


def decided_unheard(batch: int, transactional_id: str) -> Unclear:
    return Unclear(
        "EOS_DECISION_UNCLEAR",
        f"Transaction {transactional_id} of micro-batch {batch} is committed, so the micro-batch was decided; but the "
        "ledger, as far as it could be read, does not say so.",
        hint="Nothing is lost: start the query again from this checkpoint once the cluster is healthy; that start "
        "determines the outcome.",
        transactional_id=transactional_id,
    )


def ledger_busy() -> Unclear:
    return Unclear(
        "EOS_LEDGER_BUSY",
        "The run could not publish itself in the ledger.",
        hint="Nothing was written: start the query again once the cluster is healthy.",
    )
