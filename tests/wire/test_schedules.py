"""The real I/O under schedules of faults, drawn from seeds.

``SPARK_EOS_WIRE_SCHEDULES`` says how many of each scenario (100 unless told otherwise), ``SPARK_EOS_WIRE_SEED`` where
to begin. With ``SPARK_EOS_WIRE_STATE``, the begin of a file's name, a run goes on where the one before has ended, if
the code is the same. A failure prints the seed, and the smallest schedule on the way down that still fails.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from tests.simulation.campaign import Campaign, Failed, Played

from .faults import Schedule, draw
from .play import PLAYS, play, shrink, staged

SCHEDULES = int(os.environ.get("SPARK_EOS_WIRE_SCHEDULES", "100"))
FIRST_SEED = int(os.environ.get("SPARK_EOS_WIRE_SEED", "0"))
STATE = os.environ.get("SPARK_EOS_WIRE_STATE")

_ADD_PARTITIONS = 24


@pytest.mark.parametrize(("level", "old"), [(2, False), (1, False), (0, True)])
def test_a_quiet_cluster_takes_everything(level: int, old: bool) -> None:
    """Without faults, every scenario ends with no error at all. With transaction.version 0 and 1, each partition is
    added once to each transaction, and nothing is asked for each batch."""
    for name in PLAYS:
        stage = play(Schedule(1, level=level, old=old), name)
        assert stage.cluster.struck == []
        begun = sum(entry.begun for entry in stage.cluster.transactions.entries.values())
        assert stage.cluster.asked[_ADD_PARTITIONS] <= (0 if level > 1 else begun * stage.scene.partitions)
        assert (stage.cluster.asked[_ADD_PARTITIONS] > 0) == (level < 2)


def test_the_same_schedule_runs_the_same_way() -> None:
    """A schedule decides everything: a failure can be run again."""
    for name in PLAYS:
        for seed in range(2):
            first, second = (_traced(seed, name) for _ in range(2))
            assert first == second


@pytest.mark.parametrize("name", PLAYS)
def test_schedules_from_seeds(name: str) -> None:
    """Rows are there once and in order, and what callers are told is true, whatever happens to connections."""
    campaign, state = Campaign(name, partial(_played, name)), Path(f"{STATE}-{name}") if STATE else None
    progress, failure = campaign.run(campaign.begin(state, FIRST_SEED), SCHEDULES, state)
    assert failure is None, f"{name}, seed {FIRST_SEED + progress.passed}: {failure}"


def _played(name: str, seed: int) -> Played:
    """The schedule of a seed. Raises Failed, with the smallest one that breaks."""
    schedule = draw(seed)
    try:
        stage = play(schedule, name)
    except Exception as error:
        raise Failed(f"{error!r}\nthe smallest that fails: {shrink(schedule, name)}") from error
    struck = Counter(fault.kind.value for fault in stage.cluster.struck)
    return Played(stage.cluster.asked.total(), round(1000 * stage.world.now), struck)


def _traced(seed: int, name: str) -> list[str]:
    with staged(draw(seed)) as stage:
        PLAYS[name](stage)
        return stage.world.trace
