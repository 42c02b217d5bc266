"""The config file of a mirror: what is refused when it is read, where it stands."""

from __future__ import annotations

import pytest

from jobs.mirror import MirrorConfig
from jobs.runner.config import load
from spark_eos.errors import ConfigError

GOOD = """\
source:
  kafka: {bootstrap.servers: "here:9092"}
  topics: [orders]
  options: {failOnDataLoss: false, kafka.fetch.max.bytes: 1000, startingTimestamp: 5}
target:
  kafka: {bootstrap.servers: "there:9092"}
  options: {ledger.topic: own-ledger, kafka.compression.type: lz4}
checkpoint: /tmp/checkpoint
"""


@pytest.fixture
def read(tmp_path):
    def read(old: str = "", new: str = "") -> MirrorConfig:
        assert old == "" or GOOD.count(old) == 1
        file = tmp_path / "job.yaml"
        file.write_text(GOOD.replace(old, new) if old else GOOD)
        return load(file, MirrorConfig, {})

    return read


@pytest.mark.parametrize(
    ("side", "options", "uses"),
    [
        ("source", "subscribe: b", "'source.topics'"),
        ("source", "SubscribePattern: b", "'source.pattern'"),
        ("source", "startingOffsets: latest", "'source.startingOffsets'"),
        ("source", "maxOffsetsPerTrigger: 5", "'source.maxOffsetsPerTrigger'"),
        ("source", "offsets.group.id: g", "'source.group'"),
        ("source", "kafka.bootstrap.servers: b", "'source.kafka'"),
        ("target", "topic: b", "'target.prefix'"),
        ("target", "checkpointLocation: /b", "'checkpoint'"),
        ("target", "kafka.bootstrap.servers: b", "'target.kafka'"),
    ],
)
def test_options_that_the_job_sets_itself(read, side, options, uses):
    """They would have no effect, or take that of the key; the error names the key."""
    old = "failOnDataLoss: false" if side == "source" else "ledger.topic: own-ledger"
    with pytest.raises(ConfigError, match="EOS_CONFIG_WRONG_VALUE") as caught:
        read(old, options)
    assert f"{side}.options.{options.partition(':')[0]}" in str(caught.value)
    assert uses in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        "settings: {max.message.bytes: 10MB}",
        "settings: {retention.ms: 1e6}",
        "replication: 0",
        "replication: -2",
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
    with pytest.raises(ConfigError, match="EOS_CONFIG_WRONG_VALUE") as caught:
        read("target:\n", f"target:\n  {value}\n")
    assert f"'target.{value.partition(':')[0]}" in str(caught.value)


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
    config = read("target:\n", f"target:\n  {value}\n")
    assert config.source.settings()["kafka.fetch.max.bytes"] == "1000"
    assert config.sink_settings()["ledger.topic"] == "own-ledger"
