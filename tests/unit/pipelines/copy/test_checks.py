"""What a copy refuses before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from spark_eos.errors import OptionError
from spark_eos.options.parse import sink_options, stream_options
from spark_eos.pipelines.copy import checks
from spark_eos.pipelines.copy.by_key import check_rule
from spark_eos.pipelines.copy.checks import DEFAULT_BYTES, bounded, check_copy, check_source, check_trigger
from tests.support.judges.conditions import raises

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:1"}


def given(options: dict[str, Any]) -> dict[str, str]:
    """Dots in names are written as two underscores."""
    return SERVERS | {key.replace("__", "."): str(value) for key, value in options.items()}


def source(**options: Any) -> Any:
    return stream_options({"subscribe": "in", **given(options)})


def sink(**options: Any) -> Any:
    return sink_options({"checkpointLocation": "/c", **given(options)})


def conflict(call, *ends: Any, **more: Any) -> str:
    """The option that an error names."""
    with raises("EOS_OPTION_CONFLICT") as caught:
        call(*ends, **more)
    return caught.value.parameters["option"]


def test_every_micro_batch_has_a_limit():
    """The user's own, if there is one."""
    assert bounded(source()).max_bytes_per_trigger == DEFAULT_BYTES
    assert bounded(source(maxBytesPerTrigger="1m")).max_bytes_per_trigger == 1 << 20
    assert bounded(source(maxOffsetsPerTrigger=7)).max_bytes_per_trigger is None


@pytest.mark.parametrize("trigger", [{"once": True}, {"continuous": "1 second"}, {"realTime": "5 minutes"}])
def test_triggers_without_limits_are_refused(trigger):
    """As are those that are no micro-batches."""
    assert conflict(check_trigger, trigger) == "trigger"
    assert conflict(check_trigger, {"availableNow": True, "processingTime": "1 second"}) == "trigger"
    check_trigger({"availableNow": True})
    check_trigger({})


def test_what_takes_the_order_of_a_partition_has_to_be_asked_for():
    """Two tasks that write the rows of one partition interleave them."""
    for name in ("minPartitions", "maxRecordsPerPartition"):
        assert conflict(check_source, source(**{name: 4}), ordered=True, keeps_order="Remove it.") == name
        check_source(source(**{name: 4}), ordered=False, keeps_order="Remove it.")


def test_what_chooses_the_partition_of_a_copy():
    """Its own number, or its key, where a partitioner looks at it."""
    with pytest.raises(OptionError, match="EOS_OPTION_INVALID"):
        check_rule("murmur2", sink(), has_transform=False)
    assert conflict(check_rule, "key", sink(), has_transform=True) == "partition"
    assert conflict(check_rule, "key", sink(kafka__partitioner="random"), has_transform=False) == "kafka.partitioner"
    for rule in ("same", "key"):
        check_rule(rule, sink(kafka__partitioner="murmur2"), has_transform=False)
    check_rule("same", sink(kafka__partitioner="random"), has_transform=True)


def test_rows_that_may_be_aborted_are_not_copied():
    """They would stay."""
    options = source(kafka__isolation__level="read_uncommitted")
    assert conflict(check_source, options, ordered=True, keeps_order="Remove it.") == "kafka.isolation.level"


def test_a_copy_cannot_leave_rows_out():
    """Dead letters are for single rows."""
    assert conflict(checks.check_sink, source(), sink(deadLetters__topic="d"), copies=True) == "deadLetters.topic"


def test_a_group_is_given_offsets_by_one_side_only():
    """Otherwise one would set back what the other has given."""
    with raises("EOS_OPTION_CONFLICT"):
        checks.check_sink(source(offsets__group__id="g"), sink(offsets__group__id="h"), copies=False)


def test_two_clusters_do_not_share_offsets():
    """The group is the source's, a report that no query begins at."""
    assert conflict(checks.check_clusters, source(), sink(offsets__group__id="g"), same=False) == "offsets.group.id"
    reports = {"offsets__group__id": "g", "kafka__group__id": "g", "startingOffsets": "group"}
    assert conflict(checks.check_clusters, source(**reports), sink(), same=False) == "startingOffsets"
    checks.check_clusters(source(**reports | {"kafka__group__id": "other"}), sink(), same=False)
    checks.check_clusters(source(**reports), sink(offsets__group__id="g"), same=True)


def test_no_topic_is_copied_to_itself():
    """The query would never come to an end of it; in another cluster, the same name is another topic."""
    assert conflict(check_copy, sink(topic="in"), ["in"], same_cluster=True) == "topic"
    assert conflict(check_copy, sink(), ["in"], same_cluster=True) == "topic"
    check_copy(sink(), ["in"], same_cluster=False)
    check_copy(sink(topic="out"), ["in"], same_cluster=True)


@pytest.mark.parametrize("end", ["source", "sink"])
def test_no_cluster_is_asked_before_the_properties_of_both_are_checked(end):
    """A misspelled property about TLS would be passed over; here nobody would answer."""
    ends = {"source": {**SERVERS, "subscribe": "in"}, "sink": {**SERVERS, "topic": "out"}}
    ends[end]["kafka.security.protcol"] = "SSL"
    with pytest.raises(OptionError, match="EOS_OPTION_UNKNOWN"):
        checks.checked_ends(ends["source"], ends["sink"], {}, ordered=True, copies=False, keeps_order="")
