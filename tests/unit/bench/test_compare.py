"""The comparison under faults: what its judge counts, which cells are run, and its page."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

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
from bench.compare.scene import Instance, Scene
from bench.machine import Others
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
    ("values", "lost", "missing"),
    [
        (["0.0", "0.1", "0.2", "0.3", "1.0", "1.1", "1.2"], 0, 0),
        (["0.0", "0.1", "0.3", "1.0", "1.1", "1.2"], 1, 0),
        (["0.0", "0.1", "1.0", "1.1", "1.2"], 0, 2),
        (["0.3"], 3, 3),
        ([], 0, 7),
    ],
    ids=["all", "a hole", "an end", "both", "nothing"],
)
def test_a_row_before_one_that_is_there_is_lost_and_one_behind_may_come_yet(values, lost, missing):
    """A system that goes on leaves no holes: what it has left out, it will not write."""
    found = verdict({0: [row(value) for value in values]}, FED)
    assert (found.lost, found.missing) == (lost, missing)
    assert found.is_wrong == bool(lost)


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
    assert verdict({0: [row(value) for value in values]}, FED).reordered == reordered


def test_nothing_is_said_of_an_output_whose_input_is_not_what_it_was_fed(monkeypatch):
    """An aborted row that readers of the input see is nothing that a contender could leave out."""
    topics = {"in": {0: [row("0.0"), ABORTED]}, "out": {0: [row("0.0"), ABORTED]}}
    monkeypatch.setattr("bench.compare.judge.read", lambda servers, topic: topics[topic])
    with pytest.raises(NoResult, match=r"in itself has Verdict.*aborted=1"):
        judge("nowhere", "in", "out", [1])
    topics["in"] = {0: [row("0.0")]}
    assert judge("nowhere", "in", "out", [1]) == Verdict(fed=1, lost=0, doubled=0, reordered=0, aborted=1, strange=0)


@pytest.mark.parametrize(
    ("only", "count"),
    [
        ([], 3 * len(FAULTS) * len(CONTENDERS) - 3),
        (["copy"], 3 * len(FAULTS)),
        (["/zombie"], 3 * len(CONTENDERS)),
        (["copy/zombie/2", "rows/kill/1"], 2),
        (["nobody"], 0),
        (["spark/fence"], 0),
    ],
)
def test_cells_are_chosen_by_system_fault_and_seed(only, count):
    """Each part may be left out. Spark's own sink has no transactions that could be fenced."""
    assert len(list(chosen(only, 3))) == count


def test_results_are_read_as_they_were_written(tmp_path):
    """And stand in the page: what was lost without a word, and who has stopped. What differs between few runs does
    not."""
    cells = [
        Cell("spark", "kill", 1, Verdict(100, 0, 17, 0, 0), [20.5], [], stopped=False, busy=0.05),
        Cell("quix", "kill", 1, Verdict(100, 0, 0, 0, 0, missing=30), [None], ["SomeError"] * 4, stopped=True),
        Cell("flink", "kill", 1, Verdict(100, 3, 0, 0, 0), [9.5], ["SomeError"], stopped=False),
        Cell("flink", "kill", 2, Verdict(100, 4, 0, 0, 0), [9.5], [], stopped=False),
        Cell("streams", "kill", 1, Verdict(100, 0, 0, 0, 0), [9.5], [], stopped=False, stuck=True),
        Cell("mirrormaker", "kill", 1, Verdict(100, 2, 0, 0, 0, 3, 4), [5.0, None], [], stopped=False, busy=0.05),
    ]
    save({cell.key: cell for cell in cells}, tmp_path / "compare.json")
    found = load(tmp_path / "compare.json")
    assert list(found.values()) == sorted(cells, key=lambda cell: cell.key)
    text = page(found)
    assert "| doubled in 1 of 1 runs (up to 17) | not run |" in text
    assert "| missing in 1 of 1 runs (up to 30), stopped in 1 of 1 runs | not run |" in text
    assert "| stood still in 1 of 1 runs | not run |" in text
    assert "| runs differ, 2 of 10 made | not run |" in text
    assert (
        "| lost in 1 of 1 runs (up to 2), strange in 1 of 1 runs (up to 4), missing in 1 of 1 runs (up to 3) |" in text
    )
    more = [replace(cells[3], seed=seed) for seed in range(3, 11)]
    many = page({cell.key: cell for cell in [*cells, *more]})
    assert "| lost in 9 of 10 runs (up to 4), lost with an error in 1 of 10 runs (up to 3) | not run |" in many
    assert "| 20.5 s, 20.5 s | not run |" in text
    assert "| 5.0 s, 5.0 s, 1 × never | not run |" in text
    assert text.count("| has no transactions |") == 3
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


def test_what_an_instance_leaves_behind_is_beside_its_log(tmp_path):
    """It is killed, and its folder is removed with the cell's."""
    program = "import os, tempfile, time; print(tempfile.mkdtemp(), os.environ['SPARK_SUBMIT_OPTS']); time.sleep(600)"
    instance = Instance([sys.executable, "-c", program], tmp_path / "log")
    wait_for(lambda: "\n" in (tmp_path / "log").read_text(), "its words")
    instance.kill()
    left, option = (tmp_path / "log").read_text().split()
    assert Path(left).is_dir() and Path(left).parent == tmp_path
    assert option == f"-Djava.io.tmpdir={tmp_path}"


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
        ("WARN a TimeoutException\nERROR a FencedException, and nothing that it has ended by", "FencedException"),
        ("Killed", "without a name"),
    ],
)
def test_an_instance_names_the_error_that_has_ended_it(tmp_path, log, error):
    """Not one that its log has before or behind, unless it does not say."""
    instance = Instance([sys.executable, "-c", f"print({log!r})"], tmp_path / "log")
    wait_for(lambda: instance.has_ended, "its end")
    assert instance.error == error


#: Works for a second when the parent with this id is gone, and then lives on to the end of its input.
_BURNS = """
import os, sys, time
while os.getppid() == int(sys.argv[2]):
    time.sleep(0.01)
while time.process_time() < 1.0:
    pass
open(sys.argv[1], "w").close()
sys.stdin.read()
"""
_DETACHED = """
import os, subprocess, sys
subprocess.Popen([sys.executable, "-c", *sys.argv[1:], str(os.getpid())], start_new_session=True)
"""


@pytest.mark.parametrize("is_own", [True, False])
def test_the_work_of_others_is_told_from_the_own(tmp_path, is_own):
    """A second of processor time counts where it is that of a process which nobody here has started. What else runs on
    this machine meanwhile counts as well."""
    done, others = tmp_path / "done", Others(0.05)
    before, began = busy_s(), time.monotonic()
    others.start()
    script = (_BURNS, str(done), "0") if is_own else (_DETACHED, _BURNS, str(done))
    with subprocess.Popen([sys.executable, "-c", *script], stdin=subprocess.PIPE):
        wait_for(done.exists, "a second of processor time is used up")
        found_s = others.stop() * (time.monotonic() - began) * os.cpu_count()
    if is_own:
        assert found_s < busy_s() - before - 0.6
    else:
        assert found_s > 0.6


def busy_s():
    """Seconds of all cores since the start."""
    return sum(map(int, Path("/proc/stat").read_text().split()[1:4])) / os.sysconf("SC_CLK_TCK")
