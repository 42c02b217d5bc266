"""Two queries that mirror the same: one of them does, each row is in the target once, and the other says why not."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from pyspark.errors import StreamingQueryException

import spark_eos
from spark_eos import cli
from spark_eos.pipelines.mirror.owner import Claim, read_claims
from tests.support.judges.kafka_view import write as put
from tests.support.queries.mirrors import Mirror, check_same
from tests.support.spark.session_faults import armed
from tests.support.waiting import TIMEOUT, wait_for

CONTINUOUS = {"processingTime": "200 milliseconds"}


def feed(mirror: Mirror, *topics: str) -> None:
    for topic in topics:
        put(mirror.here.bootstrap_servers, topic, [(0, f"{topic} {i}") for i in range(20)], commit=True)


@pytest.fixture
def replica(tmp_path) -> Callable[..., Mirror]:
    """``replica(of, "a,b")``: a mirror of these topics to where another one mirrors, with a checkpoint of its own."""

    def make(of: Mirror, topics: str) -> Mirror:
        own = Mirror(of.spark, of.here, of.there, tmp_path / f"replica {len(list(tmp_path.iterdir()))}", topics)
        own.checkpoint.parent.mkdir()
        own.targets = of.targets
        return own

    return make


def ends(mirror: Mirror, *topics: str) -> str:
    """Where the topics end, as ``startingOffsets``: with the markers of what was written to them."""
    return json.dumps({t: {str(p): end for (_, p), end in mirror.here.ends_at_rest(t).items()} for t in topics})


def held(mirror: Mirror) -> dict[str, str]:
    """Who mirrors each topic of the source."""
    return {claim.source: claim.query for claim in claims(mirror) if not claim.released}


def claims(mirror: Mirror) -> list[Claim]:
    return read_claims(mirror.client, mirror.targets.map)


def _has_rows(mirror: Mirror, target: str) -> bool:
    return target in mirror.there.admin.list_topics(timeout=TIMEOUT).topics and len(mirror.there.rows(target)) == 20


def test_a_mirror_that_was_believed_dead(mirror, topic, replica, capsys):
    """An operator closes it, and a new one begins: the old one, which restarts by itself where that helps, does not
    come back, nor does it when somebody starts it again."""
    name = topic(1, retention_ms=-1)
    old = mirror(name, prefix="p.")
    old.trigger = CONTINUOUS
    feed(old, name)
    started, restarts = [], []

    def start():
        started.append(old.start())
        return started[-1]

    query = start()
    wait_for(lambda: _has_rows(old, f"p.{name}"), "the rows")
    words = ["--source", old.here.bootstrap_servers, "--bootstrap-servers", old.there.bootstrap_servers]
    words += ["--query", query.id, "--map", old.targets.map, "--yes", "--format", "json"]
    capsys.readouterr()
    assert cli.main(["mirror", "position", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    new = replica(old, name)
    new.reads["startingOffsets"] = json.dumps(found["starting_offsets"])
    feed(old, name)
    with pytest.raises(StreamingQueryException, match="EOS_QUERY_RETIRED"):
        spark_eos.run(lambda: query if not restarts else start(), pause_s=0, on_restart=restarts.append)
    assert restarts == []
    assert held(new) == {name: query.id}
    new_id = new.run()
    assert held(new) == {name: new_id}
    assert "mirror position" in old.stopped_by("EOS_QUERY_RETIRED")
    check_same(new, name)


@pytest.mark.chaos
@pytest.mark.parametrize("fault", ["mirror.claimed=die", "mirror.retired=die"])
def test_a_taker_that_is_killed(fault, mirror, topic, replica, tmp_path):
    """Half-way, and started again: it goes on. Whoever had the topic goes on until it is retired, not after that."""
    name = topic(1, retention_ms=-1)
    first = mirror(name, prefix="p.")
    feed(first, name)
    first_id = first.run()
    taker = replica(first, name)
    taker.reads["startingOffsets"] = ends(first, name)
    with armed(first.spark, fault, tmp_path / "faults"), pytest.raises(StreamingQueryException):
        taker.start().awaitTermination(TIMEOUT)
    if fault == "mirror.claimed=die":
        assert first.run() == first_id
    else:
        feed(first, name)
        first.stopped_by("EOS_QUERY_RETIRED")
    taker_id = taker.run()
    feed(first, name)
    first.stopped_by("EOS_QUERY_RETIRED")
    taker.run()
    assert held(first) == {name: taker_id}
    check_same(first, name)
