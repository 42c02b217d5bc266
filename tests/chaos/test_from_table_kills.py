"""A query from a Delta table to a topic, killed while tasks write and while the driver decides, while others append to
the table and compact it: started again, each row is in the topic once.

``make test`` runs one of the points, by a seed (SPARK_EOS_SEED); ``make chaos`` runs all of them.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.support import query
from tests.support.killed_program import running
from tests.support.other_writer import OtherWriter
from tests.support.query import Spec, expected
from tests.support.waiting import wait_for

SECONDS = 180.0
FILES, ROWS, LIMIT = 6, 50, 2
#: In the second micro-batch. Each has two files, and so two tasks.
FAULTS = {
    **{point: f"{point}=hold@3" for point in ("prepare.begun", "prepare.wrote", "prepare.flushed", "prepare.prepared")},
    **{point: f"{point}=hold@2" for point in ("commit.entered", "commit.taken", "commit.verified", "commit.decided")},
    **{point: f"{point}=hold@2" for point in ("commit.between", "commit.ended", "commit.cleaned")},
}


class Others(OtherWriter):
    """``values``: of all rows so far."""

    def __init__(self, table: Path) -> None:
        super().__init__(table, 0.2)
        self.values: list[str] = []

    def append(self, rows: int) -> None:
        """A version with one file."""
        values = [f"{len(self.values) + n}" for n in range(rows)]
        write_deltalake(self.table, pa.table({"value": values}), mode="append")
        self.values += values

    def write(self) -> None:
        """A version with one small file."""
        self.append(3)


def strike(spark, view, name, folder: Path, point: str) -> None:
    """Kill it at the point, driver, JVM and workers, drain it by a restart, and count."""
    table = folder / "table"
    others = Others(table)
    for _ in range(FILES):
        others.append(ROWS)
    spec = Spec(view.bootstrap_servers, "", name, str(folder / "checkpoint"), "", LIMIT, table=str(table))
    with others:
        with running(spec, FAULTS[point], folder) as victim:
            victim.wait_at(point)
            victim.kill()
        before = len(others.values)
        wait_for(lambda: len(others.values) > before, "what others append", SECONDS)
    started = query.start(spark, spec)
    assert started.awaitTermination(SECONDS), "the query does not end"
    wait_for(lambda: not view.held(name), "the markers")
    found = Counter((row.value or b"").decode() for row in view.rows(name))
    assert found == Counter(map(expected, others.values))


@pytest.fixture
def target(topic) -> str:
    name: str = topic(2)
    return name


def test_a_kill_loses_and_doubles_nothing(spark, view, target, tmp_path) -> None:
    """One of the points, for every day."""
    chance = random.Random(os.environ.get("SPARK_EOS_SEED", "from a table"))
    strike(spark, view, target, tmp_path, chance.choice(list(FAULTS)))


@pytest.mark.chaos
@pytest.mark.parametrize("point", FAULTS)
def test_a_kill_at_every_point_loses_and_doubles_nothing(spark, view, target, tmp_path, point) -> None:
    """The whole set."""
    strike(spark, view, target, tmp_path, point)
