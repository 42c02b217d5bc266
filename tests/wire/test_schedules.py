"""The real I/O under schedules of faults, drawn from seeds.

``SPARK_EOS_WIRE_SCHEDULES`` says how many of each scenario (100 unless told otherwise), ``SPARK_EOS_WIRE_SEED`` where
to begin. With ``SPARK_EOS_WIRE_STATE``, the begin of a file's name, a run goes on where the one before was stopped, if
the code is the same. A failure prints the seed, and the smallest schedule on the way down that still fails.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.campaign import files, fingerprint, loaded, replace_text

from .faults import Schedule, draw
from .play import PLAYS, broken, play, shrink, staged

SCHEDULES = int(os.environ.get("SPARK_EOS_WIRE_SCHEDULES", "100"))
FIRST_SEED = int(os.environ.get("SPARK_EOS_WIRE_SEED", "0"))
STATE = os.environ.get("SPARK_EOS_WIRE_STATE")

#: What decides how a schedule ends, beside the package.
_SUPPORT = ("judges/__init__", "judges/record_batches", "models/__init__", "models/replicas")
CODE = ("tests/wire/*.py", *(f"tests/support/{name}.py" for name in _SUPPORT))

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
    for seed in _seeds(name):
        schedule = draw(seed)
        failure = broken(schedule, name)
        if failure is not None:
            pytest.fail(f"{name}, seed {seed}: {failure}\nthe smallest that fails: {shrink(schedule, name)}")


def test_whatever_a_schedule_loads_is_in_the_fingerprint() -> None:
    """Of each scenario."""
    found = loaded("from tests.wire.play import *\nfor name in PLAYS: play(Schedule(1), name)")
    assert len(found) > 30
    assert found <= set(files(CODE))


def _seeds(name: str) -> Iterator[int]:
    """Those that are left of this scenario's; the next one is noted before it runs, with the code that runs it."""
    last, code = FIRST_SEED + SCHEDULES, fingerprint(CODE)
    noted = Path(f"{STATE}-{name}") if STATE else None
    seed, *of = (noted.read_text().split() if noted is not None and noted.exists() else []) or ["0"]
    first = int(seed) if of == [code] and int(seed) < last else FIRST_SEED
    for seed in range(first, last):
        if noted is not None:
            replace_text(noted, f"{seed} {code}")
        yield seed
    if noted is not None:
        noted.unlink()


def _traced(seed: int, name: str) -> list[str]:
    with staged(draw(seed)) as stage:
        PLAYS[name](stage)
        return stage.world.trace
