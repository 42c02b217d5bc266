"""A table of each kind, and what happens to it while a driver is at a failpoint."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_eos.base import failpoints
from spark_eos.pipelines.tables.target import Target
from tests.support.tables.table_kinds import KINDS, TableKind

#: ``meanwhile(point, work, nth=1)``: when a driver comes to the failpoint for the nth time, this is done before it goes
#: on. Returns the failpoints that were reached, as they are reached.
Meanwhile = Callable[..., list[str]]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path) -> TableKind:
    return KINDS[request.param](tmp_path)


@pytest.fixture
def target(kind: TableKind) -> Target:
    return kind.target()


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    def arrange(point: str, work: Callable[[], object], nth: int = 1) -> list[str]:
        reached: list[str] = []

        def reach(name: str) -> None:
            reached.append(name)
            if name == point and reached.count(point) == nth:
                work()

        monkeypatch.setattr(failpoints, "reach", reach)
        return reached

    return arrange
