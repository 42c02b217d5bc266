"""What is said of a ledger topic that is less durable than the coordinators' own state."""

from __future__ import annotations

from types import SimpleNamespace

from spark_eos.sink.ledger_topic import _look_at_replicas


def described(*replicas: int) -> SimpleNamespace:
    """A topic whose partitions have so many replicas."""
    return SimpleNamespace(partitions=[SimpleNamespace(replica_nodes=list(range(count))) for count in replicas])


def test_the_partition_with_the_fewest_replicas_counts(caplog):
    """It may be the one that holds a query's decisions."""
    broker = {"transaction.state.log.replication.factor": "3"}
    _look_at_replicas("ledger", described(3, 4), broker)
    assert caplog.text == ""
    _look_at_replicas("ledger", described(3, 2), broker)
    assert "has 2 replica(s), but __transaction_state has 3" in caplog.text


def test_what_cannot_be_checked_is_told(caplog):
    """A user who may not read the brokers' settings learns what to look at."""
    _look_at_replicas("ledger", described(1), None)
    assert "1 replica(s)" in caplog.text
    assert "DESCRIBE_CONFIGS" in caplog.text
