"""What the ledger says of a replay, or a drop, that has begun: it must not choose what a command changes. And which
checkpoints neither of them changes."""

from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.checkpoint.files import Checkpoint
from spark_eos.errors import EosError
from spark_eos.ops import drop_planned as dropping
from spark_eos.ops import replay_plan
from spark_eos.ops.heads import SinkHead
from spark_eos.ops.replay_plan import ReplayRequest, check_heads
from spark_eos.protocol.checks import finish_command
from spark_eos.protocol.head import MOST_TOPICS, NOBODY, Decision, ForeachBatchWrite, Head, Marks, Unfinished
from spark_eos.protocol.names import query_of_replay
from tests.support.judges.conditions import raises

QUERY, NEW = "q", "/somewhere/new"
LINES = ('{"in":{"0":4}}', '{"#ids":{"u":"x"},"u":{"0":7}}')
FINISH, AGAIN = ReplayRequest(NEW), ReplayRequest(NEW, batch=1, again=True)
METADATA, DONE = ("v1", '{"batchTimestampMs":1}'), ("v1", "{}")
HEAD = Head(NOBODY, 3, (), 5, Decision(2, 0, 1, 1, 1, None, (), group="g"), prefix="p")


@pytest.fixture
def where(tmp_path: Path) -> str:
    """A checkpoint that has done micro-batches 0 to 2, each further than the one before."""
    for log in ("offsets", "commits"):
        (tmp_path / log).mkdir()
    (tmp_path / "metadata").write_text(json.dumps({"id": QUERY}))
    for n in range(3):
        lines = [line.replace(":4}", f":{4 + n}}}").replace(":7}", f":{7 + n}}}") for line in LINES]
        (tmp_path / "offsets" / str(n)).write_text("\n".join([*METADATA, *lines]))
        (tmp_path / "commits" / str(n)).write_text("\n".join(DONE))
    return str(tmp_path)


def cluster(heads: dict[str, Head]) -> Any:
    """Of an operator; the heads that are in the ledger, by their keys."""
    return SimpleNamespace(
        head=heads.get, prefix_of=lambda query: "p", heads=SimpleNamespace(newest_of_all=dict), prefix=None, client=None
    )


def finished(where: str, mark: Unfinished, request: ReplayRequest = FINISH) -> replay_plan.ReplayPlan:
    """What a command makes of the mark."""
    marked = Head(NOBODY, 1, (), 5, prefix="p", marks=Marks(unfinished=mark))
    return replay_plan.plan(Checkpoint(where), cluster({QUERY: HEAD, query_of_replay(QUERY, NEW): marked}), request)


def begun(where: str) -> Unfinished:
    return Unfinished(QUERY, where, NEW, 0, LINES, METADATA, DONE, None, "g")


def test_a_replay_that_has_begun_is_finished(where):
    """As it was begun, with a group and without one."""
    for mark in (begun(where), replace(begun(where), group=None, topic="t")):
        assert finished(where, mark).unfinished == mark


@pytest.mark.parametrize("more", [{"batch": 1}, {"timestamp": "0"}, {"offsets": "{}"}, {"again": True}, {"topic": "t"}])
def test_a_replay_that_has_begun_goes_on_as_it_began(where, more):
    """Nobody is to believe that it goes back to another micro-batch, or to another topic; the error has the command."""
    with pytest.raises(EosError, match="EOS_REPLAY_NOT_FINISHED") as caught:
        finished(where, begun(where), replace(FINISH, **more))
    assert caught.value.hint.endswith(finish_command(begun(where)))


