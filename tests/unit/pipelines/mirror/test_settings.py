"""The settings of targets: what is taken over, what is changed, what the user says, what is refused."""

from __future__ import annotations

import pytest

from spark_eos.errors import TopicError
from spark_eos.pipelines.mirror.topics import check_settings, target_settings

SOURCE = {"cleanup.policy": "delete", "retention.ms": "5", "max.message.bytes": "9", "compression.type": "lz4"}


def test_what_a_target_is_made_with():
    """The source's own, with batches and timestamps as they are; the user's settings come last."""
    wanted = target_settings({**SOURCE, "min.insync.replicas": "2"}, {"retention.ms": "-1"})
    assert wanted["retention.ms"] == "-1"
    assert wanted["cleanup.policy"] == "delete"
    assert (wanted["compression.type"], wanted["message.timestamp.type"]) == ("producer", "CreateTime")
    assert "min.insync.replicas" not in wanted


@pytest.mark.parametrize(
    "unfit",
    [
        {"message.timestamp.type": "LogAppendTime"},
        {"cleanup.policy": "compact"},
        {"max.message.bytes": "8"},
        {"max.message.bytes": "10MB"},
    ],
)
def test_what_is_refused(unfit):
    """By the setting's name."""
    check_settings("t", SOURCE, SOURCE)
    with pytest.raises(TopicError, match="EOS_MIRROR_TARGET_SETTINGS") as caught:
        check_settings("t", SOURCE, SOURCE | unfit)
    assert caught.value.parameters["setting"] in unfit


def test_compacted_to_compacted():
    """A source that is compacted has a target that is."""
    compact = SOURCE | {"cleanup.policy": "compact"}
    check_settings("t", compact, compact)
