"""A table that is looked after by the programs of docs/iceberg.md, beside drivers that commit, die and come back late:
no row is lost, and files of ours that nothing names are gone once they are old."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from spark_eos.base import system
from spark_eos.errors import TableError
from spark_eos.pipelines.tables.iceberg.commit import IcebergCommit
from spark_eos.pipelines.tables.micro_batch import RangeBatch
from tests.support.runs.page_programs import run_program
from tests.support.tables.delta_files import grown_older, micro_batch
from tests.support.tables.table_kinds import Iceberg, committed, expected, files_of
from tests.support.waiting import TIMEOUT


def batch_of(number: int) -> RangeBatch:
    return micro_batch(number, (0, 2 * number, 2 * number + 2), (1, number, number + 1))


class History:
    """Drivers of one query, what others do, and time that passes, drawn from a seed."""

    def __init__(self, seed: int, kind: Iceberg, patch: pytest.MonkeyPatch) -> None:
        self.chance, self.kind, self.target = random.Random(seed), kind, kind.target()
        self.done, self.foreign, self.later_s = 0, 0, 0.0
        self.others = [self.append, self.expire, self.sweep, self.sweep, self.weeks_pass, self.weeks_pass]
        now = system.time_of_day
        patch.setattr(system, "time_of_day", lambda: now() + self.later_s)

    def play(self, steps: int = 14) -> None:
        for _ in range(steps):
            self.chance.choice([*[self.run] * 3, *[self.sleep] * 3, self.die, *self.others])()
        self.weeks_pass()
        self.sweep()
        self.run()

    def run(self) -> None:
        committed(self.target, batch_of(self.done))
        self.done += 1

    def die(self) -> None:
        """A driver dies when the tasks of the next micro-batch have written their files."""
        files_of(self.target, batch_of(self.done))

    def sleep(self) -> None:
        """A driver sleeps then, and commits when it wakes, if nobody else has, and its files are young."""
        number, files = self.done, files_of(self.target, batch_of(self.done))
        for _ in range(self.chance.randint(1, 3)):
            self.chance.choice([self.run, *self.others])()
        try:
            outcome = self.target.commit(batch_of(number), files, 3, is_there=False, patience_s=TIMEOUT)
        except TableError as error:
            assert error.condition in ("EOS_TABLE_CHECKPOINT_BEHIND", "EOS_TABLE_FILES_OLD")
            return
        self.done += not outcome.again

    def append(self) -> None:
        self.kind.append({"topic": "foreign", "partition": 9, "offset": self.foreign})
        self.foreign += 1

    def expire(self) -> None:
        """All snapshots but those that are needed."""
        self.by_the_page("expire_snapshots", {"timedelta(hours=1)": "timedelta(0)"})

    def sweep(self) -> None:
        self.by_the_page("delete_file", {})

    def by_the_page(self, program: str, replaced: dict[str, str]) -> None:
        names = {'load_catalog("default")': "opened", '"lake.flights"': "name"} | replaced
        run_program("iceberg.md", program, names, opened=self.kind.opened(), name=self.kind.table)

    def weeks_pass(self) -> None:
        self.later_s += 7 * 24 * 3600
        grown_older(self.kind.folder, 7)


def played(seed: int, folder: Path) -> History:
    with pytest.MonkeyPatch.context() as patch:
        history = History(seed, Iceberg(folder / str(seed)), patch)
        history.play()
    return history


def names_of_ours(history: History) -> tuple[set[str], set[str]]:
    """Of files that are there, and of those that a snapshot has."""
    files = history.kind.load().inspect.all_files()["file_path"].to_pylist()
    there = {file.name for file in history.kind.folder.rglob("eos-*.parquet")}
    return there, {name for name in (file.rpartition("/")[2] for file in files) if name.startswith("eos-")}


@pytest.mark.parametrize("seed", range(4))
def test_what_is_swept_is_in_no_snapshot(tmp_path, seed) -> None:
    """And nothing old is left of what failed tasks have written."""
    history = played(seed, tmp_path)
    ours = expected(*map(batch_of, range(history.done)))
    assert history.kind.places() == ours + Counter((9, n) for n in range(history.foreign))
    there, named = names_of_ours(history)
    assert there == named


def test_files_of_any_age_that_are_committed_are_found(tmp_path, monkeypatch) -> None:
    """Put back, this mistake is seen: a driver that slept names files that were swept."""
    monkeypatch.setattr(IcebergCommit, "check_age", lambda self, table: None)
    monkeypatch.setattr(IcebergCommit, "check_not_removed", lambda self, table: None)

    def is_read(seed: int) -> bool:
        try:
            return bool(played(seed, tmp_path).kind.places())
        except FileNotFoundError:
            return False

    assert not all(map(is_read, range(4)))
