"""A kill at every named point of the protocol, of copies: each row is there once, in order.

As `test_kills`, with ranges of offsets in place of rows, which are copied, or go through a function. ``make test`` runs
a seeded share of the set.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from spark_eos.errors import OptionError
from spark_eos.tools.devcluster import DevCluster
from tests.chaos.test_kills import EVERY, share, strike
from tests.support.judges.kafka_view import open_view, write
from tests.support.kills.scene import PARTITIONS, Scene
from tests.support.queries.copies import CopiedFrom, copied
from tests.support.runs.case_cover import in_turn
from tests.support.waiting import wait_for

WAYS = pytest.mark.parametrize("copies", [True, False], ids=["copy", "transform"])


def by_seed() -> tuple[str, str, str]:
    """One of the cases, by the seed: while tasks write or while the driver decides, of a copy, a function or SQL."""
    chance = random.Random(os.environ.get("SPARK_EOS_SEED", "copy"))
    way = chance.choice(["copy", "transform", "sql"])
    return way, *chance.choice([case for case in share() if case[0].startswith(("prepare.", "commit."))])


@in_turn("copies")
@pytest.mark.parametrize(("way", "point", "variant"), [by_seed()])
def test_a_kill_loses_and_doubles_nothing(way, point, variant, view, topic, spark, tmp_path):
    """The share of the set for every day."""
    strike(Scene(view, topic, tmp_path, way=way), spark, point, variant)


@pytest.mark.chaos
@pytest.mark.parametrize(("point", "variant"), share())
def test_a_kill_of_sql_loses_and_doubles_nothing(point, variant, view, topic, spark, tmp_path):
    """Of SQL, which makes two rows of each record, a share of the set: its steps are those of a function."""
    strike(Scene(view, topic, tmp_path, way="sql"), spark, point, variant)


@pytest.mark.chaos
@WAYS
@pytest.mark.parametrize(("point", "variant"), EVERY)
def test_a_kill_at_every_point_loses_and_doubles_nothing(point, variant, copies, view, topic, spark, tmp_path):
    """The whole set."""
    strike(Scene(view, topic, tmp_path, copy=True, copies=copies), spark, point, variant)


@pytest.fixture
def elsewhere() -> Iterator[DevCluster]:
    """A second cluster."""
    with DevCluster() as cluster:
        yield cluster


@pytest.mark.chaos
def test_a_copy_between_two_clusters(elsewhere, cluster, view, topic, spark, tmp_path):
    """To the topic of the same name; the source's own cluster is told how far it is, and no other cluster will do."""
    name = topic(PARTITIONS)
    elsewhere.create_topic(name, PARTITIONS)
    rows = [(p, f"{p}.{i}") for p in range(PARTITIONS) for i in range(100)]
    write(view.bootstrap_servers, name, rows, commit=True)
    with open_view(elsewhere.bootstrap_servers) as there:
        query = CopiedFrom(spark, view, tmp_path, name, name)
        query.reads = {"offsets.group.id": f"group-of-{name}"}
        run = {"kafka__bootstrap__servers": there.bootstrap_servers, "topic": None}
        query.run(**run)
        wait_for(lambda: not there.held(name), "the markers")
        assert copied(there.rows(name)) == copied(view.rows(name))
        wait_for(lambda: view.group(f"group-of-{name}", name) == view.ends(name), "the report")
        query.reads = {}
        with pytest.raises(OptionError, match="different clusters"):
            query.run(offsets__group__id="g", **run)
        write(view.bootstrap_servers, name, [(0, "more")], commit=True)
        query.servers = {"kafka.bootstrap.servers": there.bootstrap_servers}
        query.reads = {"failOnDataLoss": False}
        query.stopped_by("EOS_SOURCE_CLUSTER_CHANGED", kafka__bootstrap__servers=view.bootstrap_servers, topic=None)
