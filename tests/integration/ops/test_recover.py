"""`spark-eos recover` and `spark-eos status` on a real broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.errors import Superseded
from spark_eos.protocol.commit import commit
from spark_eos.protocol.head import NOBODY
from spark_eos.protocol.ports import State
from spark_eos.protocol.task import MicroBatch
from tests.support.queries.stopped_query import AT_ONCE, PREFIX, RUN, Left
from tests.support.waiting import PROGRAM_S, wait_for


def told(left: Left, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    capsys.readouterr()
    code = left.ask(*words, "--format", "json")
    answer = json.loads(capsys.readouterr().out)
    return code, answer[0] if isinstance(answer, list) and len(answer) == 1 else answer


def recover(left: Left, folder: Path, *words: str) -> int:
    return left.ask("recover", str(left.checkpoint(folder)), *AT_ONCE, *words)


def test_what_is_decided_becomes_visible_and_the_rest_is_aborted(left, tmp_path, capsys):
    """Without --yes nothing is done; afterwards there is nothing more to do."""
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


def test_what_brokers_have_aborted_is_told(left, tmp_path, capsys):
    """Only the query itself can write it again."""
    decided = left.prepare(0)
    left.decide(decided)
    left.view.end_transaction(decided.pair.id, commit=False)
    code, answer = told(left, capsys, "recover", str(left.checkpoint(tmp_path)), "--yes", *AT_ONCE)
    assert (code, answer["sinks"][0]["lost"]) == (1, [decided.pair.id])
    assert recover(left, tmp_path, "--yes") == 1
    assert "writes their rows again" in capsys.readouterr().out


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


def killed_at(left: Left, fault: str, checkpoint: Path, folder: Path) -> None:
    """The command as a process of its own, which dies there."""
    folder.mkdir()
    words = ["--bootstrap-servers", left.servers, "--ledger-topic", left.ledger]
    words += ["recover", str(checkpoint), "--yes", *AT_ONCE]
    faults = {"SPARK_EOS_FAULTS": fault, "SPARK_EOS_FAULTS_DIR": str(folder)}
    command = [sys.executable, "-m", "spark_eos.cli", *words]
    done = subprocess.run(command, env=os.environ | faults, capture_output=True, text=True, timeout=PROGRAM_S)
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr


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
    killed_at(left, fault, checkpoint, tmp_path / "first")
    if fault == "recover.closed=die":
        assert left.state(undecided) is State.ONGOING
        killed_at(left, fault, checkpoint, tmp_path / "second")
    assert recover(left, checkpoint, "--yes") == 0
    rows = sorted(f"{t.pair.id}.0" for t in decided)
    wait_for(lambda: sorted(left.view.values(left.topic)) == rows, "the decided rows")
    assert left.state(undecided) is State.COMPLETE_ABORT
    assert left.view.open_transactions(f"{PREFIX}-{left.query}") == set()


def test_how_a_query_is(left, tmp_path, capsys):
    """Run, micro-batch, what is open, the lag; the exit code says whether it needs somebody."""
    decided = left.prepare(0)
    left.prepare(1)
    left.decide(decided)
    words = ["status", str(left.checkpoint(tmp_path)), "--watch", "0"]
    code, answer = told(left, capsys, *words)
    at = answer["checkpoint"]
    assert (code, answer["running"], at["planned"], at["committed"]) == (0, True, [0], [])
    (sink,) = answer["sinks"]
    last = sink["decision"]
    assert sink["start"] == "completes"
    assert (sink["run"], sink["generation"], last["batch"], last["complete"]) == (RUN, 1, 0, False)
    assert sorted(t["decided"] for t in answer["open"]) == [False, True]
    assert [t["transactional_id"] for t in answer["open"] if t["decided"]] == [decided.pair.id]
    code, answer = told(left, capsys, *words, "--quiet", "0")
    assert (code, answer["running"]) == (1, None)
    assert "hold back read_committed consumers" in answer["troubles"][0]
    assert recover(left, tmp_path, "--yes") == 0
    capsys.readouterr()
    assert left.ask(*words) == 0
    said = capsys.readouterr().out
    assert "no: its last run is closed" in said
    assert "micro-batch 0: 1 row(s), transactions: 1 committed" in said
    assert "no transaction" in said
    assert "The next start runs micro-batch 0 again" in said


def test_all_queries_of_a_ledger(left, tmp_path, capsys):
    """Every one, with the age of its head, and what it has open."""
    code, answer = told(left, capsys, "status")
    (sink,) = answer["sinks"]
    assert (code, answer["query"], sink["run"], sink["generation"]) == (0, left.query, RUN, 1)
    assert (sink["decision"], sink["state"], sink["start"], sink["job"]) == (None, "open", None, None)
    assert (answer["checkpoint"], answer["running"], answer["lag"]) == (None, True, None)
    assert 0 <= sink["age_s"] < 600
    left.decide(left.prepare(0))
    capsys.readouterr()
    assert left.ask("status", "--quiet", "0") == 1
    assert "hold back read_committed consumers" in capsys.readouterr().out
    assert recover(left, tmp_path, "--yes") == 0
    capsys.readouterr()
    assert left.ask("status") == 0
    heading, row, *_, nothing = capsys.readouterr().out.splitlines()
    assert heading.split()[0] == "query"
    assert row.split()[0] == left.query
    assert "closed" in row
    assert nothing == "no open transactions"


def test_a_query_that_nobody_knows(left, capsys):
    """It is no query without troubles; nor is one whose ledger is not there."""
    for words in (["status", "--query", "another"], ["recover", "--query", left.query, "--query", "another", "--yes"]):
        code, answer = told(left, capsys, *words, *AT_ONCE)
        assert (code, answer["error"]["condition"]) == (2, "EOS_QUERY_UNKNOWN")
    assert left.ports.ledger.read() == left.head
    assert left.ask("status", "--ledger-topic", "no-ledger") == 2
    assert "EOS_TOPIC_MISSING" in capsys.readouterr().err
