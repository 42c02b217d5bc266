"""The exit codes of commands that change something: a dry run that could do its work exits as if it had done it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.cli.mirror import move_answer
from spark_eos.ops import drop_planned as dropping
from spark_eos.ops import replay as replaying
from spark_eos.ops.answer import Answer
from spark_eos.ops.replay_plan import ReplayPlan, ReplayRequest
from spark_eos.pipelines.mirror.offsets import GroupMove
from spark_eos.protocol.head import Head, Unfinished
from tests.unit.test_cli import KNOWN

HEAD = Head("r", 1, (), 5, prefix="p")
MARK = Unfinished("q", "/c", "/c", 1, ())
SETTINGS = HadoopSettings()
NOBODY: Any = None


def drop(patch: pytest.MonkeyPatch, yes: bool, left: Sequence[str] = ()) -> Answer:
    found = dropping.Drop(MARK, HEAD, None)
    patch.setattr(dropping, "plan", lambda *_: found)
    patch.setattr(dropping, "drop", lambda *_: replace(found, left=left))
    return dropping.drop_planned("/c", SETTINGS, NOBODY, yes=yes)


def replays(patch: pytest.MonkeyPatch, yes: bool, left: Sequence[str] = ()) -> Answer:
    plan = ReplayPlan("n", replace(MARK, to="/n"), 2, [])
    patch.setattr(replaying, "plan", lambda *_: plan)
    patch.setattr(replaying, "NewCheckpoint", lambda *_: SimpleNamespace(check_free=lambda: None))
    patch.setattr(replaying, "Replay", lambda *_: SimpleNamespace(run=lambda: left))
    return replaying.replay("/c", ReplayRequest("/n", 1, again=True), NOBODY, SETTINGS, yes=yes)


def move_group(patch: pytest.MonkeyPatch, yes: bool) -> Answer:
    return move_answer(GroupMove("g", (), (), deletes=False, done=yes))


TABLE = {
    "recover --drop-planned": drop,
    "replay": replays,
    "mirror move-group": move_group,
}


def test_the_table_has_every_command():
    """`mirror position` only tells a position, once nothing can change it: there is nothing that it could do later.
    Those of `recover` for a whole query are in test_recover.py, and `dead-letters resend` has no doubt."""
    others = {"mirror position", "dead-letters resend"}
    assert {name.partition(" --")[0] for name in TABLE} | others == {name for name in KNOWN if "--yes" in KNOWN[name]}


@pytest.mark.parametrize("yes", [False, True], ids=["dry run", "done"])
@pytest.mark.parametrize("command", TABLE)
def test_what_could_be_done_exits_like_what_was_done(command, yes, monkeypatch):
    """With 0; the answer says which of both it was."""
    answer = TABLE[command](monkeypatch, yes)
    assert answer.code == 0
    assert answer.data.get("dry_run", not answer.data.get("done")) is not yes
    assert ("--yes" in answer.text) is not yes


@pytest.mark.parametrize("command", [drop, replays])
def test_what_leaves_something_open(command, monkeypatch):
    """It is done, and something is left; of a retired query, which no start will end."""
    answer = command(monkeypatch, True, ["p-q-1-0-0"])
    assert (answer.code, answer.data["left"]) == (1, ["p-q-1-0-0"])
    assert ("recover --query q --abort-only --yes" in answer.text) is (command is replays)
