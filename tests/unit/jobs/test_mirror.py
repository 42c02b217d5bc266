"""The config file of a mirror: what is refused when it is read, where it stands."""

from __future__ import annotations

import argparse

import pytest

from jobs.mirror import Mirror, plan
from jobs.runner.config import load

GOOD = """\
source:
  kafka.bootstrap.servers: here:9092
  subscribe: orders
  failOnDataLoss: false
  kafka.fetch.max.bytes: 60000000
  startingTimestamp: 5
sink:
  kafka.bootstrap.servers: there:9092
  ledger.topic: own-ledger
  kafka.compression.type: lz4
topics: {}
checkpoint: /nowhere/checkpoint
"""
NOTHING = argparse.Namespace()


@pytest.fixture
def read(tmp_path):
    def read(old: str = "", new: str = "") -> Mirror:
        assert old == "" or GOOD.count(old) == 1
        file = tmp_path / "job.yaml"
        file.write_text(GOOD.replace(old, new) if old else GOOD)
        return load(file, Mirror, {})

    return read


def test_what_a_plan_says_of_its_options(read):
    """Topics or a pattern, where it begins, and both clusters."""
    by_time = plan(read(), NOTHING)
    assert by_time.line.startswith("orders on here:9092 → the same names on there:9092; checkpoint /nowhere/checkpoint")
    assert by_time.beginning == "a new query, from startingTimestamp 5"
    assert [cluster.required for cluster in by_time.clusters] == [["orders"], ()]
    pattern = plan(read("subscribe: orders", "subscribePattern: ^shop"), NOTHING)
    assert pattern.line.startswith("topics that match ^shop on here:9092")
    assert plan(read("  startingTimestamp: 5\n", ""), NOTHING).beginning == "a new query, from earliest"


@pytest.mark.parametrize(
    "value",
    [
        "settings: {max.message.bytes: 1000, retention.ms: -1, cleanup.policy: compact}",
        "replication: -1",
        "replication: 3",
        "prefix: _A.b-1",
        "prefix: ''",
        "map: __spark_eos_mirror",
        "map: __spark_eos_mirror_2",
        "map: offsets",
    ],
)
def test_values_that_a_target_can_have(read, value):
    """Other options are taken as they are."""
    config = read("topics: {}", f"topics: {{{value}}}")
    assert config.source_options()["kafka.fetch.max.bytes"] == "60000000"
    assert config.sink_options()["ledger.topic"] == "own-ledger"
