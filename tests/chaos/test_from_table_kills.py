"""A query from a Delta table to a topic, and the job delta_to_kafka past the JVM, killed while tasks write and while
the driver decides, while others append to the table and compact it: started again, each row is in the topic once. The
same of a table's changes, while others change it: each is in the topic once, and in its key's order.

``make test`` runs one of the points, by a seed (SPARK_EOS_SEED); ``make chaos`` runs all of them.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from demo import processes
from tests.support import query
from tests.support.change_feed import ChangedTable, by_library, check_order, state_after
from tests.support.change_feed import written as written_changes
from tests.support.delta import ToKafka
from tests.support.job_program import drained, held_at
from tests.support.killed_program import running
from tests.support.other_writer import OtherWriter
from tests.support.query import Spec, expected
from tests.support.table_kinds import Delta
from tests.support.waiting import wait_for

SECONDS = 180.0
FILES, ROWS, LIMIT = 6, 50, 2
CHANGES = 10
SESSION = """\
spark: {spark.master: "local[2]", spark.ui.enabled: false, spark.driver.host: 127.0.0.1,
        spark.driver.bindAddress: 127.0.0.1}
"""
#: In the second micro-batch. Each has two files, and so two tasks.
FAULTS = {
    **{point: f"{point}=hold@3" for point in ("prepare.begun", "prepare.wrote", "prepare.flushed", "prepare.prepared")},
    **{point: f"{point}=hold@2" for point in ("commit.entered", "commit.taken", "commit.verified", "commit.decided")},
    **{point: f"{point}=hold@2" for point in ("commit.between", "commit.ended", "commit.cleaned")},
}


class Others(OtherWriter):
    """``versions``: how many it has written; ``values``: of all rows so far."""

    def __init__(self, table: Delta) -> None:
        super().__init__(table, 0.2)
        self._path = str(table.path)
        self.versions = 0
        self.values: list[str] = []

    def append(self, rows: int) -> None:
        """A version with one file."""
        values = [f"{len(self.values) + n}" for n in range(rows)]
        write_deltalake(self._path, pa.table({"value": values}), mode="append")
        self.values += values
        self.versions += 1

    def write(self) -> None:
        """A version with one small file."""
        self.append(3)


class Changing(OtherWriter):
    """``versions``: see `Others`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Delta(folder), 0.2)
        self.changed = ChangedTable(folder / "table", "kills", ["p"])
        self.versions = 0
        for _ in range(CHANGES):
            self.write()

    def write(self) -> None:
        """Inserts, updates, deletes, a merge, an overwrite or OPTIMIZE."""
        self.changed.change()
        self.versions += 1

    def check(self, view, name: str, before: str = "") -> None:
        """Consumers of the topic see what another reader of the table does, in each key's order. ``before``: what the
        query puts before each value."""
        wait_for(lambda: not view.held(name), "the markers")
        changes = written_changes(view.rows(name))
        expected = by_library(self.changed.path, 0)
        assert Counter(changes) == Counter({(*key, before + value): n for (*key, value), n in expected.items()})
        check_order(changes)
        assert state_after(changes) == {key: before + value for key, value in self.changed.state.items()}


def filled(folder: Path) -> Others:
    """The other writer of a table that has `FILES` files. ``folder``: where the folder ``table`` is."""
    others = Others(Delta(folder))
    for _ in range(FILES):
        others.append(ROWS)
    return others


def killed_beside(others: Others | Changing, kill: Callable[[], None]) -> None:
    """Kill the query while others write, who go on until there is more."""
    with others:
        kill()
        before = others.versions
        wait_for(lambda: others.versions > before, "what others write", SECONDS)


def strike(spark, view, name, folder: Path, point: str) -> None:
    """Kill it at the point, driver, JVM and workers, drain it by a restart, and count."""
    table = folder / "table"
    others = filled(folder)
    spec = Spec(view.bootstrap_servers, "", name, str(folder / "checkpoint"), "", LIMIT, table=str(table))

    def kill() -> None:
        with running(spec, FAULTS[point], folder) as victim:
            victim.wait_at(point)
            victim.kill()

    killed_beside(others, kill)
    started = query.start(spark, spec)
    assert started.awaitTermination(SECONDS), "the query does not end"
    assert written(view, name) == Counter(map(expected, others.values))


