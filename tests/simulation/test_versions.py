"""Clusters whose transaction.version is 0, 1 or 2, or changes while a query runs."""

from __future__ import annotations

import pytest

from .breaking import put_back
from .cluster_mistakes import aborted_without_fencing
from .ledger import PREFIX, QUERY
from .plan import Plan
from .play import Run, open_at_rest, play
from .schedule import Schedule
from .world import Fault, Strike


def _held(version: int) -> bool:
    """Whether something is open at the end of two minutes without anything to commit. The query is started once more
    while a task has written to one of its two partitions, and is cut off. It goes on when the new run has long aborted
    that, and dies."""
    task = f"{PREFIX}-{QUERY}-1-1-0"
    task_dies = Fault(0, Strike.TASK_DIES, 1, f"produce {task}")
    cut_off = Fault(0, Strike.STALL, 50_000, f"add {task}", task_dies)
    faults = (Fault(0, Strike.SECOND_DRIVER, 0, f"produce {task}", cut_off),)
    plan = Plan((4,), (2,), lingering=True, idle_ms=120_000, timeout_ms=900_000, transaction_version=version)
    run = Run(Schedule(plan, faults))
    is_held = bool(open_at_rest(run)[0])
    assert run.world.struck[Strike.STALL] == 1
    return is_held


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_task_of_an_earlier_run_that_goes_on_holds_no_reader(version: int) -> None:
    """Where an abort does not fence it, its transactional id is taken."""
    assert not _held(version)
    with put_back(aborted_without_fencing):
        assert _held(version) is (version < 2)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_quiet_query_on_each_version(version: int) -> None:
    """Without faults, one start of the query is enough."""
    run = play(Schedule(Plan(rows=(3, 4, 0, 6), tasks=(2,), transaction_version=version)))
    assert run.query.stops == ["done"]
    assert {w.endtxn_version for d in run.watch.decided.values() for w in d.written} == {5 if version == 2 else 4}


def test_a_micro_batch_may_have_transactions_of_both_kinds() -> None:
    """The feature is raised while the first task writes; processes go by what each has heard of it last."""
    change = Fault(0, Strike.FEATURE_CHANGES, 0, f"produce {PREFIX}-{QUERY}-1-0-0")
    run = play(Schedule(Plan(rows=(4, 4), tasks=(2,), transaction_version=1, keeps=True), (change,), quantum=1000))
    kinds = [{w.endtxn_version for w in head.decision.written} for head in run.watch.heads if head.decision is not None]
    assert {4, 5} in kinds
    assert run.query.stops == ["done"]
