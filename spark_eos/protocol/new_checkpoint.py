"""What an error says about a new checkpoint in place of one that cannot be used: from where, and when not.

The decision of a micro-batch commits the offsets of `offsets.group.id`. Its rows become visible after that, transaction
by transaction, and what the broker has lost of them only by a replay of that very micro-batch. So the group's offsets
are where the output ends only while every transaction of the last decision is known to be committed. Otherwise a query
that began there would leave rows out, without anybody noticing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from spark_eos.protocol.head import Decision, Offsets, Verdict

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