def test_no_replay_to_a_micro_batch_goes_forward(where, monkeypatch):
    """After a log was cut, the query may have been further: what lies between would be left out. What is planned is
    also what a second command finishes."""
    monkeypatch.setattr(replay_plan, "ranges", lambda *asked: [])
    known = cluster({QUERY: HEAD})
    planned = replay_plan.plan(Checkpoint(where), known, AGAIN).unfinished
    assert finished(where, planned).unfinished == planned
    newest = Path(where) / "offsets" / "2"
    newest.write_text(newest.read_text().replace('"in":{"0":6}', '"in":{"0":3}'))
    with raises("EOS_REPLAY_REFUSED.skips", "offset 5 of in-0, but the query is at 3"):
        replay_plan.plan(Checkpoint(where), known, AGAIN)


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [
        ("of", "another", "query"),
        ("checkpoint", "/etc", "checkpoint"),
        ("to", "/etc", "new checkpoint"),
        ("batch", -1, "micro-batch"),
        ("group", "somebody else's", "group"),
        ("lines", ('{"in":{"0":99}}', LINES[1]), "source that goes forward"),
        ("lines", ("not", "theirs"), "kind of source"),
        ("lines", (), "number of sources"),
        ("metadata", ("v9", "{}"), "version of the offset log"),
        ("metadata", ("v1",), "number of lines before the sources"),
        ("done", (), "version of the commit log"),
        ("done", ("v1",), "number of lines in the commit log"),
    ],
)
def test_a_forged_mark_is_refused(where, field, value, what):
    """Whatever of it names another query, another place, other offsets or another group, or files that Spark, as it is,
    does not read."""
    with pytest.raises(EosError, match=f"EOS_REPLAY_REFUSED.*The {what} of the.*Nothing was changed"):
        finished(where, replace(begun(where), **{field: value}))


@pytest.mark.parametrize("batch", [-5, 0, 1])
def test_a_forged_drop_takes_nothing_that_is_committed(where, batch):
    """By the ledger, it has begun; by the checkpoint, that micro-batch is done."""
    mark = Unfinished(QUERY, where, where, batch - 1, ())
    head = Head(NOBODY, 3, (), 5, prefix="p", marks=Marks(unfinished=mark))
    before = {path: path.read_text() for path in Path(where).rglob("*") if path.is_file()}
    with pytest.raises(EosError, match="EOS_COMMAND_OVERTAKEN"):
        dropping.plan(Checkpoint(where), cluster({QUERY: head}))
    other = replace(head, marks=Marks(unfinished=replace(mark, of="another", batch=2)))
    with pytest.raises(EosError, match=r"EOS_REPLAY_REFUSED.*The query of the"):
        dropping.plan(Checkpoint(where), cluster({QUERY: other}))
    assert {path: path.read_text() for path in Path(where).rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("mark", [begun("/c"), Unfinished(QUERY, "/c", "/c", 1, ())])
def test_a_command_that_is_copied_from_an_error_is_one_command(mark):
    """Whoever may write to the ledger does not get a word into somebody's shell."""
    evil = "/c; rm -rf ~ $(id) `id` 'x"
    to = evil if mark.drops else "$(id)"
    words = shlex.split(finish_command(replace(mark, checkpoint=evil, to=to)))
    assert evil in words
    assert mark.drops or "$(id)" in words


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("change", "entry"),
    [
        (lambda folder: (folder / "state" / "0").mkdir(parents=True), "EOS_REPLAY_REFUSED.stateful"),
        (lambda folder: (folder / "commits" / "1").unlink(), "EOS_REPLAY_REFUSED.gaps"),
        (lambda folder: (folder / "offsets" / "1").unlink(), "EOS_REPLAY_REFUSED.gaps"),
        (lambda folder: shutil.rmtree(folder / "commits"), "EOS_REPLAY_REFUSED.no_batch"),
        (lambda folder: (folder / "offsets" / "3").write_text("v2\n{}\n{}"), "EOS_CHECKPOINT_FORMAT"),
        (lambda folder: edit(folder / "commits" / "2", "v1", "v2"), "EOS_REPLAY_REFUSED.version"),
        (lambda folder: edit(folder / "offsets" / "2", '{"in"', '{"a":3}\n{"in"'), "EOS_REPLAY_REFUSED.other_source"),
    ],
    ids=["stateful", "asynchronous", "a gap", "nothing done", "a later Spark", "later commits", "another source"],
)
def test_checkpoints_that_are_not_replayed(where, change, entry):
    """What else would have to go back, and what nobody can tell."""
    change(Path(where))
    with raises(entry):
        replay_plan.plan(Checkpoint(where), cluster({QUERY: HEAD}), AGAIN)


