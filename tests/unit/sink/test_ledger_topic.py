"""Whether the ledger topic is as durable as the coordinators' own state."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from spark_eos.errors import LedgerError
from spark_eos.sink.ledger_topic import _check_replicas


def described(*replicas: int) -> SimpleNamespace:
    """A topic whose partitions have so many replicas."""
    return SimpleNamespace(partitions=[SimpleNamespace(replica_nodes=list(range(count))) for count in replicas])


def test_the_partition_with_the_fewest_replicas_counts():
    """It may be the one that holds a query's decisions."""
    broker = {"transaction.state.log.replication.factor": "3"}
    _check_replicas("ledger", described(3, 4), broker)
    with pytest.raises(LedgerError, match="has 2 replica") as caught:
        _check_replicas("ledger", described(3, 2), broker)
    assert caught.value.condition == "EOS_LEDGER_REPLICAS"
    assert caught.value.parameters["needed"] == 3


def test_what_cannot_be_checked_is_told(caplog):
    """A user who may not read the brokers' settings goes on, and learns what to look at."""
    _check_replicas("ledger", described(1), None)
    assert "1 replica(s)" in caplog.text
    assert "DESCRIBE_CONFIGS" in caplog.text
