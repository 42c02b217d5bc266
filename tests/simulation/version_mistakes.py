"""Mistakes with clusters whose transaction.version is 0 or 1, or changes, as patches that put them back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spark_eos.protocol import abort as abort_module
from spark_eos.protocol import end as end_module
from spark_eos.protocol.ports import EndTxnAnswer

from . import ledger
from . import task as tasks
from .ledger_mistakes import nobody_looks_back


def abort_one_epoch_on_believed(patch: pytest.MonkeyPatch) -> None:
    """What is described as aborted at the next epoch counts as lost, as where every end fences."""
    judge = end_module._described_end

    def believing(w: Any, description: Any) -> Any:
        if description.pair == replace(w.pair, epoch=w.pair.epoch + 1):
            return end_module._AT_THE_NEXT_EPOCH.get(description.state)
        return judge(w, description)

    patch.setattr(end_module, "_described_end", believing)


def open_once_more_taken_for_broken(patch: pytest.MonkeyPatch) -> None:
    """A decided transaction that is described as open, and is not open in its partitions, has lost its rows."""
    patch.setattr(end_module, "_ended_before", lambda *_: {})


def ended_by_the_version_at_hand(patch: pytest.MonkeyPatch) -> None:
    """A transaction is ended by the version that the process would choose for a new one."""
    end = ledger.SimulatedCoordinator._end

    def at_hand(self: Any, pair: Any, _: int, commit: bool) -> EndTxnAnswer:
        return end(self, pair, self.endtxn_version(), commit)

    patch.setattr(ledger.SimulatedCoordinator, "_end", at_hand)


def handed_over_wherever_it_begins(patch: pytest.MonkeyPatch) -> None:
    """What the coordinator describes is handed over, whatever its partitions' leaders have of it; a decision that comes
    late, which would notice it, asks for the first record only."""
    patch.setattr(tasks, "check_begins", lambda *_: None)

    patch.setattr(end_module, "_noted", lambda w: {(w.probe.topic, w.probe.partition): w.probe})
    nobody_looks_back(patch)


def aborted_without_fencing(patch: pytest.MonkeyPatch) -> None:
    """What earlier runs have left open is aborted, and its ids are left to whoever has them."""
    patch.setattr(abort_module, "end_for_good", abort_module.abort_all)
