"""Histories of a query and a Delta table, drawn from a seed and played: drivers that die at any step or come back late,
and others who write to the table meanwhile. The table is a real one; what Spark does is modelled.

Spark plans a micro-batch, runs it, and notes in its commit log that it is done; after the death of a driver the next
one runs the micro-batch again that is planned and not done. A driver that was paused may go on when others have long
taken over. It may be started with a column more, which the table is given. At each failpoint of a commit, whatever else
there is may happen. Weeks may pass at any time but between the last look at a micro-batch's files and their commit;
meanwhile the table is looked after by the program of docs/delta.md.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from spark_eos.base import failpoints, system
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.errors import TableError
from spark_eos.pipelines.tables.delta.table import location_of
from spark_eos.pipelines.tables.micro_batch import RangeBatch
from spark_eos.pipelines.tables.target import Target
from tests.support.tables.delta_files import (
    SCHEMA,
    files_in,
    grown_older,
    looked_after,
    micro_batch,
    read_by_log,
    records,
)
from tests.support.tables.table_kinds import Delta, Places, expected, files_of
from tests.support.waiting import TIMEOUT

#: The partition of other writers' rows.
FOREIGN = 9
#: More than the table keeps files that no version has, and versions of its log.
WEEKS = 8
#: What somebody may do to a table after which the query must stop, and the errors that say so.
HOSTILE = {
    "recreate": {f"EOS_OTHER_TABLE.{entry}" for entry in ("recreated", "behind", "landed")},
    "restore": {"EOS_OTHER_TABLE.restored"},
    "add column": {"EOS_TABLE_DIFFERS"},
    "forget": {"EOS_DELTA_TABLE_SETTINGS.forgets"},
}


class Dead(BaseException):
    """A driver's process was killed."""


class Wrong(BaseException):
    """The table does not have what it should, or the query has not stopped where it had to. No error that is tried
    again."""


@contextmanager
def readable() -> Iterator[None]:
    """Raises Wrong where files of the table are not there."""
    try:
        yield
    except (DeltaError, OSError) as error:
        raise Wrong(f"the table cannot be read: {error}") from error


