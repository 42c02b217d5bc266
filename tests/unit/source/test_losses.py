"""Losses, and what is none: offsets of another cluster."""

from __future__ import annotations

import pytest

from spark_eos.errors import CheckpointError
from spark_eos.source.losses import check_cluster


def test_a_checkpoint_belongs_to_the_cluster_that_it_has_offsets_of():
    """Whatever its topics are called; one from before, that has no cluster, goes on, and so does one where brokers do
    not tell."""
    with pytest.raises(CheckpointError) as caught:
        check_cluster("one", "another")
    assert caught.value.condition == "EOS_SOURCE_CLUSTER_CHANGED"
    check_cluster("one", "one")
    check_cluster(None, "one")
    check_cluster("one", "")
