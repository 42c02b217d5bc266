"""Which rows of a copy cost little."""

from __future__ import annotations

import pytest

from spark_eos.copy.plan import RowTransform, is_quick
from spark_eos.copy.sql import SqlTransform


@pytest.mark.parametrize(
    ("function", "quick"),
    [(SqlTransform("SELECT value FROM input"), True), (lambda batch: batch, False)],
    ids=["SQL", "a function"],
)
def test_what_a_function_costs_is_not_known(function, quick):
    """DuckDB is quick; a user's function may be anything."""
    assert is_quick(RowTransform(function, "name")) is quick


def test_a_copy_is_quick():
    """There is nothing to do to its rows."""
    assert is_quick(None)
