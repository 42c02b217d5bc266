"""Mistakes of whoever reads and writes the ledger, put back one at a time: the simulation must see each."""

from __future__ import annotations

import pytest

from . import invariants, ledger_mistakes, operator, situations
from .test_known_mistakes import Mistake, see

#: What a read that is not true may break first; the last but one where a start takes it for a loss of the ledger.
_UNTRUE = (
    invariants.OWN_GENERATION,
    invariants.ONE_DECISION,
    invariants.NOT_REWRITTEN,
    invariants.NOT_DOUBLED,
    invariants.NEVER_ABORTED,
    invariants.TRUE_STOPS,
    operator.NOTHING_HELD,
)

MISTAKES = (
    Mistake(ledger_mistakes.half_a_search_is_kept, _UNTRUE, situations.LEDGER_HELD, seed=135),
    Mistake(ledger_mistakes.whatever_end_is_told, (*_UNTRUE, invariants.OFFSETS), situations.LEADER_STALE),
    Mistake(ledger_mistakes.published_on_whatever_was_read, _UNTRUE, situations.LEADER_STALE, seed=294),
    Mistake(ledger_mistakes.the_end_by_fetch, _UNTRUE, situations.LEADER_BEHIND),
    Mistake(ledger_mistakes.only_the_present_partition, _UNTRUE, situations.LEDGER_GROWN),
    Mistake(ledger_mistakes.only_the_partitions_known, _UNTRUE, situations.GROWN_WHILE_IT_BEGINS),
    Mistake(ledger_mistakes.a_new_ledger_for_the_first_micro_batch, _UNTRUE, situations.LEDGER_LOST),
    Mistake(ledger_mistakes.taken_as_the_ledger_that_was_read, _UNTRUE, situations.LEDGER_REPLACED, seed=1065),
    Mistake(ledger_mistakes.taken_as_the_coordinator_knows_it, _UNTRUE, situations.LEDGER_REPLACED, seed=1065),
    Mistake(ledger_mistakes.traces_of_the_first_run_only, _UNTRUE, situations.LEDGER_LOST, seed=427),
    Mistake(
        ledger_mistakes.complete_before_it_is_committed,
        (invariants.TRUE_VERDICTS, invariants.NEVER_ABORTED, invariants.NOT_LOST),
        situations.BATCH_WRITES,
    ),
    Mistake(ledger_mistakes.offsets_as_well_as_it_goes, (invariants.OFFSETS,), situations.OFFSETS_REFUSED),
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_the_mistake_is_seen(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the mistake put back, some schedule breaks an invariant that stands against it; without, it breaks none."""
    see(mistake, monkeypatch)
