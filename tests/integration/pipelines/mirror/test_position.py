"""`spark-eos mirror position` and `spark-eos recover --drop-planned` between two clusters: a mirror whose checkpoint is
lost goes on with a new one, and one whose micro-batch is too large with smaller ones; each row once, and where the map
says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from spark_eos import cli
from spark_eos.ledger.owners import Cluster
from spark_eos.options.table import DEFAULT_LEDGER_TOPIC, DEFAULT_PREFIX
from spark_eos.protocol.head import Decision
from tests.support.judges.kafka_view import write as put
from tests.support.queries.mirrors import Mirror, check_same
from tests.support.spark.session_faults import armed
from tests.support.waiting import TIMEOUT

#: Of each partition in a feed; two partitions of so many are two tasks.
ROWS = 600


class Site:
    """A mirror of one topic of two partitions, and commands about it."""

    def __init__(self, mirror: Mirror, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.mirror, self.name, self.capsys = mirror, name, capsys
        self.query = ""

    def feed(self, partitions: tuple[int, ...] = (0, 1)) -> None:
        rows = [(p, f"{p}.{i}") for p in partitions for i in range(ROWS)]
        put(self.mirror.here.bootstrap_servers, self.name, rows, commit=True)

    def run(self) -> None:
        self.query = self.mirror.run()

    def lose(self) -> None:
        shutil.rmtree(self.mirror.checkpoint)

    def command(self, *words: str) -> int:
        self.capsys.readouterr()
        return cli.main(["--bootstrap-servers", self.mirror.there.bootstrap_servers, *words])

    def position(self, *more: str) -> int:
        words = ["--source", self.mirror.here.bootstrap_servers, "--map", self.mirror.targets.map]
        return self.command("mirror", "position", "--query", self.query, *words, *more)

    def found(self, *more: str) -> dict[str, Any]:
        assert self.position("--format", "json", *more) == 0, self.capsys.readouterr().err
        return json.loads(self.capsys.readouterr().out)

    def refused(self, condition: str, *more: str) -> str:
        assert self.position(*more) == 2
        text = self.capsys.readouterr().err
        assert condition in text
        return text

    def go_on(self, found: dict[str, Any]) -> None:
        """With a new checkpoint, from there."""
        self.mirror.reads["startingOffsets"] = json.dumps(found["starting_offsets"])
        self.run()

    @property
    def decision(self) -> Decision:
        head = Cluster(self.mirror.client, DEFAULT_LEDGER_TOPIC, DEFAULT_PREFIX).ports(self.query).ledger.read()
        assert head is not None and head.decision is not None
        return head.decision

    def stop_at(self, fault: str, folder: Any) -> None:
        with armed(self.mirror.spark, fault, folder):
            query = self.mirror.start()
            self.query = query.id
            with pytest.raises(Exception, match="fault injected"):
                query.awaitTermination(TIMEOUT)


@pytest.fixture
def site(mirror, topic, capsys) -> Callable[..., Site]:
    def make(partitions: int = 2) -> Site:
        name = topic(partitions, retention_ms=-1)
        return Site(mirror(name, prefix="p."), name, capsys)

    return make


def test_a_lost_checkpoint_after_a_decision(site, tmp_path):
    """Decided and not committed: the command settles that, and its rows are not written again; those after it are."""
    lost = site()
    lost.feed()
    lost.run()
    lost.feed()
    lost.stop_at("commit.decided=fail", tmp_path / "decided")
    ends = lost.mirror.here.ends(lost.name, committed=True)
    lost.lose()
    assert "--yes" in lost.refused("EOS_MIRROR_NOT_SETTLED")
    found = lost.found("--yes")
    assert found["starting_offsets"] == {lost.name: {str(p): end for (_, p), end in ends.items()}}
    assert (found["batch"], found["unread"], found["written_again"]) == (lost.decision.batch, [], [])
    assert lost.found() == found  # nothing more has to be done for it
    assert lost.position() == 0
    assert f"startingOffsets: {json.dumps(found['starting_offsets'])}" in lost.capsys.readouterr().out
    lost.feed((1,))
    lost.go_on(found)
    check_same(lost.mirror, lost.name)
