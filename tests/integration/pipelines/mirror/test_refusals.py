"""What a mirror refuses, by name, and with nothing written."""

from __future__ import annotations

from confluent_kafka.admin import NewTopic

from spark_eos.errors import EosError
from tests.support.judges.conditions import raises
from tests.support.queries.mirrors import Mirror, seen


def refused(mirror: Mirror, condition: str) -> EosError:
    with raises(condition) as caught:
        mirror.start()
    return caught.value


def test_a_mirror_of_a_topic_to_itself(mirror, topic, view):
    """The same cluster, without a prefix; with one, the target is no source, by a pattern either."""
    copies = mirror(topic(1))
    copies.there = view
    refused(copies, "EOS_OPTION_CONFLICT")


def test_own_targets_are_no_sources(mirror, topic, write, view):
    """Within one cluster, by a pattern that its targets match: a start stops, and nothing goes round."""
    name = topic(1, retention_ms=-1)
    write(name, b"row")
    copies = mirror(name, prefix=f"{name}.")
    copies.there = view
    copies.run()
    assert [row.value for row in seen(view, f"{name}.{name}")] == [b"row"]
    copies.reads = {"subscribePattern": f"^{name}"}
    refused(copies, "EOS_MIRROR_CIRCLE")


def test_a_target_that_would_change_rows(mirror, topic, write, there):
    """Before any row is read, with the setting's name."""
    name = topic(1)
    write(name, b"row")
    config = {"message.timestamp.type": "LogAppendTime"}
    there.admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result()
    text = mirror(name).stopped_by("EOS_MIRROR_TARGET_SETTINGS")
    assert "message.timestamp.type" in text
    assert there.rows(name) == []
