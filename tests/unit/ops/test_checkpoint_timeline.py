"""The timeline of a query that nobody has recorded, out of what it leaves behind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from spark_eos import cli
from spark_eos.checkpoint.files import Checkpoint
from spark_eos.ops.checkpoint_timeline import Published, Traces, _planned, forgotten, timeline_from
from spark_eos.ops.plot import draw
from spark_eos.protocol.head import NOBODY, Decision, Head, Pair, Probe, Written

WRITTEN = (Written(0, Pair("t", 1, 0), 5, 0, Probe("out", 0, 0)),)


class Ledger:
    """What a query publishes, at times of the test's choice."""

    def __init__(self) -> None:
        self.published: list[Published] = []
        self._head = Head(NOBODY, 0, (), 5)

    def open(self, at: float, run: str) -> None:
        self._say(at, self._head.succeeded_by(run, 5))

    def decide(self, at: float, batch: int, rev: int = 0) -> None:
        decision = Decision(batch, rev, 1, 5, 0, None, WRITTEN)
        self._say(at, replace(self._head, decision=decision))

    def close(self, at: float) -> None:
        self._say(at, replace(self._head, run=NOBODY))

    def _say(self, at: float, head: Head) -> None:
        self._head = head
        self.published.append(Published(at, head))


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def traces(ledger: Ledger, planned: dict, done: dict) -> Traces:
    return Traces("q", planned, done, {"": ledger.published})


def killed_between_decision_and_end(ledger: Ledger) -> Traces:
    """Micro-batch 0 goes well, 1 is decided when its run is killed, the next run replays it."""
    ledger.open(99, "one")
    ledger.decide(101, 0)
    ledger.decide(104, 1)
    ledger.open(120, "two")
    return traces(ledger, {0: 100, 1: 103}, {0: 102, 1: 122})


def test_a_micro_batch_from_its_plan_to_its_end(ledger):
    """Planned, decided, noted by Spark."""
    first, *_ = timeline_from(killed_between_decision_and_end(ledger)).batches
    assert (first.number, first.run, first.outcome, first.rows) == (0, "one", "committed", 5)
    assert (first.prepare, first.decide, first.end, first.whole) == ((100, 101), (101, 101), None, (100, 102))


def test_a_kill_after_the_decision_is_seen(ledger):
    """The first try is cut off, and the replay of the next run decides nothing."""
    timeline = timeline_from(killed_between_decision_and_end(ledger))
    _, cut, replay = timeline.batches
    assert [(cut.run, cut.outcome), (replay.run, replay.outcome)] == [("one", "cut off"), ("two", "replayed")]
    assert (cut.prepare, cut.decide, cut.whole) == ((103, 104), (104, 104), (103, 104))
    assert (replay.decide, replay.whole, replay.rows) == (None, (120, 122), 5)
    assert [(run.id, run.begin, run.end, run.how) for run in timeline.runs] == [
        ("one", 99, 104, None),
        ("two", 120, 122, None),
    ]
    assert any("why runs ended" in said for said in timeline.unknown)


def test_who_planned_what_a_run_decides_is_not_known(ledger):
    """A run publishes its first head after it has planned its first micro-batch, or found it planned: it is shown from
    the plan to its end, and no try of a run of before is made up."""
    ledger.open(101, "one")
    ledger.decide(102, 0)
    ledger.open(120, "two")
    ledger.decide(121, 1)
    timeline = timeline_from(traces(ledger, {0: 100, 1: 119}, {0: 103, 1: 122}))
    assert [(batch.run, batch.outcome) for batch in timeline.batches] == [("one", "committed"), ("two", "committed")]
    assert [batch.prepare for batch in timeline.batches] == [(100, 102), (119, 121)]
    assert [(run.begin, run.end) for run in timeline.runs] == [(101, 103), (120, 122)]
    assert any("who planned" in said for said in timeline.unknown)


def test_a_repair_is_seen(ledger):
    """Rows of a decided micro-batch were lost: the next run decides it once more."""
    ledger.open(99, "one")
    ledger.decide(101, 0)
    ledger.close(102)
    ledger.open(120, "two")
    ledger.decide(122, 0, rev=1)
    timeline = timeline_from(traces(ledger, {0: 100}, {0: 123}))
    assert [batch.outcome for batch in timeline.batches] == ["cut off", "repaired"]
    assert [(run.how, run.end) for run in timeline.runs] == [("closed", 102), (None, 123)]


def test_what_is_under_way_is_not_finished(ledger):
    """Whether somebody works on it is not known."""
    ledger.open(99, "one")
    ledger.decide(101, 0)
    (batch,) = timeline_from(traces(ledger, {0: 100}, {})).batches
    assert (batch.outcome, batch.decide, batch.done) == ("", (101, 101), False)


def test_it_says_what_it_does_not_know(ledger):
    """Decisions that compaction has taken; and draws what is left."""
    ledger.open(99, "one")
    ledger.decide(107, 3)
    found = traces(ledger, {n: 100 + 2 * n for n in range(4)}, {n: 101 + 2 * n for n in range(4)})
    timeline = timeline_from(found)
    assert forgotten(found) == [0, 1, 2]
    assert [batch.decide for batch in timeline.batches] == [None, None, None, (107, 107)]
    said = " ".join(timeline.unknown)
    assert "the decisions of 3 micro-batches, 0 to 2." in said


def test_sinks_within_foreachbatch_have_their_own_decisions(ledger):
    """Each is shown with its name."""
    other = Ledger()
    ledger.open(99, "one")
    ledger.decide(101, 0)
    other.open(99, "one")
    other.decide(103, 0)
    found = Traces("q", {0: 100}, {0: 104}, {"a": ledger.published, "b": other.published})
    assert [(batch.sink, batch.prepare) for batch in timeline_from(found).batches] == [
        ("a", (100, 101)),
        ("b", (100, 103)),
    ]


def test_its_picture_says_what_is_not_known(ledger, tmp_path: Path):
    """In words that can be read."""
    draw(timeline_from(killed_between_decision_and_end(ledger)), tmp_path / "picture.svg")
    drawn = (tmp_path / "picture.svg").read_text()
    assert "is from the plan to the decision), when transactions ended, the lag, why runs ended" in drawn
    assert "<!-- decide" in drawn and "<!-- EndTxn" not in drawn
    assert "offsets" not in drawn  # no lag


@pytest.mark.parametrize(
    ("text", "planned"),
    [('v1\n{"batchTimestampMs": 1500}\n{}', 1.5), ("v1\n{}\n{}", None), ("v1", None), ("v1\nhalf a li", None)],
)
def test_when_spark_has_planned(tmp_path: Path, text, planned):
    """By its own note; a file that is none tells nothing."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text(text)
    assert _planned(Checkpoint(str(tmp_path)), 0) == planned


@pytest.mark.parametrize("there", [True, False])
def test_a_checkpoint_takes_the_brokers(tmp_path: Path, capsys, there):
    """Without them, the command says what is missing, on a store, too."""
    (tmp_path / "offsets").mkdir()
    assert cli.main(["plot", str(tmp_path) if there else "s3a://bucket/checkpoint", "--format", "json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["condition"] == "EOS_PLOT_IMPOSSIBLE"
    assert "--bootstrap-servers" in error["hint"]
