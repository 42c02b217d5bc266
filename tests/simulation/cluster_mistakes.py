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
from .breaking import instead_of
from .coordinator import Cluster
from .ledger_mistakes import nobody_looks_back
from .partition_log import PartitionLog


@instead_of(end_module, "_described_end")
def abort_one_epoch_on_believed(described_end: Any, w: Any, description: Any) -> Any:
    """What is described as aborted at the next epoch counts as lost, as where every end fences."""
    if description.pair == replace(w.pair, epoch=w.pair.epoch + 1):
        return end_module._AT_THE_NEXT_EPOCH.get(description.state)
    return described_end(w, description)


def open_once_more_taken_for_broken(patch: pytest.MonkeyPatch) -> None:
    """A decided transaction that is described as open, and is not open in its partitions, has lost its rows."""
    patch.setattr(end_module, "_ended_before", lambda *_: {})


@instead_of(ledger.SimulatedCoordinator, "_end")
def ended_by_the_version_at_hand(end: Any, self: Any, pair: Any, _: int, commit: bool) -> EndTxnAnswer:
    """A transaction is ended by the version that the process would choose for a new one."""
    return end(self, pair, self.endtxn_version(), commit)


def handed_over_wherever_it_begins(patch: pytest.MonkeyPatch) -> None:
    """What the coordinator describes is handed over, whatever its partitions' leaders have of it; a decision that comes
    late, which would notice it, asks for the first record only."""
    patch.setattr(tasks, "check_begins", lambda *_: None)
    patch.setattr(end_module, "_noted", lambda w: {(w.probe.topic, w.probe.partition): w.probe})
    nobody_looks_back(patch)


def aborted_without_fencing(patch: pytest.MonkeyPatch) -> None:
    """What earlier runs have left open is aborted, and its ids are left to whoever has them."""
    patch.setattr(abort_module, "end_for_good", abort_module.abort_all)


def _handed_over_whatever_its_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tasks, "check_ends", lambda *_: None)


@instead_of(ledger, "_state", _handed_over_whatever_its_end)
def ends_not_compared(state_of: Any, log: PartitionLog) -> Any:
    """A transaction that begins where it should is whole."""
    state = state_of(log)
    return None if state is None else replace(state, lasts={})


@instead_of(end_module, "_problem")
def whatever_begins_elsewhere_is_broken(problem: Any, state: Any, pair: Any, begin: int | None, noted: Any) -> Any:
    """A transaction that begins before its first row has lost rows, as one that begins after it has."""
    elsewhere = begin is not None and noted is not None and begin != noted.offset
    return "it has begun again" if elsewhere else problem(state, pair, begin, noted)


def _never_there(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Absences, "is_there", lambda *_: None)


@instead_of(Absences, "is_gone", _never_there)
def missing_since_the_first_time(_: Any, self: Any, place: Any, now: float, **__: bool) -> bool:
    """A place is as long missing as it was for the first time, whatever was answered since."""
    since, _ = self._spans.setdefault(place, (now, now))
    return now - since > self._least


@instead_of(end_module, "_state_of")
def asked_for_ever(_: Any, ports: Any, topic: str, partition: int, *__: Any) -> Any:
    """A leader that names no producer has not answered, whatever its log says."""
    for _ in ports.retrying():
        state = ports.data.partition(topic, partition)
        if state is not None:
            return state
    raise end_module._silent(topic, partition)


def topics_known_by_name(patch: pytest.MonkeyPatch) -> None:
    """A topic is the same one whenever it has the same name."""
    patch.setattr(Cluster, "topic_id", lambda self, topic: topic)


@instead_of(end_module, "fate_by_log")
def gone_taken_for_lost(fate_by_log: Any, *of: Any, **more: Any) -> Any:
    """Where the log does not have the place any more, one outcome is as likely as the other."""
    fate = fate_by_log(*of, **more)
    return Visibility.ABORTED if fate is Visibility.EXPIRED else fate
