"""`spark-eos status` and `spark-eos replay` on a real broker, with queries of a real Spark.

Outputs are read by a plain consumer. A query that has been replayed reads on by itself, from where the new checkpoint
begins.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter

import pytest
from confluent_kafka.admin import NewPartitions

from tests.support.judges.kafka_view import write
from tests.support.queries.replaying import ROWS, killed
from tests.support.runs.case_cover import one_for_every_day
from tests.support.servers.object_store import object_store
from tests.support.waiting import wait_for


def test_show(quiet):
    """What is in a checkpoint of Spark's, what the ledger has, and what a start would do; nothing is changed by it."""
    life = quiet
    shown = life.status()
    at, (head,) = shown["checkpoint"], shown["sinks"]
    assert shown["query"] == json.loads((life.checkpoint / "metadata").read_text())["id"]
    assert (at["planned"], at["committed"]) == ([0, 1, 2, 3], [0, 1, 2, 3])
    assert (at["sources"], at["stateful"], at["recreated_topics"], shown["open"]) == (["eos-kafka"], False, [], [])
    (place,) = at["partitions"]
    assert (place["topic"], place["partition"], place["begin"], place["end"]) == (life.source, 0, 0, life.end)
    assert place["planned"] == place["committed"] == life.end
    decision = head["decision"]
    assert (head["sink"], decision["batch"], decision["rows"], decision["group"]) == (None, 3, ROWS, life.group)
    assert "plans micro-batch 4" in shown["next"]
    life.sink.forget(3)
    assert life.status()["next"].startswith("runs micro-batch 3 again: it is decided")
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
    life.refused("EOS_REPLAY_REFUSED", *words[:3], str(life.checkpoint), *words[4:])
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
    life.refused("EOS_PREFIX_MISMATCH", *words, "--prefix", "another")


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
    killed(life.cluster.bootstrap_servers, fault, tmp_path / "faults", *words, "--to-batch", "1", "--again", "--yes")
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


@pytest.mark.parametrize("mark", ["#cluster", "#ids"])
def test_a_checkpoint_of_other_topics_is_not_replayed(mark, quiet, tmp_path):
    """Of another cluster, and of topics that were created anew since."""
    copy = tmp_path / "copy"
    shutil.copytree(quiet.checkpoint, copy)
    newest = copy / "offsets" / "3"
    text, count = re.subn(rf'("{mark}":\s*\{{"[^"]*":\s*")', r"\1X", newest.read_text())
    assert count == 1
    newest.write_text(text)
    quiet.refused("EOS_REPLAY_REFUSED", "replay", str(copy), "--new", str(quiet.new), "--to-batch", "1", "--again")


def test_a_checkpoint_in_an_object_store(quiet, topic, tmp_path):
    """Shown, and replayed to another place there, with the settings of the store on the command line."""
    with object_store(tmp_path) as store:
        for name in ("metadata", *(f"{log}/{n}" for log in ("offsets", "commits") for n in range(4))):
            store.put(f"c/{name}", (quiet.checkpoint / name).read_text())
        storage = [word for key, value in store.settings.items() for word in ("--storage", f"{key}={value}")]
        old, new = f"s3a://{store.bucket}/c", f"s3a://{store.bucket}/new"
        shown = quiet.status(old, *storage)
        assert (shown["checkpoint"]["planned"], len(shown["sinks"])) == ([0, 1, 2, 3], 1)
        words = ["replay", old, "--new", new, "--to-batch", "1", "--topic", topic(), "--yes", *storage]
        told = quiet.told(*words)
        assert (told["new_checkpoint"], told["dry_run"]) == (new, False)
        with store.files.open_input_stream(f"{store.bucket}/new/metadata") as stream:
            assert json.loads(stream.read())["id"] == told["new_query"]
        quiet.refused("EOS_REPLAY_REFUSED", *words)


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
