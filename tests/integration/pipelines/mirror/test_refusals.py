"""What a mirror refuses, by name, and with nothing written."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from pyspark.errors import StreamingQueryException

from spark_eos.errors import EosError
from tests.support.judges.conditions import raises
from tests.support.queries.mirrors import Mirror, check_same, seen
from tests.support.waiting import TIMEOUT, wait_for


def refused(mirror: Mirror, condition: str) -> EosError:
    with raises(condition) as caught:
        mirror.start()
    return caught.value


def create(view, name: str, **config: str) -> None:
    view.admin.create_topics([NewTopic(name, 1, 1, config={k.replace("_", "."): v for k, v in config.items()})])[
        name
    ].result()


def test_a_mirror_of_a_topic_to_itself(mirror, topic, view):
    """The same cluster, without a prefix; with one, the target is no source, by a pattern either."""
    copies = mirror(topic(1))
    copies.there = view
    refused(copies, "EOS_OPTION_CONFLICT")


def test_own_targets_are_no_sources(mirror, topic, write, view):
    """Within one cluster, by a pattern that its targets match: the next start stops, and nothing goes round."""
    name = topic(1, retention_ms=-1)
    write(name, b"row")
    copies = mirror("", prefix=f"{name}.")
    copies.there = view
    copies.reads = {"subscribePattern": f"^{name}"}
    copies.run()
    assert [row.value for row in seen(view, f"{name}.{name}")] == [b"row"]
    refused(copies, "EOS_MIRROR_CIRCLE")


def test_topics_that_mean_nothing_elsewhere(mirror, view):
    """Kafka's own, ledgers and maps."""
    for name in ("__consumer_offsets", "__spark_eos_ledger"):
        refused(mirror(name), "EOS_MIRROR_TOPIC_REFUSED")


@pytest.mark.parametrize(("what", "by_pattern"), [("map", True), ("ledger", False)])
def test_maps_and_ledgers_of_any_name(what, by_pattern, mirror, topic, write):
    """Those of the mirror's own names, on the source, where other queries have theirs; nothing is written."""
    name = topic(1, retention_ms=-1)
    write(name, b"row")
    copies = mirror(name, first=True, **({"map": name} if what == "map" else {}))
    if what == "ledger":
        copies.writes = {"ledger.topic": name}
    if by_pattern:
        copies.reads = {"subscribePattern": f"^{name}$"}
    assert name in refused(copies, "EOS_MIRROR_TOPIC_REFUSED").message
    assert name not in copies.there.admin.list_topics(timeout=TIMEOUT).topics


def test_a_target_that_would_change_rows(mirror, topic, write, there):
    """Before any row is read, with the setting's name."""
    name = topic(1)
    write(name, b"row")
    create(there, name, message_timestamp_type="LogAppendTime")
    text = mirror(name).stopped_by("EOS_MIRROR_TARGET_SETTINGS")
    assert "message.timestamp.type" in text
    assert there.rows(name) == []


def test_rows_that_the_target_would_delete_at_once(mirror, topic, write, there):
    """Older than its retention: named, with nothing visible; with longer retention, they come."""
    name = topic(1, retention_ms=-1)
    write(name, b"old", timestamp=1_000)
    copies = mirror(name, settings={"retention.ms": "3600000"})
    copies.stopped_by("EOS_ROWS_EXPIRED")
    assert seen(there, name) == []
    for_ever = ConfigEntry("retention.ms", "-1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[for_ever])
    for altered in there.admin.incremental_alter_configs([resource]).values():
        altered.result()
    wait_for(lambda: _ran(copies), "an end of what workers remember of the settings")
    check_same(copies, name)


def _ran(mirror: Mirror) -> bool:
    try:
        mirror.run()
    except StreamingQueryException as error:
        assert "EOS_ROWS_EXPIRED" in str(error)
        return False
    return True


def test_a_target_that_was_created_anew(mirror, topic, write, there):
    """What was mirrored to the old one is missing in the new one, so it is not gone on with."""
    name = topic(1, retention_ms=-1)
    write(name, b"row")
    copies = mirror(name)
    copies.run()
    there.admin.delete_topics([name])[name].result()
    write(name, b"more")
    copies.stopped_by("EOS_MIRROR_TARGET_RECREATED")
