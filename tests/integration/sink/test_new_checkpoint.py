"""A new checkpoint in place of one that is lost: from where it goes on exactly, and when an error says not to begin.

What a plain read_committed consumer sees is what counts: every row of the input once.
"""

from __future__ import annotations

import json
import re
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

import spark_eos
from spark_eos.errors import phrase
from tests.support.judges.kafka_view import KafkaView, write
from tests.support.queries.sink_queries import Sink, ended_by
from tests.support.spark.session_faults import armed
from tests.support.waiting import TIMEOUT

PARTITIONS = 2


class Copy:
    """From a topic to another: feeds the input, and hands out its frame and queries with checkpoints of their own."""

    def __init__(self, spark, cluster, topic, sink, view: KafkaView) -> None:
        self._spark, self._servers, self._sink, self._view = spark, cluster.bootstrap_servers, sink, view
        self.source, self.out, self.group = topic(PARTITIONS), topic(PARTITIONS), f"group-{uuid.uuid4()}"
        self.expected: list[str] = []

    def feed(self, name: str, rows: int = 10) -> None:
        values = [(p, f"{name}.{p}.{i}") for p in range(PARTITIONS) for i in range(rows)]
        write(self._servers, self.source, values, commit=True)
        self.expected += [value for _, value in values]

    def frame(self, start: str = "earliest", **options: object) -> DataFrame:
        stream = self._spark.readStream.format("eos-kafka").option("kafka.bootstrap.servers", self._servers)
        given = {"subscribe": self.source, "startingOffsets": start, "minPartitions": 1}
        given |= {key.replace("__", "."): value for key, value in options.items()}
        return stream.options(**given).load().select("value", "partition")

    def from_group(self) -> DataFrame:
        return self.frame("group", kafka__group__id=self.group)

    def query(self, name: str) -> Sink:
        """Its checkpoint is in a folder of this name."""
        return self._sink(name, topic=self.out, offsets__group__id=self.group)

    def rescue(self, name: str, of: str | None) -> Sink:
        """What docs/stopped.md makes of a checkpoint that is lost: the query's id, and nothing else. It runs from the
        latest offsets on and without a group, so that a wrong id does no harm."""
        found = self._sink(name, topic=self.out)
        found.checkpoint.mkdir(parents=True)
        (found.checkpoint / "metadata").write_text(json.dumps({"id": of}))
        return found

    def check(self) -> None:
        """Every row once."""
        assert sorted(self._view.values(self.out)) == sorted(self.expected)
        assert self._view.group(self.group, self.source) == self._view.ends(self.source)


@pytest.fixture
def copy(spark, cluster, topic, sink, view) -> Copy:
    return Copy(spark, cluster, topic, sink, view)


@pytest.fixture
def interrupted(copy: Copy, spark, view, tmp_path: Path) -> Callable[..., Sink]:
    """``interrupted(lose=1)``: a query whose micro-batch 1 is decided, and none of its transactions committed, as after
    a kill; so many of them the broker then loses."""

    def run(lose: int = 0) -> Sink:
        copy.feed("first")
        query = copy.query("old")
        with armed(spark, f"commit.decided={'hold' if lose else 'fail'}@2", tmp_path / "faults") as fault:
            started = query.start(copy.frame())
            fault.wait()
            for name in sorted(view.open_transactions(started.id))[:lose]:
                view.end_transaction(name, commit=False)
            if lose:
                fault.release()
            ended_by(started, "EOS_TRANSACTION_LOST" if lose else "FaultInjected")
        return query

    return run


def test_a_drained_query_goes_on_from_its_group(copy):
    """Its checkpoint is deleted: the new one begins where the old one ended. Who tried to rescue the old one first, and
    gave a wrong id, has done no harm."""
    copy.feed("first", 50)
    old = copy.query("old")
    old.run(copy.frame())
    shutil.rmtree(old.checkpoint)
    copy.feed("second", 50)
    copy.rescue("wrong id", str(uuid.uuid4())).run(copy.frame("latest"))
    copy.query("new").run(copy.from_group())
    copy.check()
    assert len(copy.expected) == 200


def test_a_checkpoint_that_is_older_says_where_to_go_on(copy, view, interrupted):
    """It has been lost but for its id, just after a decision. The decision is settled, and its offsets are told: a new
    checkpoint begins there."""
    lost = interrupted()
    assert view.values(copy.out) == []
    assert view.group(copy.group, copy.source) == view.ends(copy.source)
    with pytest.raises(StreamingQueryException) as caught:
        copy.rescue("rescue", lost.id).start(copy.frame("latest")).awaitTermination(TIMEOUT)
    why = spark_eos.reason(caught.value)
    assert why is not None
    assert why.condition == "EOS_CHECKPOINT_BEHIND"
    assert phrase("from_group") in why.hint
    offsets = re.search(r"offsets (\{.*\})\.", why.message)[1]
    assert json.loads(offsets) == {copy.source: {str(p): end for (_, p), end in view.ends(copy.source).items()}}
    assert sorted(view.values(copy.out)) == sorted(copy.expected)
    copy.feed("second")
    copy.query("new").run(copy.frame(offsets))
    copy.check()


def test_a_checkpoint_ahead_of_a_loss_goes_back_as_the_hint_says(copy, interrupted):
    """Somebody has noted the micro-batch as done, its files and their checksums beside them."""
    query = interrupted(lose=2)
    commits, offsets = query.checkpoint / "commits", query.checkpoint / "offsets"
    for name in ("{}", ".{}.crc"):
        shutil.copy(commits / name.format(0), commits / name.format(1))
    copy.feed("second")
    message = query.stopped_by(copy.frame(), "EOS_CHECKPOINT_AHEAD")
    assert "commits/1 and later ones" in message
    assert "'offsets' later than 1" in message
    assert ".1.crc" in message
    for file in (commits / "1", commits / ".1.crc", offsets / "2", offsets / ".2.crc"):
        file.unlink()
    query.run(copy.frame())
    copy.check()
