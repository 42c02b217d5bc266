"""The comparison under faults: what its judge counts, which cells are run, and its page."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.compare.__main__ import PAGE, load
from bench.compare.cell import Cell
from bench.compare.judge import NoResult, Verdict, judge, verdict
from bench.compare.page import page
from bench.compare.scene import Instance, Scene
from jobs.runner.session import ROOT
from tests.support.waiting import is_gone, wait_for

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


def test_nothing_is_said_of_an_output_whose_input_is_not_what_it_was_fed(monkeypatch):
    """An aborted row that readers of the input see is nothing that a contender could leave out."""
    topics = {"in": {0: [row("0.0"), ABORTED]}, "out": {0: [row("0.0"), ABORTED]}}
    monkeypatch.setattr("bench.compare.judge.read", lambda servers, topic: topics[topic])
    with pytest.raises(NoResult, match=r"in itself has Verdict.*aborted=1"):
        judge("nowhere", "in", "out", [1])
    topics["in"] = {0: [row("0.0")]}
    assert judge("nowhere", "in", "out", [1]) == Verdict(fed=1, lost=0, doubled=0, reordered=0, aborted=1, strange=0)


@pytest.mark.parametrize(("busy", "stuck", "fair"), [(0.9, True, False), (0.05, True, True), (0.9, False, True)])
def test_what_stands_still_beside_other_work_is_no_result(busy, stuck, fair):
    """It may only have been given no time."""
    cell = Cell("flink", "kill", 1, Verdict(100, 0, 0, 0, 0), [], [], stopped=False, busy=busy, stuck=stuck)
    assert cell.is_fair == fair


def test_the_page_has_the_results():
    """Those of the file beside it."""
    assert PAGE.read_text() == page(load())


class Watched:
    """A scene whose moment never comes."""

    has_given_up = False

    def __init__(self, recoveries):
        self.recoveries = recoveries

    def wait(self, happened, within_s):
        return False

    has_failed = Scene.has_failed


def test_a_strike_whose_moment_does_not_come_is_no_result():
    """The cell would not be what its column says. What has failed before is not struck again, and has a result."""
    with pytest.raises(TimeoutError, match="nothing is open within 60 s"):
        Scene.await_moment(Watched([1.5]), lambda: False, "nothing is open")
    assert not Scene.await_moment(Watched([1.5, None]), lambda: False, "nothing is open")


_STARTS = """
import sys, time
from pathlib import Path
from bench.compare.scene import Instance
program = "import os, subprocess, sys, time; child = subprocess.Popen(['sleep', '600']); print(os.getpid(), child.pid)"
Instance([sys.executable, "-c", program + "; time.sleep(600)"], Path(sys.argv[1]))
time.sleep(600)
"""


def test_a_cell_that_is_killed_leaves_no_process(tmp_path):
    """Whatever a contender has started ends with the comparison."""
    with subprocess.Popen([sys.executable, "-c", _STARTS, str(tmp_path / "log")], cwd=ROOT) as comparison:
        wait_for(lambda: (tmp_path / "log").exists() and "\n" in (tmp_path / "log").read_text(), "the contender")
        comparison.kill()
    started = [int(pid) for pid in (tmp_path / "log").read_text().split()]
    wait_for(lambda: all(map(is_gone, started)), "its end")


@pytest.mark.parametrize(
    ("log", "error"),
    [
        ("WARN EOS_SOURCE_DATA_LOSS\nended by EOS_FENCED\nERROR java.lang.InterruptedException", "EOS_FENCED"),
        ("ended by org.apache.kafka.FencedException: after a TimeoutException\nTypeError", "FencedException"),
        ("Killed", "without a name"),
    ],
)
def test_an_instance_names_the_error_that_has_ended_it(tmp_path, log, error):
    """Not one that its log has before or behind, unless it does not say."""
    instance = Instance([sys.executable, "-c", f"print({log!r})"], tmp_path / "log")
    wait_for(lambda: instance.has_ended, "its end")
    assert instance.error == error
