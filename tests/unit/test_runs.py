"""How tests are dealt out to processes, which of the kills a run has, and what the tables of docs/versions.md note."""

from __future__ import annotations

import itertools
import re
from types import SimpleNamespace
from typing import Any

import pytest

from tests import matrix, sparks
from tests.cells import PAGE, ROOT, Cells
from tests.support.runs.case_cover import OF_A_SEED, covering, in_turn, one_for_every_day, values
from tests.support.runs.file_shares import SHARES


@pytest.mark.parametrize("begin", [begin for share in SHARES for begin in share])
def test_what_is_named_is_there(begin: str):
    """A file that is moved or renamed would be dealt out on its own again, and nobody would notice."""
    assert any(str(file.relative_to(ROOT)).startswith(begin) for file in (ROOT / "tests").rglob("test_*.py"))


TABLES = pytest.mark.parametrize("cells", [matrix.CELLS, sparks.CELLS], ids=["brokers", "Sparks"])


@TABLES
def test_the_tests_of_each_cell_are_there(cells: Cells) -> None:
    """A file or a test that was renamed would leave its cells without a result, and nobody runs them every day."""
    chosen = [test for tests in cells.scenarios.values() for test in tests if test.startswith("tests/")]
    assert len(chosen) >= len(cells.scenarios)
    for test in chosen:
        path, _, function = test.partition("::")
        text = (ROOT / path).read_text()
        assert re.search(rf"^def {re.escape(function.partition('[')[0])}", text, re.MULTILINE), test


@TABLES
def test_the_page_has_the_table(cells: Cells) -> None:
    """As the notes have it, with a column for each suite."""
    assert cells.table(cells.noted()) in PAGE.read_text()


def case(test: str, **params: object) -> Any:
    """As pytest collects it."""
    return SimpleNamespace(nodeid=f"{test}[{params}]", callspec=SimpleNamespace(params=params))


PAIRS = [(1, [2]), (1, [3]), (4, [3])]
ITEMS = [case("many", a=a, b=b, c=c, d=d) for a, (b, c), d in itertools.product(range(5), PAIRS, "xyz")]
ITEMS.append(SimpleNamespace(nodeid="one"))  # without parameters


def test_every_value_is_there_and_few_cases_are():
    """The cases keep their order; another seed chooses others, and one seed always the same."""
    for seed in range(5):
        kept = covering(ITEMS, seed)
        assert set().union(*map(values, kept)) == set().union(*map(values, ITEMS))
        assert 5 + 1 <= len(kept) <= 7 + 1
        assert kept == [item for item in ITEMS if item in kept] == covering(ITEMS, seed)
    assert len({tuple(item.nodeid for item in covering(ITEMS, seed)) for seed in range(5)}) > 1


def test_one_case_is_for_every_day_and_the_others_are_for_chaos():
    """Another seed may take another one; none is lost."""
    cases = ["a", ("b", 1), "c"]
    by_chaos = [pytest.param(*case, marks=pytest.mark.chaos) for case in (("a",), ("b", 1), ("c",))]
    taken = set()
    for seed in range(30):
        made = one_for_every_day("a test", cases, str(seed))
        (daily,) = (n for n, case in enumerate(made) if case == cases[n])
        assert made == [*by_chaos[:daily], cases[daily], *by_chaos[daily + 1 :]]
        taken.add(daily)
    assert taken == {0, 1, 2}


@pytest.mark.parametrize("suites", OF_A_SEED)
def test_some_suites_of_kills_are_for_every_day(suites: tuple[str, ...]):
    """Others by another seed, and one seed has always the same; none is lost."""
    taken = set()
    for seed in range(30):
        daily, again = ([suite for suite in suites if in_turn(suite, str(seed))(suite) == suite] for _ in range(2))
        assert daily == again and len(daily) == OF_A_SEED[suites]
        taken |= set(daily)
    assert taken == set(suites)
