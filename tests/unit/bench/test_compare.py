"""The comparison under faults: what its judge counts, and its page."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.compare.__main__ import PAGE, load
from bench.compare.judge import verdict
from bench.compare.page import page

FED = [4, 3]
ABORTED, STRANGE = (b"0", b"0.aborted"), [(b"0", b"0.4"), (b"1", b"0.1"), (None, b"0.1"), (b"9", b"9.0"), (b"0", None)]


def row(value):
    """As the feeder writes it."""
    return value.partition(".")[0].encode(), value.encode()


GOOD = [row(f"{p}.{n}") for p, count in enumerate(FED) for n in range(count)]
ROWS = st.sampled_from([*GOOD, ABORTED, *STRANGE, (b"0", b"0.01"), (b"0", b"0.1 "), (b"0", b"\xff")])


@given(st.dictionaries(st.integers(0, 2), st.lists(ROWS, max_size=12), max_size=3))
def test_each_row_is_counted(output):
    """As by counting all rows at once; without regard to where they are."""
    all_ = Counter(one for rows in output.values() for one in rows)
    seen = Counter({one: count for one, count in all_.items() if one in GOOD})
    found = verdict(output, FED)
    assert (found.fed, found.lost + found.missing) == (7, 7 - len(seen))
    assert (found.doubled, found.aborted) == (seen.total() - len(seen), all_[ABORTED])
    assert found.strange == all_.total() - seen.total() - all_[ABORTED]


@pytest.mark.parametrize(
    ("values", "lost", "missing", "reordered"),
    [
        (["0.0", "1.0", "0.1", "1.1", "0.2", "0.3", "1.2"], 0, 0, 0),
        (["0.0", "0.1", "0.3", "1.0", "1.1", "1.2"], 1, 0, 0),
        (["0.2", "0.0", "0.1", "1.0", "1.1", "1.0", "1.1"], 0, 2, 2),
    ],
    ids=["all, of two partitions", "a hole", "no end, one too early, and some once more"],
)
def test_a_row_is_lost_missing_or_out_of_order(values, lost, missing, reordered):
    """A system that goes on leaves no holes: what it has left out, it will not write. One behind the last may come yet;
    one that comes once more is doubled, and not reordered."""
    found = verdict({0: [row(value) for value in values]}, FED)
    assert (found.lost, found.missing, found.reordered) == (lost, missing, reordered)
    assert found.is_wrong == bool(lost or found.doubled)


def test_the_page_has_the_results():
    """Those of the file beside it."""
    assert PAGE.read_text() == page(load())
