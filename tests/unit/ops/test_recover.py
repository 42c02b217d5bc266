"""What `spark-eos recover` plans and answers where a part of it cannot be done."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.checkpoint.files import Checkpoint
from spark_eos.errors import EosError, stop
from spark_eos.ledger.owners import Transaction
from spark_eos.ops import recover as recovery
from spark_eos.ops.heads import SinkHead
from spark_eos.ops.recover import SinkPlan, Steps, Wanted
from spark_eos.ops.state import Liveness, QueryState
from spark_eos.protocol.commands import abort_undecided
from spark_eos.protocol.end import Broken
from spark_eos.protocol.head import NOBODY, Decision, Head, Pair, Probe, Verdict, Written
from tests.simulation.by_hand import Brokers, on_brokers, stopped
from tests.simulation.ledger import QUERY
from tests.support.judges.conditions import raises
from tests.support.waiting import TIMEOUT

PAIRS = [Pair(f"p-q-1-{number}", 1, 1) for number in range(2)]
WRITTEN = tuple(Written(n, pair, 1, 1, Probe("out", n, 0)) for n, pair in enumerate(PAIRS))
HEAD = Head("run", 1, (), 5, Decision(7, 0, 1, 1, 1, None, WRITTEN), prefix="p")
BROKEN = Broken(PAIRS[0], "out", 0, "retention")
#: It stands behind another transaction that would be ended with it.
BEHIND = replace(BROKEN, behind=3)


def failing(key: str) -> EosError:
    return stop("EOS_COMMAND_OVERTAKEN", why=f"of {key}")


@pytest.fixture
def answer(monkeypatch):
    """``answer(wanted, queries, broken, fails, damaged, lost, others)``: the queries are given by the sinks of each,
    and each sink by its key; of ``fails``, nothing can be done, of ``damaged``, the head cannot be read, ``lost`` are
    transactions that turn out to be aborted, and ``others`` are open."""

    def asked(wanted: Wanted, queries=(("q",),), broken=(), fails=(), damaged=(), lost=(), others=()):
        def done(cluster, plan: SinkPlan, wanted):
            if plan.key in fails:
                raise failing(plan.key)
            return replace(plan, ended=[f"{plan.key}-ended"], lost=lost)

        def head(key: str) -> SinkHead | None:
            raise stop("EOS_LEDGER_DAMAGED", name="KeyError", error=key)

        sinks = [
            [SinkHead(key, keys[0], key if len(keys) > 1 else None, None if key in damaged else HEAD) for key in keys]
            for keys in queries
        ]
        cluster = SimpleNamespace(prefix_of=lambda _: "p", ports=lambda _: None, head=head)
        states = [QueryState(found[0].key, found, others, Liveness(closed=True)) for found in sinks]
        monkeypatch.setattr(recovery, "query_states", lambda *_, **__: states)
        monkeypatch.setattr(recovery, "recovered", done)
        monkeypatch.setattr(recovery, "find_held", lambda *_: ({}, list(broken)))
        return recovery.recover(cluster, None, [keys[0] for keys in queries], wanted)

    return asked


@pytest.mark.parametrize("queries", [[["a"], ["b"], ["c"]], [["a", "b", "c"]]], ids=["queries", "sinks"])
def test_an_error_at_one_of_several(answer, queries):
    """What was done of the others is told, and done also after the error."""
    found = answer(Wanted(yes=True), queries, fails=["b"])
    sinks = {sink["ledger_key"]: sink for query in found.data for sink in query["sinks"]}
    assert {key: (sink["ended"], bool(sink["error"])) for key, sink in sinks.items()} == {
        "a": (["a-ended"], False),
        "b": ([], True),
        "c": (["c-ended"], False),
    }
    assert sinks["b"]["error"]["condition"] == "EOS_COMMAND_OVERTAKEN"
    assert found.code == 2
    assert found.text.count("committed 2 decided") == 2 and str(failing("b")) in found.text


def test_an_error_at_the_only_one(answer):
    """Then there is nothing else to tell."""
    with pytest.raises(EosError, match="EOS_COMMAND_OVERTAKEN"):
        answer(Wanted(yes=True), fails=["q"])
    for wanted in (Wanted(), Wanted(yes=True)):
        with pytest.raises(EosError, match="EOS_LEDGER_DAMAGED"):
            answer(wanted, damaged=["q"])


@pytest.mark.parametrize("queries", [[["a"], ["b"]], [["b"], ["a"]], [["a", "b"]]])
@pytest.mark.parametrize("yes", [False, True])
def test_one_head_that_cannot_be_read(answer, queries, yes):
    """The others are recovered all the same."""
    found = answer(Wanted(yes=yes), queries, damaged=["b"])
    sinks = {sink["ledger_key"]: sink for query in found.data for sink in query["sinks"]}
    assert (sinks["a"]["ended"], sinks["a"]["error"]) == (["a-ended"] if yes else [], None)
    assert (sinks["b"]["needed"], sinks["b"]["error"]["condition"]) == (False, "EOS_LEDGER_DAMAGED")
    assert found.code == 2
    assert "EOS_LEDGER_DAMAGED" in found.text and ("committed 2" if yes else "would commit 2") in found.text


def test_a_plan_to_abort_what_is_broken(answer):
    """It says which transactions are aborted, and which are committed; that is not all that has to be done."""
    found = answer(Wanted(abort_broken=True), broken=[BROKEN])
    (sink,) = found.data[0]["sinks"]
    assert (sink["broken"], sink["unsettled"]) == ([PAIRS[0].id], [PAIRS[1].id])
    assert "would abort 1 decided transaction(s) of micro-batch 7 that have lost rows" in found.text
    assert "would commit 1 decided transaction(s) of micro-batch 7" in found.text
    assert found.code == 1


@pytest.mark.parametrize(
    ("wanted", "broken"),
    [
        (Wanted(), BROKEN),
        (Wanted(Steps.SETTLE), BROKEN),
        (Wanted(abort_broken=True), BEHIND),
        (Wanted(abort_broken=True), replace(BROKEN, outcome_gone=True)),
    ],
)
def test_a_plan_that_would_be_refused(answer, wanted, broken):
    """The answer has the error that --yes ends with."""
    found = answer(wanted, broken=[broken])
    assert found.code == 2
    assert found.data[0]["sinks"][0]["error"]["condition"] in ("EOS_DECISION_BROKEN", "EOS_OUTCOME_GONE")
    assert broken.pair.id in found.text and "add --yes" not in found.text


@pytest.mark.parametrize("steps", Steps)
def test_what_is_whole_can_be_done_and_is_done(answer, steps):
    """With exit code 0; the answer says which of both it was. What is not committed is not looked at."""
    undecided = Transaction("p-q-2-0-0", "q", 2, 0, "Ongoing", 5.0, 60.0, False, 1, "r", 0, False)
    for yes in (False, True):
        found = answer(Wanted(steps, yes), broken=[BROKEN] if steps is Steps.ABORT else [], others=[undecided])
        assert (found.code, found.data[0]["dry_run"]) == (0, not yes)
        assert ("--yes" in found.text) is not yes and "lost" not in found.text
    assert "commit" in found.text or steps is Steps.ABORT


def test_what_was_lost_is_told_alike_whoever_has_aborted_it(answer):
    """Brokers before the command, or the command; it was not committed, and only a start writes it again."""
    found = answer(Wanted(yes=True), lost=[PAIRS[0].id])
    assert "1 decided transaction(s) are aborted" in found.text and "committed 1 decided" in found.text
    assert "writes their rows again" in found.text
    assert (found.code, found.data[0]["sinks"][0]["lost"]) == (1, [PAIRS[0].id])


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("abort_broken", [False, True])
@on_brokers
def test_a_recovery_does_not_overtake_itself(
    brokers: Brokers, closed: bool, broken: bool, abort_broken: bool, monkeypatch: pytest.MonkeyPatch
):
    """Whatever it publishes: of a run that was killed after its decision, or was closed since, with and without rows
    that are lost. That it closes the query comes first."""
    pair, batch = brokers.prepared_in_two_partitions()
    brokers.dies("commit.decided", batch)
    if closed:
        abort_undecided(brokers.ports(), QUERY)
    if broken:
        brokers.taken_by_retention()
    plan = SinkPlan(QUERY, None, brokers.ports().ledger.read(), Steps.ALL)
    cluster: Any = SimpleNamespace(ports=lambda _: brokers.ports())
    wanted = Wanted(yes=True, abort_broken=abort_broken)
    monkeypatch.setattr(recovery, "find", lambda *_: [])
    if broken and not abort_broken:
        stopped("EOS_DECISION_BROKEN", lambda: recovery.recovered(cluster, plan, wanted))
    else:
        assert recovery.recovered(cluster, plan, wanted).lost == ([pair.id] if broken else [])
        (written,) = brokers.ports().ledger.read().decision.written
        assert (written.verdict is Verdict.COMMITTED) is not broken
    assert brokers.ports().ledger.read().run == NOBODY


def test_a_folder_without_a_query_is_refused(tmp_path):
    """Before the cluster is asked; also where Spark has begun to write into it, as nobody knows by which id."""
    (tmp_path / "offsets").mkdir()
    with raises("EOS_QUERY_UNKNOWN.checkpoint"):
        recovery.recover(SimpleNamespace(), Checkpoint(str(tmp_path)), [], Wanted(yes=True))


def test_it_needs_no_spark():
    """The commands run where pyspark is not installed."""
    code = "import sys; sys.modules['pyspark'] = None; import spark_eos.ops.recover"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=TIMEOUT)
