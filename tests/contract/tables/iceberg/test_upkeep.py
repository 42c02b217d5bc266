"""A table that is looked after by the programs of docs/iceberg.md, beside drivers that commit, die and come back late:
no row is lost, and files of ours that nothing names are gone once they are old."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow.fs
import pytest

from spark_eos.errors import TableError
from spark_eos.pipelines.tables.iceberg.commit import IcebergCommit
from spark_eos.pipelines.tables.micro_batch import RangeBatch
from tests.support.runs.page_programs import run_program
from tests.support.servers.object_store import SECRET_KEY, object_store
from tests.support.tables.delta_files import SCHEMA, grown_older, micro_batch, records
from tests.support.tables.table_kinds import Iceberg, committed, expected, files_of
from tests.support.waiting import TIMEOUT


def batch_of(number: int) -> RangeBatch:
    return micro_batch(number, (0, 2 * number, 2 * number + 2), (1, number, number + 1))


def by_the_page(kind: Iceberg, program: str, replaced: dict[str, str]) -> None:
    names = {'load_catalog("default")': "opened", '"lake.flights"': "name"} | replaced
    run_program("iceberg.md", program, names, opened=kind.opened(), name=kind.table)


class History:
    """Drivers of one query, what others do, and time that passes, drawn from a seed."""

    def __init__(self, seed: int, kind: Iceberg) -> None:
        self.chance, self.kind, self.target = random.Random(seed), kind, kind.target()
        self.done, self.foreign, self.weeks = 0, 0, 0
        self.others = [self.append, self.expire, self.sweep, self.sweep, self.weeks_pass, self.weeks_pass]

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
        number, weeks, files = self.done, self.weeks, files_of(self.target, batch_of(self.done))
        for _ in range(self.chance.randint(1, 3)):
            self.chance.choice([self.run, *self.others])()
        slept_ms = (self.weeks - weeks) * 7 * 24 * 3_600_000
        files = tuple(replace(file, written_at_ms=file.written_at_ms - slept_ms) for file in files)
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
        by_the_page(self.kind, "expire_snapshots", {"timedelta(hours=1)": "timedelta(0)"})

    def sweep(self) -> None:
        by_the_page(self.kind, "delete_file", {})

    def weeks_pass(self) -> None:
        self.weeks += 1
        grown_older(self.kind.folder, 7)


def played(seed: int, folder: Path) -> History:
    history = History(seed, Iceberg(folder / str(seed)))
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


def test_tasks_write_files_to_a_store_by_the_catalogs_properties(tmp_path) -> None:
    """They get them with the plan; the driver finds the files there. No secret is in the plan's text. What failed tasks
    have left there is swept by the program of docs/iceberg.md, as days have passed."""
    with object_store(tmp_path) as store:
        kind = Iceberg(tmp_path)
        kind.more = store.catalog
        target = pickle.loads(pickle.dumps(kind.place().target(SCHEMA, create=True)))
        assert SECRET_KEY not in repr(target)
        batches = [micro_batch(0, (0, 0, 3)), micro_batch(1, (0, 3, 5), (1, 0, 1))]
        for batch in batches:
            files = files_of(target, batch)
            assert not target.commit(batch, files, len(records(batch)), is_there=False).again
            assert target.commit(batch, files, len(records(batch)), is_there=False).again
        (orphan,) = files_of(target, batches[1])
        by_the_page(kind, "delete_file", {"- 3 * 24 * 3600": "+ 3600"})
        files = target.store().files.get_file_info(pyarrow.fs.FileSelector(target.store().root, recursive=True))
        there = {file.base_name for file in files if file.is_file}
        assert orphan.path not in there and len(there) == 2
        found = Counter((row["partition"], row["offset"]) for row in kind.load().scan().to_arrow().to_pylist())
        assert found == expected(*batches)