class History:
    """One history. ``done``: the micro-batches in Spark's commit log; ``planned``: those in its offset log."""

    def __init__(self, seed: int, folder: Path, steps: int = 14) -> None:
        self.chance = random.Random(seed)
        self.trace: list[str] = []
        self._kind = Delta(folder)
        self._folder = str(self._kind.path)
        self._target = self._start()
        self._planned: list[RangeBatch] = []
        self._done = 0
        self._reached = [0, 0]
        self._foreign = 0
        self._hostile: str | None = None
        self._depth = 0
        self._steps = steps
        self._later_s = 0.0
        self._between = 0  # how many drivers are between that look and the commit

    def play(self, patch: pytest.MonkeyPatch) -> None:
        """Play it. Raises Wrong."""
        now = system.time_of_day
        patch.setattr(failpoints, "reach", self._reach)
        patch.setattr(system, "time_of_day", lambda: now() + self._later_s)
        for _ in range(self._steps):
            if self._hostile is not None:
                break
            self._step()
        self._end()

    # What happens

    def _step(self) -> None:
        others = [self._append, self._compact, self._checkpoint, self._restart, self._look_after, self._weeks_pass]
        self._note(self.chance.choice([self._run] * 6 + [*others, self._evolve, self._evolve]))

    def _note(self, action: Callable[[], None]) -> None:
        self.trace.append(f"{'  ' * self._depth}{action.__name__.strip('_')}")
        action()

    def _reach(self, point: str) -> None:
        """At a failpoint: nothing, a death, an error, or what others do, other drivers among them."""
        if self._depth >= 2:
            return
        draw = self.chance.random()
        if draw < 0.12:
            self.trace.append(f"{'  ' * self._depth}death at {point}")
            raise Dead
        if draw < 0.2:
            self.trace.append(f"{'  ' * self._depth}error at {point}")
            raise OSError("the connection was closed")
        if draw < 0.5 and self._hostile is None:
            self._depth += 1
            self._between += point == "table.asked"
            others = [self._append, self._compact, self._change, self._checkpoint, self._look_after, self._weeks_pass]
            others += [self._weeks_pass] * (4 if point == "files written" else 0)
            for _ in range(self.chance.randint(1, 2)):
                self._note(self.chance.choice([self._run, self._run, self._run, self._evolve, *others]))
                if self._hostile is not None:
                    break
            self._between -= point == "table.asked"
            self._depth -= 1

    def _run(self) -> None:
        """A driver runs the micro-batch that is planned and not done, or plans the next one."""
        if self._done == len(self._planned):
            self._plan()
        batch, target, began_s = self._planned[self._done], self._target, self._later_s
        try:
            files = files_of(target, batch)
            self._reach("files written")
            target.commit(batch, files, len(records(batch)), patience_s=TIMEOUT)
        except (Dead, OSError):  # an error of a task, which leaves its files
            return
        except TableError as error:
            self.trace.append(f"{'  ' * self._depth}{error.entry}")
            if error.condition == "EOS_TABLE_FILES_OLD" and self._later_s > began_s:
                return
            if self._hostile is None and error.entry == "EOS_TABLE_DIFFERS" and self._has_more(target):
                self._restart()
                return
            if self._hostile is None and not self._is_late(batch, error):
                raise Wrong(f"micro-batch {batch.number} was refused: {error}") from error
            if self._hostile is not None and error.entry not in self._expected() and not self._is_late(batch, error):
                raise Wrong(f"after {self._hostile}: {error}") from error
            return
        if self._done == batch.number:  # else another driver has noted it first
            self._done += 1

    def _is_late(self, batch: RangeBatch, error: TableError) -> bool:
        """Whether a driver that comes back after others have gone on was told so."""
        return batch.number < self._done and error.entry == "EOS_TABLE_CHECKPOINT_BEHIND"

    def _evolve(self) -> None:
        """The query is started again with a column more."""
        if self._hostile is not None:
            return
        before = self._start()
        wide = pa.schema([*self._columns(), (f"c{len(before.layout.schema)}", pa.int32())])
        try:
            self._target = before.evolved(wide, patience_s=TIMEOUT)
        except Dead:
            return
        except TableError as error:
            self.trace.append(f"{'  ' * self._depth}{error.entry}")
            beside = self._hostile is None and error.entry == "EOS_TABLE_DIFFERS" and self._has_more(before)
            if not beside and (self._hostile is None or error.entry not in self._expected()):
                raise Wrong(f"a column was refused: {error}") from error

    def _columns(self) -> pa.Schema:
        """Those that the table has now."""
        return pa.schema(DeltaTable(self._folder).schema().to_arrow())

    def _has_more(self, target: Target) -> bool:
        """Whether another start has given the table columns that this driver does not know."""
        return set(self._columns().names) > set(target.layout.schema.names)

    def _expected(self) -> set[str]:
        """Errors after what somebody has done to the table. A RESTORE takes columns, too, and a new table has fewer."""
        assert self._hostile is not None
        return HOSTILE[self._hostile] | ({"EOS_TABLE_DIFFERS"} if self._hostile in ("recreate", "restore") else set())

    def _plan(self) -> None:
        ranges = []
        for partition in range(2):
            size = self.chance.choice([0, 0, 1, 3])
            if size:
                ranges.append((partition, self._reached[partition], self._reached[partition] + size))
                self._reached[partition] += size
        self._planned.append(micro_batch(len(self._planned), *ranges))

    def _start(self) -> Target:
        return self._kind.target(self._columns() if self._kind.is_there() else SCHEMA)

    def _restart(self) -> None:
        self._target = self._start()

    def _append(self) -> None:
        self._foreign += 1
        self._kind.append({"topic": "foreign", "partition": FOREIGN, "offset": self._foreign})

    def _compact(self) -> None:
        with readable():
            DeltaTable(self._folder).optimize.compact()

    def _checkpoint(self) -> None:
        DeltaTable(self._folder).create_checkpoint()

    def _look_after(self) -> None:
        with readable():
            looked_after(location_of(self._folder, HadoopSettings()))

    def _weeks_pass(self) -> None:
        if not self._between:
            self._later_s += WEEKS * 7 * 24 * 3600
            grown_older(self._kind.path, WEEKS * 7)
            if self.chance.random() < 0.5:
                self._look_after()

    def _change(self) -> None:
        """Something after which the query must stop, or a harmless property."""
        table = DeltaTable(self._folder)
        if self.chance.random() < 0.4 or self._done == 0:
            table.alter.set_table_properties({"owner": str(self._foreign)}, raise_if_not_exists=False)
            return
        self._hostile = self.chance.choice(sorted(HOSTILE))
        self.trace.append(f"{'  ' * self._depth}  {self._hostile}")
        if self._hostile == "recreate":
            version, self._foreign = table.version(), 0
            self._kind.recreate()
            for _ in range(max(0, version + self.chance.choice([-version, 0, 0, 1]))):
                self._append()
        elif self._hostile == "restore":
            kept = sorted(int(file.stem) for file in Path(self._folder, "_delta_log").glob("*.json"))
            table.restore(self.chance.choice(kept[:-1] or kept))
        elif self._hostile == "add column":
            self._kind.add_column()
        else:
            properties = {"delta.setTransactionRetentionDuration": "interval 1 day"}
            table.alter.set_table_properties(properties, raise_if_not_exists=False)

    # What must hold

    def _end(self) -> None:
        """The last driver ends what is planned, without any fault. Or it must stop, if somebody has changed the
        table."""
        self._depth = 2
        if self._hostile is not None:
            self._must_stop()
            return
        self._restart()
        while self._done < len(self._planned):
            self._note(self._run)
        self._note(self._run)
        with readable():
            found = self._kind.places()
        log = Path(self._folder, "_delta_log", f"{0:020d}.json")
        if log.exists() and found != read_by_log(files_in(self._folder)):
            raise Wrong("the log has other rows")
        ours, due = Places({row: n for row, n in found.items() if row[0] != FOREIGN}), expected(*self._planned)
        if ours != due:
            raise Wrong(f"lost: {dict(due - ours)}, doubled: {dict(ours - due)}")
        if found.total() - ours.total() != self._foreign:
            raise Wrong("somebody else's rows are not there once")

    def _must_stop(self) -> None:
        if self._done == len(self._planned):
            self._plan()
        done = self._done
        # One more may land that was asked for before the change.
        for _ in range(2):
            self._note(self._run)
            if self._done == len(self._planned):
                self._plan()
        if self._done > done + (self._hostile != "recreate"):
            raise Wrong(f"the query went on after {self._hostile}")
        with readable():
            if self._hostile == "recreate" and self._kind.places().total() != self._foreign:
                raise Wrong("rows of this query are in the other table")
