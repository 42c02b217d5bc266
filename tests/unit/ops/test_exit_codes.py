"""The exit codes of commands that change something: a dry run that could do its work exits as if it had done it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.mirror.groups import Move
from spark_eos.mirror.report import answer as moved
from spark_eos.ops.answer import Answer
from spark_eos.ops.checkpoint import adopting, dropping
from spark_eos.ops.checkpoint import command as checkpoint
from spark_eos.ops.checkpoint.heads import OwnHead
from spark_eos.ops.query import recovery
from spark_eos.ops.query.life import Life
from spark_eos.ops.replay import command as replay
from spark_eos.ops.replay.planning import ReplayPlan
from spark_eos.ops.transactions import command as transactions
from spark_eos.ops.transactions.ending import EndPlan, Result
from spark_eos.protocol.head import Head, Unfinished
from spark_eos.storage.settings import HadoopSettings
from tests.unit.test_cli import CHANGES

HEAD = Head("r", 1, (), 5, prefix="p")
MARK = Unfinished("q", "/c", "/c", 1, ())
OPEN: Any = SimpleNamespace(id="p-q-1-0-0", decided=False)
SETTINGS = HadoopSettings()
NOBODY: Any = None


def adopt(patch: pytest.MonkeyPatch, yes: bool) -> Answer:
    found = adopting.Adoption("/c", "q", 1, None, stateful=False)
    patch.setattr(adopting, "plan", lambda *_: found)
    patch.setattr(adopting, "adopt", lambda *_: found)
    return checkpoint.adopt(NOBODY, NOBODY, None, yes=yes)


def drop(patch: pytest.MonkeyPatch, yes: bool) -> Answer:
    found = dropping.Drop("q", 2, MARK, HEAD, None)
    patch.setattr(dropping, "plan", lambda *_: found)
    patch.setattr(dropping, "drop", lambda *_: found)
    return checkpoint.drop("/c", SETTINGS, NOBODY, yes=yes)


def replays(patch: pytest.MonkeyPatch, yes: bool) -> Answer:
    patch.setattr(replay, "plan", lambda *_: ReplayPlan("q", MARK, 2, []))
    patch.setattr(replay, "Replay", lambda *_: SimpleNamespace(in_place=lambda: None))
    asked = replay.ReplayOptions("/c", 1, None, None, None, False, None, in_place=True, finish=False, yes=yes)
    return replay.replay(asked, NOBODY, SETTINGS)


def recover(patch: pytest.MonkeyPatch, yes: bool) -> Answer:
    sink = recovery.Sink(OwnHead("q", None, HEAD), ["p-q-1-0-0"], [], [])
    patch.setattr(recovery, "heads_of", lambda *_: [sink.own])
    patch.setattr(recovery, "plan", lambda *_: [sink])
    patch.setattr(recovery, "look_for_life", lambda *_: Life((), None, closed=True))
    patch.setattr(recovery, "_recovered", lambda *_: sink)
    at: Any = SimpleNamespace(query_id=lambda: "q", location="/c")
    return recovery.recover_query(at, NOBODY, yes=yes, even_if_running=False, watch_s=0, quiet_s=0)


def ends(action: Callable[..., Answer], name: str) -> Callable[[pytest.MonkeyPatch, bool], Answer]:
    def answered(patch: pytest.MonkeyPatch, yes: bool) -> Answer:
        patch.setattr(transactions.report, "as_json", lambda *_: {})
        patch.setattr(transactions.ending, f"plan_{name}", lambda *_: EndPlan("q", [OPEN], []))
        patch.setattr(transactions.ending, name, lambda *_, **__: Result("q", [OPEN.id]))
        return action(NOBODY, ["q"], yes=yes)

    return answered


def move_group(patch: pytest.MonkeyPatch, yes: bool) -> Answer:
    return moved(Move("g", (), (), deletes=False, done=yes))


TABLE = {
    "checkpoint adopt": adopt,
    "checkpoint drop": drop,
    "replay": replays,
    "recover": recover,
    "transactions abort": ends(transactions.abort, "abort"),
    "transactions settle": ends(transactions.settle, "settle"),
    "mirror move-group": move_group,
}


def test_the_table_has_every_command():
    """`mirror position` only tells a position, once nothing can change it: there is nothing that it could do later."""
    assert {*TABLE, "mirror position"} == CHANGES


@pytest.mark.parametrize("yes", [False, True], ids=["dry run", "done"])
@pytest.mark.parametrize("command", TABLE)
def test_what_could_be_done_exits_like_what_was_done(command, yes, monkeypatch):
    """With 0; the answer says which of both it was."""
    answer = TABLE[command](monkeypatch, yes)
    assert answer.code == 0
    first = answer.data[0] if isinstance(answer.data, list) else answer.data
    assert first.get("dry_run", not first.get("done")) is not yes
    assert ("--yes" in answer.text) is not yes
