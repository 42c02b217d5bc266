"""How `spark-eos verify` knows that it has read a partition to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import Message

from spark_eos.base.topic_partition import PartitionOffsets
from spark_eos.errors import CommandError
from spark_eos.kafka.codes import Code
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.errors import group_refusal
from spark_eos.tools.verify import reader, verify
from spark_eos.tools.verify.bounds import PartitionBounds, _Sides
from spark_eos.tools.verify.comparison import Comparison, IdPlace
from tests.support.judges.conditions import raises
from tests.support.servers.unused_hosts import nobody
from tests.support.waiting import TIMEOUT

PLACE = PartitionBounds("t", 0, 0, 5, 5)


class Consumer:
    """Hands out prepared polls, then nothing."""

    def __init__(self, polls: Iterable[list[Message]]) -> None:
        self._polls, self._rest = list(polls), []

    def assign(self, places: object) -> None:
        pass

    def poll(self, timeout: float) -> Message | None:
        first, *self._rest = (self._polls.pop(0) if self._polls else []) or [None]
        return first

    def consume(self, count: int, timeout: float) -> list[Message]:
        return self._rest

    unassign = close = lambda self: None


def row(offset: int) -> Message:
    return Message(topic="t", partition=0, offset=offset)


def event(code: int, offset: int = -1) -> Message:
    return Message(topic="t", partition=0, offset=offset, error=ClientError(code))


END = event(ClientError._PARTITION_EOF, 5)


@pytest.fixture
def offsets(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """``offsets(*polls)``: those of the rows that are read in these polls."""

    def offsets(*polls: list[Message], stall_s: float = TIMEOUT) -> list[int]:
        monkeypatch.setattr(reader, "Consumer", lambda config: Consumer(polls))
        monkeypatch.setattr(reader, "STALL_S", stall_s)
        kafka = KafkaProperties({"bootstrap.servers": "h:1"})
        with reader.RowReader(kafka, "read_committed", lambda rows: None) as opened:
            return [message.offset() for messages in opened.read(PLACE, PLACE.stable) for message in messages]

    return offsets


@pytest.mark.parametrize(
    "polls",
    [
        [[row(0), row(3), row(4)]],
        [[row(0), row(3)], [row(4), row(5), row(6)]],
        [[row(0), row(3), row(4), END]],
        [[row(0)], [event(ClientError._TRANSPORT)], [row(3), row(4)]],
    ],
)
def test_reads_up_to_the_end(offsets, polls) -> None:
    """However rows and events come together, and whatever follows the end."""
    assert offsets(*polls) == [0, 3, 4]


@pytest.mark.parametrize("polls", [[[row(0), END]], [[row(0)], [END]], [[row(0)], [row(5)]], [[row(0)], [], [END]]])
def test_reads_up_to_an_end_without_rows(offsets, polls) -> None:
    """What lies before the end may be markers and aborted rows, which never come."""
    assert offsets(*polls) == [0]


def test_says_why_a_partition_does_not_go_on(offsets) -> None:
    """With the last error of the broker, and how far it got."""
    with pytest.raises(CommandError, match=r"EOS_VERIFY_IMPOSSIBLE.*t-0 stopped at offset 1, of 0 to 5"):
        offsets([row(0)], [event(ClientError._TRANSPORT)], stall_s=0.02)


def test_does_not_wait_for_what_will_not_pass(offsets) -> None:
    """Such as a topic that this user may not read."""
    with pytest.raises(CommandError, match="authorization failed"):
        offsets([row(0)], [event(ClientError.TOPIC_AUTHORIZATION_FAILED)], [row(3), row(4)])


class Lookup:
    """Two partitions of each topic, from 0 to 9, and offsets of a group; ``held``: the broker holds newer ones back."""

    def __init__(self, held: bool = False) -> None:
        self._held = held

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        return dict.fromkeys(topics, 3)

    def begins(self, of: Iterable[str]) -> PartitionOffsets:
        return {topic: dict.fromkeys(range(3), 0) for topic in of}

    def ends(self, of: Iterable[str]) -> PartitionOffsets:
        return {topic: {0: 9, 1: 9, 2: 0} for topic in of}

    def committed(self, of: object, timeout_s: float = 0) -> PartitionOffsets:
        if self._held:
            raise group_refusal("h:1", "g", Code.REQUEST_TIMED_OUT, timeout_s, None)
        return {"in": {1: 5}}

    def compacted(self, topics: Iterable[str]) -> list[str]:
        return list(topics)


@pytest.mark.parametrize(("held", "done"), [(False, (0, 5, 0)), (True, None)])
def test_offsets_of_a_group_that_are_not_known_accuse_no_row(held: bool, done: tuple[int, ...] | None) -> None:
    """What an open transaction has may be more than any row is at. A partition that has rows and no offset is
    named."""
    place, kafka = IdPlace("key"), KafkaProperties({"bootstrap.servers": "h:1"})
    found = _Sides(Comparison(kafka, ("in",), ("out",), place, place, group="g"), Lookup(held), Lookup()).take()
    assert (found.due, found.done) == ((0, 5, 0), done)
    assert found.warnings == (
        *["an open transaction holds newer offsets of the group g: more rows may be due, or early"] * held,
        "the group g has no offset of in-0: none of their rows is due",
        "in is compacted: rows that it has no longer count as unknown, doubled or reordered",
        "out is compacted: rows that it has no longer count as lost",
    )


def test_says_why_there_is_no_token() -> None:
    """Before librdkafka waits for one; without a secret."""
    with nobody() as address:
        oauth = {"client.id": "ann", "client.secret": "hunter2", "token.endpoint.url": f"http://{address}/token"}
        properties = {f"sasl.oauthbearer.{key}": value for key, value in oauth.items()}
        properties |= {"bootstrap.servers": address, "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
        place = IdPlace("key")
        with raises("EOS_UNAUTHENTICATED", f"client 'ann' by OAUTHBEARER: no token from http://{address}") as said:
            verify(Comparison(KafkaProperties(properties), ("in",), ("out",), place, place))
    assert "hunter2" not in str(said.value)
