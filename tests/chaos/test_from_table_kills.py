"""A query from a Delta table to a topic, killed while tasks write and while the driver decides, while others append to
the table and compact it: started again, each row is in the topic once. The same of a table's changes, while others
change it: each is in the topic once, and in its key's order.

``make test`` kills such a query, or the job delta_to_kafka, whose steps are the same, at one of the points, by a seed
(SPARK_EOS_SEED); ``make chaos`` kills the queries at all of them.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from spark_eos.base.failpoints import IN_QUERIES
from tests.support.kills import query
from tests.support.kills.job_program import drained, killed_at
from tests.support.kills.killed_program import running
from tests.support.kills.query import Spec, expected
from tests.support.runs.case_cover import in_turn, one_for_every_day
from tests.support.tables.change_feed import ChangedTable, by_library, check_order, state_after
from tests.support.tables.change_feed import written as written_changes
from tests.support.tables.delta import ToKafka
from tests.support.tables.other_writer import OtherWriter
from tests.support.tables.table_kinds import Delta
from tests.support.waiting import TIMEOUT, wait_for

FILES, ROWS, LIMIT = 6, 50, 2
CHANGES = 10
SESSION = """\
spark: {spark.master: "local[2]", spark.ui.enabled: false, spark.driver.host: 127.0.0.1,
        spark.driver.bindAddress: 127.0.0.1}
"""
#: Files of a table that is only appended to make so many tasks in a micro-batch; changes make one.
TASKS, TASKS_OF_CHANGES = 2, 1
#: A run that dies at it leaves a decision to the next one.
DECIDED = "commit.decided"


#: Runs the query with faults until it is held at the first of them, and kills it there; the folder is for its log.
Kill = Callable[[str, Path], None]


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


def faults(point: str, tasks: int) -> str:
    """What brings the query to the point: at its start, or in the second micro-batch with rows, each of which has so
    many tasks."""
    phase, _, _ = point.partition(".")
    in_second = tasks + 1
    nth = {"open": 1, "prepare": in_second, "abort": 1}.get(phase, 2)
    return f"{point}=hold@{nth}" + (f", prepare.wrote=fail@{in_second}" if phase == "abort" else "")


def killed_beside(others: Others | Changing, point: str, tasks: int, folder: Path, kill: Kill) -> None:
    """Kill the query at the point while others write, who go on until there is more. What a run does when it opens is
    the more where the run before has left a decision."""
    with others:
        if point.startswith("open."):
            before = folder / "before"
            before.mkdir()
            kill(faults(DECIDED, tasks), before)
        kill(faults(point, tasks), folder)
        before = others.versions
        wait_for(lambda: others.versions > before, "what others write")


def killed_and_drained(
    spark, view, name, others: Others | Changing, point: str, tasks: int, folder: Path, **spec: Any
) -> None:
    """Kill the query at the point, driver, JVM and workers, and drain it by a restart. ``spec``: see there."""
    table, checkpoint = str(folder / "table"), str(folder / "checkpoint")
    made = Spec(view.bootstrap_servers, "", name, checkpoint, "", LIMIT, table=table, **spec)

    def kill(armed: str, folder: Path) -> None:
        with running(made, armed, folder) as victim:
            victim.wait_at(armed.partition("=")[0])
            victim.kill()

    killed_beside(others, point, tasks, folder, kill)
    started = query.start(spark, made)
    assert started.awaitTermination(TIMEOUT), "the query does not end"


def strike(spark, view, name, folder: Path, point: str) -> None:
    """Kill the query, and count."""
    others = filled(folder)
    killed_and_drained(spark, view, name, others, point, TASKS, folder)
    assert written(view, name) == Counter(map(expected, others.values))


def strike_job(view, name, folder: Path, point: str) -> None:
    """The same of the job, whose session has no jars of Delta."""
    job = ToKafka(None, view.bootstrap_servers, name, folder)
    others = filled(folder)
    config = job.config(source=f", startingVersion: 0, maxFilesPerTrigger: {LIMIT}", more=SESSION)
    killed_beside(others, point, TASKS, folder, lambda armed, marks: killed_at(armed, "delta_to_kafka", config, marks))
    drained("delta_to_kafka", config, folder)
    assert written(view, name) == Counter(others.values)


def strike_changes(spark, view, name, folder: Path, point: str) -> None:
    """The same of the table's changes."""
    others = Changing(folder)
    killed_and_drained(spark, view, name, others, point, TASKS_OF_CHANGES, folder, changes=True)
    others.check(view, name, expected(""))


def written(view, name: str) -> Counter[str]:
    """What consumers of the topic see, when the markers are written."""
    wait_for(lambda: not view.held(name), "the markers")
    return Counter((row.value or b"").decode() for row in view.rows(name))


CHANCE = random.Random(os.environ.get("SPARK_EOS_SEED", "from a table"))
POINT_OF_THE_DAY = CHANCE.choice(IN_QUERIES)
OF_QUERY = {"rows": strike, "changes": strike_changes}


@pytest.fixture
def target(topic) -> str:
    name: str = topic(2)
    return name


@in_turn("from a table")
@pytest.mark.parametrize("killed", one_for_every_day("a kill from a table", [*OF_QUERY, "the job"]))
def test_a_kill_loses_and_doubles_nothing(view, target, tmp_path, request, killed: str) -> None:
    """Of one of them, at one of the points, for every day."""
    if killed == "the job":
        strike_job(view, target, tmp_path, POINT_OF_THE_DAY)
    else:
        OF_QUERY[killed](request.getfixturevalue("spark"), view, target, tmp_path, POINT_OF_THE_DAY)


@pytest.mark.chaos
@pytest.mark.parametrize("point", IN_QUERIES)
@pytest.mark.parametrize("read", OF_QUERY)
def test_a_kill_at_every_point_loses_and_doubles_nothing(spark, view, target, tmp_path, read, point) -> None:
    """The whole set."""
    OF_QUERY[read](spark, view, target, tmp_path, point)
