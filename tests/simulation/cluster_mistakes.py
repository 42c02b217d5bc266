"""Mistakes with what brokers do, as patches that put them back: with a transaction.version that is 0 or 1, or changes,
and with output topics that are deleted, or lose records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spark_eos.ledger.lookup import Absences
from spark_eos.protocol import abort as abort_module
from spark_eos.protocol import end as end_module
from spark_eos.protocol.ports import EndTxnAnswer, Visibility

from . import ledger
from . import task as tasks
from .breaking import Patch
from .coordinator import Cluster
from .ledger_mistakes import nobody_looks_back
from .partition_log import PartitionLog


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


def ends_not_compared(patch: pytest.MonkeyPatch) -> None:
    """A transaction that begins where it should is whole."""
    state = ledger._state

    def without_ends(log: PartitionLog) -> Any:
        found = state(log)
        return None if found is None else replace(found, lasts={})

    patch.setattr(ledger, "_state", without_ends)
    patch.setattr(tasks, "check_ends", lambda *_: None)


def whatever_begins_elsewhere_is_broken(patch: pytest.MonkeyPatch) -> None:
    """A transaction that begins before its first row has lost rows, as one that begins after it has."""
    problem = end_module._problem

    def broken(state: Any, pair: Any, begin: int | None, noted: Any) -> str | None:
        elsewhere = begin is not None and noted is not None and begin != noted.offset
        return "it has begun again" if elsewhere else problem(state, pair, begin, noted)

    patch.setattr(end_module, "_problem", broken)


def missing_since_the_first_time(patch: pytest.MonkeyPatch) -> None:
    """A place is as long missing as it was for the first time, whatever was answered since."""

    def is_gone(self: Any, place: Any, now: float, **_: bool) -> bool:
        since, _ = self._spans.setdefault(place, (now, now))
        return now - since > self._least

    patch.setattr(Absences, "is_gone", is_gone)
    patch.setattr(Absences, "is_there", lambda *_: None)


def asked_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A leader that names no producer has not answered, whatever its log says."""

    def state_of(ports: Any, topic: str, partition: int, *_: Any) -> Any:
        for _ in ports.retrying():
            state = ports.data.partition(topic, partition)
            if state is not None:
                return state
        raise end_module._silent(topic, partition)

    patch.setattr(end_module, "_state_of", state_of)


def topics_known_by_name(patch: pytest.MonkeyPatch) -> None:
    """A topic is the same one whenever it has the same name."""
    patch.setattr(Cluster, "topic_id", lambda self, topic: topic)


def gone_taken_for(found: Visibility) -> Patch:
    """Where the log does not have the place any more, one outcome is as likely as the other."""

    def put_back(patch: pytest.MonkeyPatch) -> None:
        by_log = end_module.fate_by_log
        told = lambda *of, **more: found if (fate := by_log(*of, **more)) is Visibility.EXPIRED else fate  # noqa: E731
        patch.setattr(end_module, "fate_by_log", told)

    return put_back
