"""The exit codes of commands that change something: a dry run that could do its work exits as if it had done it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.cli.mirror import move_answer
from spark_eos.ledger.owners import Transaction
from spark_eos.ops import drop_planned as dropping
from spark_eos.ops import recover as recovery
from spark_eos.ops import replay as replaying
from spark_eos.ops.answer import Answer
from spark_eos.ops.heads import SinkHead
from spark_eos.ops.replay_plan import ReplayPlan, ReplayRequest
from spark_eos.ops.state import Liveness, QueryState
from spark_eos.pipelines.mirror.offsets import GroupMove
from spark_eos.protocol.head import Head, Unfinished
from tests.unit.test_cli import CHANGES

HEAD = Head("r", 1, (), 5, prefix="p")
MARK = Unfinished("q", "/c", "/c", 1, ())
OPEN = Transaction("p-q-1-0-0", "q", 1, 0, "Ongoing", 5.0, 60.0, False, 1, "r", 0, False)
SETTINGS = HadoopSettings()
NOBODY: Any = None


def drop(patch: pytest.MonkeyPatch, yes: bool) -> Answer:
    found = dropping.Drop(MARK, HEAD, None)
    patch.setattr(dropping, "plan", lambda *_: found)
    patch.setattr(dropping, "drop", lambda *_: found)
    return dropping.drop_planned("/c", SETTINGS, NOBODY, yes=yes)


def replays(patch: pytest.MonkeyPatch, yes: bool) -> Answer:
    return replayed(patch, [], yes=yes)


def replayed(patch: pytest.MonkeyPatch, left: list[str], *, yes: bool) -> Answer:
    plan = ReplayPlan("n", replace(MARK, to="/n"), 2, [])
    patch.setattr(replaying, "plan", lambda *_: plan)
    patch.setattr(replaying, "NewCheckpoint", lambda *_: SimpleNamespace(check_free=lambda: None))
    patch.setattr(replaying, "Replay", lambda *_: SimpleNamespace(run=lambda: left))
    return replaying.replay("/c", ReplayRequest("/n", 1, again=True), NOBODY, SETTINGS, yes=yes)


def recovers(part: recovery.Steps) -> Callable[[pytest.MonkeyPatch, bool], Answer]:
    def answered(patch: pytest.MonkeyPatch, yes: bool) -> Answer:
        own = SinkHead("q", "q", None, HEAD)
        found = replace(OPEN, decided=part is recovery.Steps.SETTLE)
        state = QueryState("q", [own], [found], Liveness(closed=True))
        patch.setattr(recovery, "query_states", lambda *_, **__: [state])
        patch.setattr(recovery, "recovered", lambda cluster, plan, wanted: plan)
        cluster: Any = SimpleNamespace(prefix_of=lambda _: "p")
        return recovery.recover(cluster, None, ["q"], recovery.Wanted(part, yes))

    return answered


def move_group(patch: pytest.MonkeyPatch, yes: bool) -> Answer:
    return move_answer(GroupMove("g", (), (), deletes=False, done=yes))


TABLE = {
    "recover": recovers(recovery.Steps.ALL),
    "recover --abort-only": recovers(recovery.Steps.ABORT),
    "recover --settle-only": recovers(recovery.Steps.SETTLE),
    "recover --drop-planned": drop,
    "replay": replays,
    "mirror move-group": move_group,
}


def test_the_table_has_every_command():
    """`mirror position` only tells a position, once nothing can change it: there is nothing that it could do later."""
    assert {name.partition(" --")[0] for name in TABLE} | {"mirror position"} == CHANGES


@pytest.mark.parametrize("yes", [False, True], ids=["dry run", "done"])
@pytest.mark.parametrize("command", TABLE)
def test_what_could_be_done_exits_like_what_was_done(command, yes, monkeypatch):
    """With 0; the answer says which of both it was."""
    answer = TABLE[command](monkeypatch, yes)
    assert answer.code == 0
    first = answer.data[0] if isinstance(answer.data, list) else answer.data
    assert first.get("dry_run", not first.get("done")) is not yes
    assert ("--yes" in answer.text) is not yes


def test_a_drop_that_leaves_something_open(monkeypatch):
    """It is done, and something is left."""
    found = dropping.Drop(MARK, HEAD, None)
    monkeypatch.setattr(dropping, "plan", lambda *_: found)
    monkeypatch.setattr(dropping, "drop", lambda *_: replace(found, left=["p-q-1-0-0"]))
    answer = dropping.drop_planned("/c", SETTINGS, NOBODY, yes=True)
    assert (answer.code, answer.data["left"]) == (1, ["p-q-1-0-0"])


@pytest.mark.parametrize("left", [[], ["p-q-1-0-0"]])
def test_a_replay_that_leaves_something_open(monkeypatch, left):
    """Of the retired query, which no start will end."""
    answer = replayed(monkeypatch, left, yes=True)
    assert (answer.code, answer.data["left"]) == (len(left), left)
    assert ("recover --query q --abort-only --yes" in answer.text) is bool(left)
