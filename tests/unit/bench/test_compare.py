"""The comparison under faults: what its judge counts, which cells are run, and its page."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.compare.__main__ import PAGE, chosen, load, save
from bench.compare.cell import Cell
from bench.compare.contenders import CONTENDERS
from bench.compare.faults import FAULTS
from bench.compare.judge import NoResult, Verdict, judge, verdict
from bench.compare.page import page
from bench.compare.picture import draw

FED = [4, 3]
VALUES = st.sampled_from([*(f"{p}.{n}" for p, count in enumerate(FED) for n in range(count)), "0.aborted"])


@given(st.dictionaries(st.integers(0, 2), st.lists(VALUES, max_size=12), max_size=3))
def test_each_row_is_counted(output):
    """As by counting all values at once; without regard to where they are."""
    seen = Counter(value for values in output.values() for value in values)
    aborted = seen.pop("0.aborted", 0)
    found = verdict(output, FED)
    assert (found.fed, found.lost) == (7, 7 - len(seen))
    assert (found.doubled, found.aborted) == (seen.total() - len(seen), aborted)


@pytest.mark.parametrize(
    ("values", "reordered"),
    [
        (["0.0", "0.1", "0.2"], 0),
        (["0.0", "1.0", "0.1", "1.1"], 0),
        (["0.1", "0.0"], 1),
        (["0.2", "0.0", "0.1"], 2),
        (["0.0", "0.1", "0.0", "0.1", "0.2"], 0),
    ],
    ids=["in order", "two partitions", "swapped", "one too early", "once more"],
)
def test_what_comes_behind_a_later_row_of_its_partition_is_reordered(values, reordered):
    """A row that comes once more is doubled, and not reordered."""
    assert verdict({0: values}, FED).reordered == reordered


def test_nothing_is_said_of_an_output_whose_input_is_not_what_it_was_fed(monkeypatch):
    """An aborted row that readers of the input see is nothing that a contender could leave out."""
    topics = {"in": {0: ["0.0", "0.aborted"]}, "out": {0: ["0.0", "0.aborted"]}}
    monkeypatch.setattr("bench.compare.judge.read", lambda servers, topic: topics[topic])
    with pytest.raises(NoResult, match=r"in itself has Verdict.*aborted=1"):
        judge("nowhere", "in", "out", [1])
    topics["in"] = {0: ["0.0"]}
    assert judge("nowhere", "in", "out", [1]) == Verdict(fed=1, lost=0, doubled=0, reordered=0, aborted=1)


@pytest.mark.parametrize(
    ("only", "count"),
    [
        ([], 3 * len(FAULTS) * len(CONTENDERS)),
        (["copy"], 3 * len(FAULTS)),
        (["/zombie"], 3 * len(CONTENDERS)),
        (["copy/zombie/2", "rows/kill/1"], 2),
        (["nobody"], 0),
    ],
)
def test_cells_are_chosen_by_system_fault_and_seed(only, count):
    """Each part may be left out."""
    assert len(list(chosen(only, 3))) == count


def test_results_are_read_as_they_were_written(tmp_path):
    """And stand in the page: what was lost without a word, and who has stopped."""
    cells = [
        Cell("spark", "kill", 1, Verdict(100, 0, 17, 0, 0), [20.5], [], stopped=False, busy=0.05),
        Cell("quix", "kill", 1, Verdict(100, 30, 0, 0, 0), [], ["SomeError"] * 4, stopped=True),
        Cell("flink", "kill", 1, Verdict(100, 3, 0, 0, 0), [9.5], ["SomeError"], stopped=False),
        Cell("flink", "kill", 2, Verdict(100, 4, 0, 0, 0), [9.5], [], stopped=False),
        Cell("streams", "kill", 1, Verdict(100, 0, 0, 0, 0), [9.5], [], stopped=False, stuck=True),
    ]
    save({cell.key: cell for cell in cells}, tmp_path / "compare.json")
    found = load(tmp_path / "compare.json")
    assert list(found.values()) == sorted(cells, key=lambda cell: cell.key)
    text = page(found)
    assert "| 17 doubled | not run |" in text
    assert "| 1 × stopped, 30 missing | not run |" in text
    assert "| clean, 1 × stood still | not run |" in text
    assert "| 4 lost, 3 lost with an error | not run |" in text
    assert "| 20.5 s, 20.5 s | not run |" in text
    assert "| not timed | not run |" in text


@pytest.mark.parametrize(("busy", "stuck", "fair"), [(0.9, True, False), (0.05, True, True), (0.9, False, True)])
def test_what_stands_still_beside_other_work_is_no_result(busy, stuck, fair):
    """It may only have been given no time."""
    cell = Cell("flink", "kill", 1, Verdict(100, 0, 0, 0, 0), [], [], stopped=False, busy=busy, stuck=stuck)
    assert cell.is_fair == fair


def test_the_picture_shows_what_became_of_the_rows(tmp_path):
    """With other results it is another one."""
    files = [tmp_path / "clean.png", tmp_path / "again.png", tmp_path / "doubled.png"]
    for file, doubled in zip(files, (0, 0, 17), strict=True):
        draw([Cell("spark", "kill", 1, Verdict(100, 0, doubled, 0, 0), [20.5], [], stopped=False)], file)
    clean, again, other = (file.read_bytes() for file in files)
    assert clean == again != other


def test_the_page_has_the_results():
    """Those of the file beside it."""
    assert PAGE.read_text() == page(load())
