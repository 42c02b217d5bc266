"""Which topics the source reads, from where on, and with which columns; and that the start stays where it was."""

from __future__ import annotations

import json
import time
import uuid

import pytest
from confluent_kafka import Consumer, TopicPartition

from spark_eos.errors import DataLossError, KafkaError, OptionError, TopicError
from spark_eos.source import watch
from spark_eos.tools.devcluster import DevCluster
from tests.support.queries.source_calls import delete_before, rows, run, topics, until_more, values
from tests.support.waiting import TIMEOUT, wait_for

NOON = 1_700_000_000_000


@pytest.fixture
def group(cluster: DevCluster):
    """``group(topic, {0: 5})``: a new consumer group that has committed so and is gone."""

    def commit(topic: str, offsets: dict[int, int]) -> str:
        name = f"group-{uuid.uuid4().hex}"
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": name, "log_level": 0})
        consumer.commit(offsets=[TopicPartition(topic, p, at) for p, at in offsets.items()], asynchronous=False)
        consumer.close()
        return name

    return commit


# Which topics


def test_a_pattern_that_matches_nothing(reader):
    """At the start it is a mistake."""
    with pytest.raises(TopicError, match=r"no-such-topic.*'subscribePattern'") as caught:
        reader(None, subscribePattern="^no-such-topic").initialOffset()
    assert caught.value.condition == "EOS_TOPIC_MISSING"


def test_assigned_partitions_and_no_others(reader, topic, write):
    """Of two topics."""
    one, two = topic(3), topic(2)
    for p in range(3):
        write(one, f"one-{p}", partition=p)
    for p in range(2):
        write(two, f"two-{p}", partition=p)
    batches, end = run(reader(None, assign=json.dumps({one: [0, 2], two: [1]})))
    assert sorted(values(batches)) == ["one-0", "one-2", "two-1"]
    assert topics(end) == {one: {"0": 1, "2": 1}, two: {"1": 1}}


def test_an_assigned_partition_that_is_not_there(reader, topic):
    """The built-in source would leave it out."""
    name = topic(2)
    with pytest.raises(TopicError, match=f"{name}-7") as caught:
        reader(None, assign=json.dumps({name: [0, 7]})).initialOffset()
    assert caught.value.condition == "EOS_TOPIC_MISSING"


# From a time on


@pytest.mark.parametrize("partitions", [{"0": NOON}, {"0": NOON, "1": NOON, "2": NOON}])
def test_times_must_name_the_partitions_that_are_there(reader, topic, partitions):
    """Neither less nor more."""
    name = topic(2)
    with pytest.raises(OptionError) as caught:
        reader(name, None, startingOffsetsByTimestamp=json.dumps({name: partitions})).initialOffset()
    assert caught.value.condition == "EOS_OPTION_INVALID"


def test_a_time_after_the_last_record(reader, topic, write):
    """An error, or the end, as the strategy says."""
    name = topic()
    write(name, "old", timestamp=NOON)
    with pytest.raises(OptionError, match=f"{name}-0") as caught:
        reader(name, None, startingTimestamp=NOON + 1).initialOffset()
    assert caught.value.condition == "EOS_OPTION_INVALID"
    source = reader(name, None, startingTimestamp=NOON + 1, startingOffsetsByTimestampStrategy="latest")
    batches, at = run(source)
    assert values(batches) == []
    write(name, "new", timestamp=NOON - 1)
    until_more(source, at)
    assert values(run(source, at)[0]) == ["new"]


def test_a_time_within_an_open_transaction_begins_at_what_is_stable(reader, topic, write, transactions):
    """Nothing of the transaction is skipped."""
    name = topic()
    write(name, "before", timestamp=NOON)
    transactions.producer.begin_transaction()
    transactions.put(name, "inside", timestamp=NOON + 1)
    source = reader(name, None, startingTimestamp=NOON + 1, startingOffsetsByTimestampStrategy="latest")
    _, at = run(source)
    transactions.producer.commit_transaction(TIMEOUT)
    until_more(source, at)
    assert values(run(source, at)[0]) == ["inside"]


# From a group's offsets on


def test_a_start_from_what_a_group_has_committed(reader, topic, write, group):
    """Partition 2 has never had a record: it lacks an offset and needs none."""
    name = topic(3)
    for p in range(2):
        write(name, *(f"{p}.{i}" for i in range(4)), partition=p)
    source = reader(name, "group", kafka__group__id=group(name, {0: 3, 1: 4}))
    batches, at = run(source)
    assert values(batches) == ["0.3"]
    write(name, "first", partition=2)
    until_more(source, at)
    assert values(run(source, at)[0]) == ["first"]


def test_a_group_that_has_committed_nothing(reader, topic, write, group):
    """Nor for one of the partitions."""
    name = topic(2)
    for p in range(2):
        write(name, "x", partition=p)
    for given, lacking in ((f"nobody-{uuid.uuid4().hex}", f"{name}-0, {name}-1"), (group(name, {0: 1}), f"{name}-1")):
        with pytest.raises(KafkaError, match=f"has no committed offsets for {lacking}") as caught:
            reader(name, "group", kafka__group__id=given).initialOffset()
        assert caught.value.condition == "EOS_GROUP_UNSUITABLE"


def test_a_group_that_is_still_at_work(reader, topic, write, cluster):
    """Both would read the same rows."""
    name, given = topic(), f"busy-{uuid.uuid4().hex}"
    write(name, "x")
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": given, "log_level": 0})
    try:
        consumer.subscribe([name])
        wait_for(lambda: consumer.poll(0.05) is not None or consumer.assignment(), "the assignment")
        with pytest.raises(KafkaError, match="1 active member") as caught:
            reader(name, "group", kafka__group__id=given).initialOffset()
    finally:
        consumer.close()
    assert caught.value.condition == "EOS_GROUP_ACTIVE"


def test_offsets_of_a_group_that_are_gone(reader, topic, write, group, admin):
    """As after retention; `failOnDataLoss` decides."""
    name = topic()
    write(name, *"abcd")
    given = group(name, {0: 1})
    delete_before(admin, name, 3)
    with pytest.raises(DataLossError) as caught:
        reader(name, "group", kafka__group__id=given).initialOffset()
    assert (caught.value.parameters["expected"], caught.value.parameters["found"]) == (1, 3)
    source = reader(name, "group", kafka__group__id=given, failOnDataLoss=False)
    assert values(run(source)[0]) == ["d"]


# Sizes


def test_a_minimum_waits_for_more_and_not_for_ever(reader, topic, write):
    """The first micro-batch with rows after a start does not wait."""
    name = topic()
    write(name, "a")
    source = reader(name, minOffsetsPerTrigger=3, maxTriggerDelay="1s")
    began = time.monotonic()
    batches, at = run(source)
    assert values(batches) == ["a"]
    write(name, "b")
    assert values([rows(source, at, until_more(source, at))]) == ["b"]
    assert time.monotonic() - began > 1
    patient = reader(name, minOffsetsPerTrigger=3, maxTriggerDelay="1h")
    _, at = run(patient)
    write(name, *"cd")
    time.sleep(2 * watch._ENDS_S)
    assert patient.latestOffset(at, patient.getDefaultReadLimit()) == at
    write(name, "e")
    assert values([rows(patient, at, until_more(patient, at))]) == ["c", "d", "e"]
