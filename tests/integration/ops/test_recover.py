"""`spark-eos recover` and `spark-eos status` on a real broker."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.errors import Superseded
from spark_eos.protocol.commit import commit
from spark_eos.protocol.head import NOBODY
from spark_eos.protocol.open import NewRun, open_run
from spark_eos.protocol.ports import State
from spark_eos.protocol.task import MicroBatch
from tests.support.queries.replaying import killed
from tests.support.queries.stopped_query import AT_ONCE, PREFIX, RUN, Left
from tests.support.waiting import wait_for


def told(left: Left, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    capsys.readouterr()
    code = left.ask(*words, "--format", "json")
    answer = json.loads(capsys.readouterr().out)
    return code, answer[0] if isinstance(answer, list) and len(answer) == 1 else answer


def recover(left: Left, folder: Path, *words: str) -> int:
    return left.ask("recover", str(left.checkpoint(folder)), *AT_ONCE, *words)


def test_what_is_decided_becomes_visible_and_the_rest_is_aborted(left, tmp_path, capsys):
    """Without --yes nothing is done; afterwards there is nothing more to do. Nobody has named the query's prefix: the
    head that is left is one that the next start accepts."""
    decided, other = left.prepare(0), left.prepare(1)
    left.decide(decided)
    assert recover(left, tmp_path) == 0
    said = capsys.readouterr().out
    assert decided.pair.id in said and other.pair.id in said
    assert "--yes" in said
    assert left.state(decided) is left.state(other) is State.ONGOING
    assert recover(left, tmp_path, "--yes") == 0
    assert "aborted 1 undecided transaction(s)" in capsys.readouterr().out
    assert left.state(other) is State.COMPLETE_ABORT
    wait_for(lambda: left.view.values(left.topic) == [f"{decided.pair.id}.0"], "the decided row")
    head = left.ports.ledger.read()
    assert (head.run, [w.verdict.value for w in head.decision.written]) == (NOBODY, ["committed"])
    assert recover(left, tmp_path, "--yes") == 0
    assert "Nothing needs to be done." in capsys.readouterr().out
    assert left.ports.ledger.read() == head
    assert open_run(left.ports, NewRun("the next run", 0, prefix=PREFIX)).run == "the next run"


def test_a_query_that_somebody_runs_is_left_alone(left, tmp_path, capsys):
    """By its last sign of life, unless asked. Its run then stops, and cannot decide anything more."""
    prepared = left.prepare(0)
    words = ["recover", str(left.checkpoint(tmp_path)), "--watch", "0", "--yes"]
    code, answer = told(left, capsys, *words)
    assert (code, answer["error"]["condition"]) == (2, "EOS_RECOVER_RUNNING")
    assert left.state(prepared) is State.ONGOING
    assert left.ports.ledger.read() == left.head
    assert left.ask(*words[:-1]) == 0  # to look is allowed
    assert "--even-if-running" in capsys.readouterr().out
    assert left.ask(*words, "--even-if-running") == 0
    assert left.state(prepared) is State.COMPLETE_ABORT
    with pytest.raises(Superseded, match="EOS_CLOSED_BY_OPERATOR"):
        commit(left.ports, MicroBatch(RUN, 0, ()))


def test_what_moves_while_it_is_looked_at_is_a_run(left, tmp_path, capsys, monkeypatch):
    """However old the last sign is."""
    prepared = left.prepare(0)
    monkeypatch.setattr("spark_eos.ops.query_states.time", SimpleNamespace(sleep=lambda seconds: left.prepare(1)))
    words = [str(left.checkpoint(tmp_path)), "--watch", "1", "--quiet", "0"]
    code, answer = told(left, capsys, "status", *words)
    assert (code, answer.get("running")) == (0, True), answer
    assert "rows were written" in answer["signs_of_life"]  # the transaction may be listed later
    code, answer = told(left, capsys, "recover", *words, "--yes")
    assert (code, answer["error"]["condition"]) == (2, "EOS_RECOVER_RUNNING")
    assert left.state(prepared) is State.ONGOING


def rare(fault: str):
    return pytest.param(fault, marks=pytest.mark.chaos)


@pytest.mark.parametrize(
    "fault",
    [
        rare("recover.closed=die"),
        "recover.cleared=die",
        rare("commit.between=die"),
        rare("recover.committed=die"),
    ],
)
def test_killed_between_its_steps_it_does_the_rest_the_next_time(fault, left, tmp_path):
    """What is decided is visible once, the rest is gone, nothing is open."""
    decided = [left.prepare(0), left.prepare(1)]
    undecided = left.prepare(2)
    left.decide(*decided)
    checkpoint = left.checkpoint(tmp_path / "checkpoint")
    words = ["--ledger-topic", left.ledger, "recover", str(checkpoint), "--yes", *AT_ONCE]
    killed(left.servers, fault, tmp_path / "first", *words)
    if fault == "recover.closed=die":
        assert left.state(undecided) is State.ONGOING
        killed(left.servers, fault, tmp_path / "second", *words)
    assert recover(left, checkpoint, "--yes") == 0
    rows = sorted(f"{t.pair.id}.0" for t in decided)
    wait_for(lambda: sorted(left.view.values(left.topic)) == rows, "the decided rows")
    assert left.state(undecided) is State.COMPLETE_ABORT
    assert left.view.open_transactions(f"{PREFIX}-{left.query}") == set()


def test_how_a_query_is(left, tmp_path, capsys):
    """Run, micro-batch, what is open and where readers wait; the exit code says whether it needs somebody."""
    decided, other = left.prepare(0), left.prepare(1)
    left.decide(decided)
    words = ["status", str(left.checkpoint(tmp_path)), "--watch", "0"]
    code, answer = told(left, capsys, *words)
    at, (sink,) = answer["checkpoint"], answer["sinks"]
    assert (code, answer["running"], at["planned"], at["committed"]) == (0, True, [0], [])
    last = sink["decision"]
    assert (sink["start"], sink["run"], sink["generation"]) == ("completes", RUN, 1)
    assert (last["batch"], last["complete"]) == (0, False)
    open_ = {t["transactional_id"]: t for t in answer["open"]}
    assert {name: (t["run"], t["batch"], t["decided"], t["state"]) for name, t in open_.items()} == {
        decided.pair.id: (RUN, 0, True, "Ongoing"),
        other.pair.id: (RUN, 0, False, "Ongoing"),
    }
    mine = open_[decided.pair.id]
    assert mine["partitions"] == [{"topic": left.topic, "partition": 0, "first_offset": 0}]
    assert (mine["producer_id"], mine["epoch"]) == (decided.pair.producer_id, decided.pair.epoch)
    code, answer = told(left, capsys, *words, "--quiet", "0")
    assert (code, answer["running"]) == (1, None)
    assert "hold back read_committed consumers" in answer["troubles"][0]
    assert left.ask(*words) == 0
    said = capsys.readouterr().out
    assert f"{left.topic}-0: read_committed consumers wait at offset 0 for {decided.pair.id}" in said
    assert recover(left, tmp_path, "--yes") == 0
    capsys.readouterr()
    assert left.ask(*words) == 0
    said = capsys.readouterr().out
    assert "no: its last run is closed" in said and "no transaction" in said
    assert "micro-batch 0: 1 row(s), transactions: 1 committed" in said
    assert "The next start runs micro-batch 0 again" in said


def test_all_queries_of_a_ledger(left, tmp_path, capsys):
    """Every one, with the age of its head, and what it has open. What is not there, a query or a ledger, is no query
    without troubles."""
    code, answer = told(left, capsys, "status")
    (sink,) = answer["sinks"]
    assert (code, answer["query"], sink["run"], sink["generation"]) == (0, left.query, RUN, 1)
    assert (answer["checkpoint"], answer["running"], sink["decision"]) == (None, True, None)
    assert 0 <= sink["age_s"] < 600
    left.decide(left.prepare(0))
    assert told(left, capsys, "status", "--quiet", "0")[0] == 1
    assert recover(left, tmp_path, "--yes") == 0
    capsys.readouterr()
    assert left.ask("status") == 0
    _, row, *_, nothing = capsys.readouterr().out.splitlines()
    assert row.split()[0] == left.query and "closed" in row
    assert nothing == "no open transactions"
    code, answer = told(left, capsys, "status", "--query", "another", *AT_ONCE)
    assert (code, answer["error"]["condition"]) == (2, "EOS_QUERY_UNKNOWN")
    assert left.ask("status", "--ledger-topic", "no-ledger") == 2


def test_another_prefix_is_refused_by_name(left, tmp_path, capsys):
    """By every command, before anything is done; that of the query itself may be named."""
    prepared, before = left.prepare(0), left.ports.ledger.read()
    where = str(left.checkpoint(tmp_path))
    query = ["--query", left.query, *AT_ONCE]
    commands = [
        *(["status", *query], ["status", where, *AT_ONCE], ["recover", where, *AT_ONCE, "--yes"]),
        *(["recover", *query, part, "--yes"] for part in ("--abort-only", "--settle-only")),
        ["recover", where, "--drop-planned", "--yes"],
    ]
    for words in commands:
        assert left.ask(*words, "--prefix", "spark-eos", "--format", "json") == 2, words
        answer = json.loads(capsys.readouterr().out)
        assert answer["error"]["condition"] == "EOS_PREFIX_MISMATCH", words
    assert left.status("--prefix", PREFIX) == 1
    assert left.ask("status", "--prefix", "nobodys") == 2  # no query has it: that is no empty list
    assert left.ports.ledger.read() == before
    assert left.state(prepared) is State.ONGOING
