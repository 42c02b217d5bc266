"""A query from a Delta table to a topic, killed while tasks write and while the driver decides, while others append to
the table and compact it: started again, each row is in the topic once.

``make test`` runs one of the points, by a seed (SPARK_EOS_SEED); ``make chaos`` runs all of them.
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from tests.support import query
from tests.support.killed_program import running
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


class Others:
    """Writers of the table, who also compact it, until the end of the block. ``values``: of all rows so far."""

    def __init__(self, table: Path) -> None:
        self.values: list[str] = []
        self._table, self._end = str(table), threading.Event()
        self._thread = threading.Thread(target=self._work)

    def append(self, rows: int) -> None:
        """A version with one file."""
        values = [f"{len(self.values) + n}" for n in range(rows)]
        write_deltalake(self._table, pa.table({"value": values}), mode="append")
        self.values += values

    def _work(self) -> None:
        while not self._end.wait(0.2):
            self.append(3)
            try:
                DeltaTable(self._table).optimize.compact()
            except DeltaError:
                continue  # it has met another writer

    def __enter__(self) -> Others:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


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
