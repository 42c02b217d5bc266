"""Losses, and what is none: offsets of another cluster."""

from __future__ import annotations

from spark_eos.source.losses import Losses, check_cluster, data_loss
from tests.support.judges.conditions import raises


def test_a_checkpoint_belongs_to_the_cluster_that_it_has_offsets_of():
    """Whatever its topics are called; one from before, that has no cluster, goes on, and so does one where brokers do
    not tell."""
    with raises("EOS_SOURCE_CLUSTER_CHANGED"):
        check_cluster("one", "another")
    check_cluster("one", "one")
    check_cluster(None, "one")
    check_cluster("one", "")


def test_losses_are_logged_and_counted_once(caplog):
    """Without an end, they take no memory without end: a query may lose rows in each micro-batch. So the oldest one is
    told again."""
    most, losses = 20_000, Losses(fail=False)
    for at, count in ((1, 1), (2, 2), (1, 2), (2, 2)):
        losses.report(data_loss("t", 0, at, 2 * most, "it begins later"))
        assert losses.count == len(caplog.messages) == count
    for at in range(3, most + 2):
        losses.report(data_loss("t", 0, at, 2 * most, "it begins later"))
    for at, more in ((2, 0), (1, 1)):
        losses.report(data_loss("t", 0, at, 2 * most, "it begins later"))
        assert losses.count == len(caplog.messages) == most + 1 + more
