"""What the log says about whoever holds a last stable offset."""

from __future__ import annotations

from spark_eos.kafka.admin.open_transactions import OpenTransaction
from spark_eos.kafka.transactions import NEVER_MS


def test_a_transaction_that_never_expires_is_not_waited_for():
    """Its timeout of 2,147,483 s is none; who ends it is named instead."""
    expires = str(OpenTransaction("id", 7, 3, 40, 12.0, 900.0))
    never = str(OpenTransaction("id", 7, 3, 40, 12.0, NEVER_MS / 1000))
    assert "its time-out is 900 s" in expires
    assert "never expires" in never
    assert "spark-eos status" in never
