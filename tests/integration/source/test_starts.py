"""Which topics the source reads, from where on, and with which columns; and that the start stays where it was."""

from __future__ import annotations

import json
import uuid

import pytest
from confluent_kafka import Consumer, TopicPartition

from spark_eos.errors import OptionError, TopicError
from tests.support.queries.source_calls import run, topics, until_more, values
from tests.support.waiting import TIMEOUT

NOON = 1_700_000_000_000


# Which topics


def test_a_missing_topic_is_named_and_not_created(reader, topic, admin):
    """Asking for it must not bring it about."""
    name = f"missing-{uuid.uuid4().hex}"
    with pytest.raises(TopicError, match=name) as caught:
        reader(f"{topic()},{name}").initialOffset()
    assert caught.value.condition == "EOS_TOPIC_MISSING"
    assert name not in admin.list_topics(timeout=TIMEOUT).topics


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


# From a time on


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


def test_a_start_from_what_a_group_has_committed(cluster, reader, topic, write):
    """The group is gone by then. Partition 2 has never had a record: it lacks an offset and needs none."""
    name, group = topic(3), f"group-{uuid.uuid4().hex}"
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "log_level": 0})
    consumer.commit(offsets=[TopicPartition(name, p, at) for p, at in ((0, 3), (1, 4))], asynchronous=False)
    consumer.close()
    for p in range(2):
        write(name, *(f"{p}.{i}" for i in range(4)), partition=p)
    source = reader(name, "group", kafka__group__id=group)
    batches, at = run(source)
    assert values(batches) == ["0.3"]
    write(name, "first", partition=2)
    until_more(source, at)
    assert values(run(source, at)[0]) == ["first"]


# Within a transaction


def test_a_start_inside_an_open_transaction_waits_for_it(reader, topic, transactions):
    """The stable end lies before the start that the user gave; that is no loss."""
    name = topic()
    transactions.producer.begin_transaction()
    transactions.put(name, *"abc")
    source = reader(name, json.dumps({name: {"0": 2}}))
    batches, at = run(source)
    assert values(batches) == []
    transactions.producer.commit_transaction(TIMEOUT)
    until_more(source, at)
    assert values(run(source, at)[0]) == ["c"]