def strike_job(view, name, folder: Path, point: str) -> None:
    """The same of the job, whose session has no jars of Delta."""
    job = ToKafka(None, view.bootstrap_servers, name, folder)
    others = filled(folder)
    config = job.config(source=f", startingVersion: 0, maxFilesPerTrigger: {LIMIT}", more=SESSION)

    def kill() -> None:
        with held_at(FAULTS[point], "delta_to_kafka", config, folder) as program:
            processes.kill(program.pid)
            program.wait()

    killed_beside(others, kill)
    drained("delta_to_kafka", config, folder)
    assert written(view, name) == Counter(others.values)


def strike_changes(spark, view, name, folder: Path, point: str) -> None:
    """The same of the table's changes."""
    others = Changing(folder)
    table, checkpoint = str(folder / "table"), str(folder / "checkpoint")
    spec = Spec(view.bootstrap_servers, "", name, checkpoint, "", LIMIT, table=table, changes=True)

    def kill() -> None:
        with running(spec, of_changes(point), folder) as victim:
            victim.wait_at(point)
            victim.kill()

    killed_beside(others, kill)
    started = query.start(spark, spec)
    assert started.awaitTermination(SECONDS), "the query does not end"
    others.check(view, name, expected(""))


def strike_job_of_changes(view, name, folder: Path, point: str) -> None:
    """The same of the job."""
    job = ToKafka(None, view.bootstrap_servers, name, folder)
    others = Changing(folder)
    source = f", readChangeFeed: true, startingVersion: 0, maxFilesPerTrigger: {LIMIT}"
    config = job.config("SELECT key, value, _commit_version FROM input", source, more=SESSION, engine="duckdb")

    def kill() -> None:
        with held_at(of_changes(point), "delta_to_kafka", config, folder) as program:
            processes.kill(program.pid)
            program.wait()

    killed_beside(others, kill)
    drained("delta_to_kafka", config, folder)
    others.check(view, name)


def of_changes(point: str) -> str:
    """In the second micro-batch with rows, or the first: there is one task, and many writes."""
    return f"{point}=hold@2"


def written(view, name: str) -> Counter[str]:
    """What consumers of the topic see, when the markers are written."""
    wait_for(lambda: not view.held(name), "the markers")
    return Counter((row.value or b"").decode() for row in view.rows(name))


def of_the_day() -> str:
    """One of the points."""
    chance = random.Random(os.environ.get("SPARK_EOS_SEED", "from a table"))
    return chance.choice(list(FAULTS))


@pytest.fixture
def target(topic) -> str:
    name: str = topic(2)
    return name


def test_a_kill_loses_and_doubles_nothing(spark, view, target, tmp_path) -> None:
    """One of the points, for every day."""
    strike(spark, view, target, tmp_path, of_the_day())


def test_a_kill_of_the_job_loses_and_doubles_nothing(view, target, tmp_path) -> None:
    """One of the points, for every day."""
    strike_job(view, target, tmp_path, of_the_day())


@pytest.mark.chaos
@pytest.mark.parametrize("point", FAULTS)
def test_a_kill_at_every_point_loses_and_doubles_nothing(spark, view, target, tmp_path, point) -> None:
    """The whole set."""
    strike(spark, view, target, tmp_path, point)


@pytest.mark.chaos
@pytest.mark.parametrize("point", FAULTS)
def test_a_kill_of_the_job_at_every_point_loses_and_doubles_nothing(view, target, tmp_path, point) -> None:
    """The whole set."""
    strike_job(view, target, tmp_path, point)


def test_a_kill_loses_and_doubles_no_change_and_keeps_each_keys_order(spark, view, target, tmp_path) -> None:
    """One of the points, for every day."""
    strike_changes(spark, view, target, tmp_path, of_the_day())


@pytest.mark.chaos
@pytest.mark.parametrize("point", FAULTS)
def test_a_kill_at_every_point_loses_and_doubles_no_change(spark, view, target, tmp_path, point) -> None:
    """The whole set."""
    strike_changes(spark, view, target, tmp_path, point)


@pytest.mark.chaos
@pytest.mark.parametrize("point", FAULTS)
def test_a_kill_of_the_job_at_every_point_loses_and_doubles_no_change(view, target, tmp_path, point) -> None:
    """The whole set."""
    strike_job_of_changes(view, target, tmp_path, point)
