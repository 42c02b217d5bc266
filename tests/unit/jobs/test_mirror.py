"""The config file of a mirror: what is refused when it is read, where it stands."""

from __future__ import annotations

import argparse

import pytest

from jobs.mirror import Mirror, plan
from jobs.runner.config import load
from spark_eos.errors import ConfigError, OptionError

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


@pytest.mark.parametrize(
    ("option", "uses"), [("topic: b", "'topics.prefix'"), ("checkpointLocation: /b", "'checkpoint'")]
)
def test_options_that_the_job_sets_itself(read, option, uses):
    """They would have no effect, or take that of the key; the error names the key."""
    with pytest.raises(ConfigError, match="EOS_CONFIG_INVALID_VALUE") as caught:
        read("ledger.topic: own-ledger", option)
    assert f"'sink.{option.partition(':')[0]}'" in str(caught.value)
    assert uses in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("subscribe:", "subscribes:", "EOS_OPTION_UNKNOWN] 'source.subscribes': .*Did you mean 'subscribe'"),
        ("ledger.topic:", "ledger.topics:", "EOS_OPTION_UNKNOWN] 'sink.ledger.topics': .*Did you mean 'ledger.topic'"),
        (
            "failOnDataLoss: false",
            "failOnDataLoss: maybe",
            r"'source.failOnDataLoss': Option .* is '…'\..*true",
        ),
        ("  subscribe: orders\n", "", "'source': None of the options.*'subscribe: \"topic1,topic2\"'"),
        ("  kafka.bootstrap.servers: there:9092\n", "", "'sink': Option 'kafka.bootstrap.servers' is missing"),
        ("kafka.fetch.max.bytes", "kafka.fetch.max.byte", "'source.kafka.fetch.max.byte': .*Did you mean"),
        ("topics: {}", "kafka: {fetch.max.byte: 1}", "EOS_OPTION_UNKNOWN] 'kafka.fetch.max.byte': "),
    ],
)
def test_options_are_those_of_the_connector(read, old, new, says):
    """The table of all options checks them, and its errors name the section and the key."""
    with pytest.raises(OptionError, match=says) as caught:
        plan(read(old, new), NOTHING)
    assert list(caught.value.parameters) == ["key"]


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
        "settings: {max.message.bytes: 10MB}",
        "settings: {retention.ms: 1e6}",
        "replication: 0",
        "replication: -2",
        "replication: '1_0'",
        "replication: '1.0'",
        "settings: {retention.ms: \uff11\uff12}",
        "prefix: 'a b'",
        "prefix: a/",
        f"prefix: {'p' * 249}",
        f"prefix: {'p' * 248}",
        "map: ''",
        "map: ..",
        "map: a/b",
        "map: own-ledger",
        "map: __spark_eos_ledger",
        "map: __spark_eos_files",
    ],
)
def test_values_that_no_target_can_have(read, value):
    """By the key, before anything runs."""
    with pytest.raises(ConfigError, match="EOS_CONFIG_INVALID_VALUE") as caught:
        plan(read("topics: {}", f"topics: {{{value}}}"), NOTHING)
    assert f"'topics.{value.partition(':')[0]}" in str(caught.value)


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
