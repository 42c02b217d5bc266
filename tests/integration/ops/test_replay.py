"""`spark-eos status` and `spark-eos replay` on a real broker, with queries of a real Spark.

Outputs are read by a plain consumer. A query that has been replayed reads on by itself, from where the new checkpoint
begins.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka.admin import NewPartitions

from tests.support.judges.kafka_view import write
from tests.support.queries.replaying import ROWS, killed
from tests.support.runs.case_cover import one_for_every_day
from tests.support.waiting import wait_for


def test_show(quiet):
    """What is in the checkpoint, what the ledger holds, and what a start would do; and nothing is changed by it."""
    life = quiet
    shown = life.status()
    at = shown["checkpoint"]
    assert shown["query"] == json.loads((life.checkpoint / "metadata").read_text())["id"]
    assert (at["planned"], at["committed"]) == ([0, 1, 2, 3], [0, 1, 2, 3])
    assert (at["sources"], at["stateful"], at["recreated_topics"], shown["open"]) == (
        ["eos-kafka"],
        False,
        [],
        [],
    )
    (place,) = at["partitions"]
    ends = life.end
    assert (place["topic"], place["partition"], place["begin"], place["end"]) == (life.source, 0, 0, ends)
    assert place["planned"] == place["committed"] == ends
    (head,) = shown["sinks"]
    assert (head["sink"], head["decision"]["batch"], head["decision"]["rows"]) == (None, 3, ROWS)
    assert head["decision"]["group"] == life.group
    assert shown["next"] == "plans micro-batch 4" or shown["next"] == "commits micro-batch 3, then plans micro-batch 4"
    life.sink.forget(3)
    again = life.status()
    assert again["next"].startswith("runs micro-batch 3 again: it is decided")
    assert life.command("status", str(life.checkpoint), "--watch", "0") == 0
    text = life.capsys.readouterr().out
    parts = (
        shown["query"],
        "planned     micro-batches 0 to 3",
        "committed   micro-batches 0 to 2",
        f"{life.source}-0",
        "decided     micro-batch 3",
    )
    assert [part for part in parts if part not in text] == []
    life.run()
    assert life.counts() == life.expected(1, 1, 1)


def test_a_replay_to_the_same_topic(life):
    """Without --yes, it only tells. Then the rows after that micro-batch are there once more, the group goes back and
    on, and the old checkpoint is refused for good."""
    words = ["replay", str(life.checkpoint), "--new", str(life.new), "--to-batch", "1", "--again"]
    told = life.told(*words)
    assert (told["dry_run"], told["retires"], told["group"]) == (True, True, life.group)
    (place,) = told["partitions"]
    start, end = life.end // 3, life.end
    assert (place["start"], place["end"], told["at_most_rows"]) == (start, end, end - start)
    assert life.began[1] <= place["first_ms"] < life.began[2] <= place["last_ms"]
    assert life.command(*words) == 0
    assert "add --yes" in life.capsys.readouterr().out
    assert not life.new.exists()
    life.run()  # the old query is as it was
    assert life.command(*words, "--yes") == 0
    assert life.view.group(life.group, life.source) == {(life.source, 0): start}
    life.feed()
    assert str(life.new) in life.stopped_by("EOS_QUERY_RETIRED")
    life.run(life.new)
    assert life.counts() == life.expected(1, 2, 2, 1)
    assert life.view.group(life.group, life.source) == life.view.ends(life.source)
    life.stopped_by("EOS_QUERY_RETIRED")
    shown = life.status()
    assert "EOS_QUERY_RETIRED" in shown["next"]
    assert shown["sinks"][0]["marks"]["successor"]["checkpoint"] == str(life.new)
    life.refused("EOS_REPLAY_REFUSED", *words[:3], f"{life.new}2", *words[4:])
    life.refused("EOS_REPLAY_REFUSED", *words[:4], "--yes")


def test_a_replay_to_another_topic(life, topic):
    """The old query goes on untouched; the new one writes nowhere else, whatever its options say."""
    other = topic()
    where = ["--to-timestamp", str(life.began[1]), "--topic"]
    assert life.replay(*where, life.out) == 2
    assert "EOS_REPLAY_REFUSED" in life.capsys.readouterr().err
    assert life.replay(*where, other, "--yes") == 0
    life.stopped_by("EOS_REPLAY_OTHER_TOPIC", life.new)
    life.feed()
    life.run()
    assert life.counts() == life.expected(1, 1, 1, 1)
    life.run(life.new, **{"topic": other, "offsets.group.id": "of the other"})
    assert life.counts(other) == life.expected(0, 1, 1, 1)
    assert life.counts() == life.expected(1, 1, 1, 1)
    life.feed()
    life.stopped_by("EOS_REPLAY_OTHER_TOPIC", life.new)


@pytest.mark.parametrize(
    "fault",
    one_for_every_day(
        "a replay that is killed",
        [
            "replay.intended=die",
            "replay.filed=die",
            "replay.filed=die@2",
            "replay.filed=die@3",
            "replay.halted=die",
            "replay.begun=die",
        ],
    ),
)
def test_a_replay_that_is_killed(fault, life, tmp_path):
    """Until the old query is retired, it goes on as before; the new one is refused, until the command that its error
    names has finished the replay. Never do both go on."""
    words = ["replay", str(life.checkpoint), "--new", str(life.new)]
    killed(life, fault, tmp_path, *words, "--to-batch", "1", "--again", "--yes")
    life.feed()
    retired = fault in ("replay.halted=die", "replay.begun=die")
    if retired:
        life.stopped_by("EOS_QUERY_RETIRED")
    else:
        life.run()
    if fault == "replay.begun=die":
        life.refused("EOS_REPLAY_REFUSED", *words, "--yes")
    else:
        if life.new.exists():
            assert f"{' '.join(words)} --yes" in life.stopped_by("EOS_REPLAY_UNFINISHED", life.new)
        if fault == "replay.filed=die":  # that start has planned a micro-batch 0 of its own
            life.refused("EOS_REPLAY_REFUSED", *words, "--yes")
            shutil.rmtree(life.new)
        assert life.command(*words) == 0
        assert life.command(*words, "--yes") == 0
    if not retired:
        life.feed()
    life.stopped_by("EOS_QUERY_RETIRED")
    life.run(life.new)
    assert life.counts() == (life.expected(1, 2, 2, 1) if retired else life.expected(1, 2, 2, 2, 1))


def test_where_a_replay_cannot_go(quiet, tmp_path):
    """Each with a name, before anything is changed. What the request alone tells is refused without a broker."""
    life = quiet
    at = ["replay", str(life.checkpoint), "--new", str(life.new)]
    life.refused("EOS_REPLAY_REFUSED", *at, "--again")
    life.refused("EOS_PREFIX_MISMATCH", *at, "--to-batch", "1", "--again", "--prefix", "another")
    life.refused("EOS_REPLAY_REFUSED", *at, "--to-batch", "4", "--again")
    for offsets in ({life.source: {"0": 10_000}}, {"unknown": {"0": 0}}):
        life.refused("EOS_REPLAY_REFUSED", *at, "--to-offsets", json.dumps(offsets), "--again")
    (tmp_path / "metadata").write_text("{}")
    for old, new in ((str(tmp_path / "nowhere"), at[3]), (at[1], str(tmp_path))):
        life.refused("EOS_REPLAY_REFUSED", "replay", old, "--new", new, "--to-batch", "1", "--again")
    life.run()
    assert life.counts() == life.expected(1, 1, 1)


@pytest.mark.parametrize(
    ("condition", "change"),
    [
        ("EOS_REPLAY_REFUSED", lambda folder: (folder / "state" / "0").mkdir(parents=True)),
        ("EOS_REPLAY_REFUSED", lambda folder: (folder / "commits" / "1").unlink()),
        ("EOS_REPLAY_REFUSED", lambda folder: (folder / "offsets" / "2").unlink()),
        ("EOS_CHECKPOINT_FORMAT", lambda folder: edit(folder / "offsets" / "3", "v1", "v2")),
        ("EOS_REPLAY_REFUSED", lambda folder: edit(folder / "commits" / "3", "v1", "v2")),
        ("EOS_REPLAY_REFUSED", lambda folder: edit(folder / "offsets" / "3", '{"#', '{"a":3}\n{"#')),
        ("EOS_REPLAY_REFUSED", lambda folder: edit(folder / "offsets" / "3", '{"id": "', '{"id": "X')),
        ("EOS_REPLAY_REFUSED", lambda folder: edit_topic_id(folder / "offsets" / "3")),
    ],
)  # fmt: skip
def test_checkpoints_that_are_not_replayed(condition, change, quiet, tmp_path):
    """State, asynchronous progress, unknown versions, other sources, another cluster, topics that were created anew."""
    copy = tmp_path / "copy"
    shutil.copytree(quiet.checkpoint, copy)
    change(copy)
    quiet.refused(condition, "replay", str(copy), "--new", str(quiet.new), "--to-batch", "1", "--again")


@pytest.mark.chaos
def test_partitions_that_were_added_since(life, admin):
    """They are read again from their beginning, as they were at first."""
    admin.create_partitions([NewPartitions(life.source, 2)])[life.source].result()
    write(life.cluster.bootstrap_servers, life.source, [(1, "more")], commit=True)
    life.run()
    wait_for(lambda: life.run() is None and "more" in life.counts(), "a run that knows the partition")
    words = ["replay", str(life.checkpoint), "--new", str(life.new), "--to-batch", "3", "--again"]
    told = life.told(*words)
    assert [(r["partition"], r["start"], r["end"]) for r in told["partitions"]] == [(0, 12, 12), (1, 0, 2)]
    assert life.command(*words, "--yes") == 0
    life.run(life.new)
    assert life.counts() == life.expected(1, 1, 1) + Counter({"more": 2})


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def edit_topic_id(file: Path) -> None:
    text, count = re.subn(r'("#ids":\s*\{"[^"]*":\s*")', r"\1X", file.read_text())
    assert count == 1
    file.write_text(text)
