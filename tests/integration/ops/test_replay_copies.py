"""`spark-eos replay` of a copy, whose offset log also names the cluster."""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path

import pytest

from spark_eos import cli
from tests.support.queries.copies import CopiedFrom
from tests.support.waiting import wait_for


class Copies:
    """A query that has done three feeds, each in a micro-batch of its own: 1, 2 and 3."""

    def __init__(self, query: CopiedFrom, write) -> None:
        self.query, self._write = query, write
        self.group = f"group-of-{query.target}"
        self._feeds = 0

    def feed(self) -> None:
        self._write(self.query.source, b"F%d" % self._feeds)
        self._feeds += 1

    def run(self, checkpoint: Path | None = None) -> None:
        self.query.checkpoint = checkpoint or self.query.checkpoint
        self.query.run(offsets__group__id=self.group)

    def command(self, *words: str) -> int:
        servers = self.query.view.bootstrap_servers
        return cli.main(["--bootstrap-servers", servers, "replay", str(self.query.checkpoint), *words])

    def times(self, feeds: int) -> list[int]:
        """How often each feed's row is visible."""
        found = Counter(self.query.values())
        assert set(found) <= {b"F%d" % n for n in range(feeds)}
        return [found[b"F%d" % n] for n in range(feeds)]


@pytest.fixture
def copies(spark, view, topic, write, tmp_path):
    query = CopiedFrom(spark, view, tmp_path / uuid.uuid4().hex, topic(), topic())
    life = Copies(query, write)
    for _ in range(3):
        life.feed()
        life.run()
    yield life
    for running in spark.streams.active:
        running.stop()


def test_a_replay_to_a_new_checkpoint(copies, view, tmp_path, capsys):
    """The rows after micro-batch 1 are there once more, the group goes back and on, and the old query is retired."""
    old, new = copies.query.checkpoint, tmp_path / "again"
    assert copies.command("--new", str(new), "--to-batch", "1", "--again", "--yes") == 0, capsys.readouterr()
    assert view.group(copies.group, copies.query.source) == {(copies.query.source, 0): 1}
    copies.feed()
    copies.query.stopped_by("EOS_QUERY_RETIRED")
    copies.run(new)
    assert copies.times(4) == [1, 2, 2, 1]
    wait_for(lambda: view.group(copies.group, copies.query.source) == view.ends(copies.query.source), "the offsets")
    copies.query.forget(1)  # of the new one, whose micro-batch 0 was made by the command
    copies.run(new)
    assert copies.times(4) == [1, 2, 2, 1]
    copies.query.checkpoint = old
    copies.query.stopped_by("EOS_QUERY_RETIRED")
