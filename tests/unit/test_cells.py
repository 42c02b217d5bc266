"""The tables of docs/versions.md: their tests are there, and the page has what was noted."""

from __future__ import annotations

import re

import pytest

from tests import matrix, sparks
from tests.cells import PAGE, ROOT, Cells

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
