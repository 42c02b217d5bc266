"""Drawn histories of a query and a Delta table: every row is there once, and mistakes that are put back are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spark_eos.pipelines.tables import commit, micro_batch
from spark_eos.pipelines.tables.delta import creation, memory, table
from spark_eos.pipelines.tables.delta.commit import DeltaCommit
from spark_eos.pipelines.tables.delta.evolution import DeltaAddition
from spark_eos.pipelines.tables.delta.target import DeltaTarget
from tests.contract.tables.delta.histories import History, Wrong

SCHEDULES = 25
#: Within so many histories each mistake has to show.
TRIED = 60


def played(seed: int, folder: Path) -> str | None:
    """What was wrong, with the history; None if nothing was."""
    history = History(seed, folder / str(seed))
    with pytest.MonkeyPatch.context() as patch:
        try:
            history.play(patch)
        except Wrong as wrong:
            return f"seed {seed}: {wrong}\n" + "\n".join(history.trace)
    return None


@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_every_row_is_in_the_table_once(seed, tmp_path) -> None:
    """Whoever dies, comes back late, or writes to the table meanwhile."""
    assert played(seed, tmp_path) is None


def another_handle(patch: pytest.MonkeyPatch) -> None:
    """The table is asked, and then opened anew for the commit."""
    right = DeltaCommit.append
    patch.setattr(DeltaCommit, "append", lambda self, handle: right(self, self.look()))


def not_asked(patch: pytest.MonkeyPatch) -> None:
    """What has failed, or is run again, is committed without a question."""
    patch.setattr(commit, "has", lambda path, found, batch: False)


def true_after_an_error(right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def once(self: Any) -> bool:
        try:
            return right(self)
        except OSError:
            return True

    return once


def errors_are_outcomes(patch: pytest.MonkeyPatch) -> None:
    """An error is taken for a refusal, and the driver goes on as if another one had done its work."""
    patch.setattr(DeltaCommit, "once", true_after_an_error(DeltaCommit.once))


def errors_are_new_columns(patch: pytest.MonkeyPatch) -> None:
    """An error is taken for another start that has added them."""

    def with_columns(self: DeltaTarget, schema: pa.Schema) -> DeltaTarget:
        known = replace(self.table, columns=tuple(table.columns_of(schema).items()))
        return replace(self, table=known, file_layout=replace(self.layout, schema=schema))

    patch.setattr(DeltaAddition, "once", true_after_an_error(DeltaAddition.once))
    patch.setattr(DeltaTarget, "with_columns", with_columns)


def restores_are_let_be(patch: pytest.MonkeyPatch) -> None:
    """Rows that a RESTORE has taken are not missed."""
    patch.setattr(DeltaCommit, "check_kept", lambda *_: None)


def tables_are_known_by_their_path(patch: pytest.MonkeyPatch) -> None:
    """And by what they remember: nothing, after they were recreated."""
    right = micro_batch.has

    def has(path: str, found: micro_batch.Remembered, batch: micro_batch.RangeBatch) -> bool:
        return found.last is not None and right(path, found, batch)

    def found(self: DeltaCommit, handle: DeltaTable) -> micro_batch.Remembered:
        return memory.remembered(handle.transaction_version, self.batch.query)

    patch.setattr(commit, "has", has)
    patch.setattr(DeltaCommit, "remembered", found)


def commits_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    """Whichever table they have landed in."""
    patch.setattr(DeltaCommit, "_taken_back", lambda self, handle: micro_batch.landed("", 0, "", ""))


def columns_are_those_of_the_start(patch: pytest.MonkeyPatch) -> None:
    """They are not looked at again."""
    for module in (creation, table):
        patch.setattr(module, "check_same", lambda *_: None)


def properties_are_those_of_the_start(patch: pytest.MonkeyPatch) -> None:
    """Nor is what the table may forget."""
    for module in (creation, table):
        patch.setattr(module, "check_appendable", lambda *_: None)


def files_of_any_age_are_committed(patch: pytest.MonkeyPatch) -> None:
    """Whether or not they are there."""
    patch.setattr(DeltaCommit, "check_age", lambda self, handle: None)
    patch.setattr(DeltaCommit, "check_not_removed", lambda self, handle: None)


@pytest.mark.parametrize(
    ("mistake", "seed"),
    [
        (files_of_any_age_are_committed, 6),
        (commits_are_not_looked_at, 9),
        (another_handle, 7),
        (not_asked, 3),
        (errors_are_outcomes, 7),
        (errors_are_new_columns, 0),
        (restores_are_let_be, 28),
        (tables_are_known_by_their_path, 9),
        (columns_are_those_of_the_start, 3),
        (properties_are_those_of_the_start, 21),
    ],
)
def test_a_mistake_is_found(mistake: Callable[[pytest.MonkeyPatch], None], seed, monkeypatch, tmp_path) -> None:
    """Some history shows it; first that of the seed is played, which is known to do so."""
    mistake(monkeypatch)
    assert any(played(one, tmp_path) for one in (seed, *(other for other in range(TRIED) if other != seed)))