@pytest.mark.parametrize(
    ("request_", "entry"),
    [
        ({"again": True}, "where_to_begin"),
        ({"again": True, "batch": 1, "timestamp": "1"}, "where_to_begin"),
        ({"batch": 1}, "where_to_write"),
        ({"batch": 1, "again": True, "topic": "x"}, "where_to_write"),
        *(({"batch": 1, "topic": topic}, "topic_name") for topic in ("", " ", " copies", "..", "Flüge")),
        ({"again": True, "batch": 3}, "not_kept"),
        ({"again": True, "batch": 4}, "not_kept"),
        ({"again": True, "offsets": '{"in":{"0":10000}}'}, "skips"),
        ({"again": True, "offsets": '{"another":{"0":0}}'}, "skips"),
    ],
)
def test_a_replay_says_where_to_begin_and_where_to_write(where, request_, entry):
    """Each in one way: not further than the query has come, which has planned one more, in what it reads, and to what
    can be a topic. An empty text would retire nothing, and bind the new query to nothing: both would write."""
    shutil.copy(Path(where, "offsets", "2"), Path(where, "offsets", "3"))
    with raises(f"EOS_REPLAY_REFUSED.{entry}"):
        replay_plan.plan(Checkpoint(where), cluster({QUERY: HEAD}), ReplayRequest(NEW, **request_))


WRITES_TO = HEAD.with_topics(["flights", "late"])


@pytest.mark.parametrize(
    ("head", "topic", "says"),
    [
        (WRITES_TO, "late", "writes to late, or did"),
        (replace(WRITES_TO.succeeded_by("s", 5), decision=None), "flights", "writes to flights, or did"),
        (WRITES_TO.with_topics(map(str, range(MOST_TOPICS))), "another", f"more than {MOST_TOPICS} topics"),
    ],
)
def test_no_replay_goes_to_a_topic_that_may_be_one_of_the_query(head, topic, says):
    """Also after a start that has decided nothing, and where there were more than the head names."""
    with raises("EOS_REPLAY_REFUSED", says, "Nothing was changed."):
        check_heads([SinkHead(QUERY, QUERY, None, head)], ReplayRequest(NEW, batch=1, topic=topic))


def done_elsewhere(folder: Path) -> None:
    """Another sink has done the planned micro-batch, and the next one is planned."""
    shutil.copy(folder / "commits" / "2", folder / "commits" / "3")
    shutil.copy(folder / "offsets" / "3", folder / "offsets" / "4")


@pytest.mark.parametrize(
    ("head", "change", "entry"),
    [
        (HEAD, lambda folder: (folder / "state" / "0").mkdir(parents=True), "EOS_DROP_REFUSED.stateful"),
        (HEAD, done_elsewhere, "EOS_DROP_REFUSED.stateful"),
        (replace(HEAD, write=ForeachBatchWrite(QUERY, "s")), lambda folder: None, "EOS_DROP_REFUSED.stateful"),
        (HEAD, lambda folder: shutil.rmtree(folder / "offsets"), "EOS_DROP_REFUSED.nothing"),
        (HEAD, lambda folder: (folder / "offsets" / "3").unlink(), "EOS_DROP_REFUSED.nothing"),
        (HEAD, lambda folder: (folder / "offsets" / "1").unlink(), "EOS_REPLAY_REFUSED.gaps"),
        (HEAD, lambda folder: edit(folder / "offsets" / "3", "v1", "v9"), "EOS_CHECKPOINT_FORMAT"),
        (None, lambda folder: None, "EOS_QUERY_UNKNOWN.ledger"),
    ],
    ids=["stateful", "elsewhere", "foreachBatch", "no log", "not planned", "a gap", "a later Spark", "unknown"],
)
def test_checkpoints_of_which_nothing_is_dropped(where, head, change, entry):
    """What else would have to be taken back, and what nobody can tell: a function of foreachBatch may have written a
    part elsewhere."""
    shutil.copy(Path(where, "offsets", "2"), Path(where, "offsets", "3"))
    assert dropping.plan(Checkpoint(where), cluster({QUERY: HEAD})).mark.dropped == 3
    change(Path(where))
    with raises(entry):
        dropping.plan(Checkpoint(where), cluster({QUERY: head} if head else {}))
