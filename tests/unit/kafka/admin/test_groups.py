"""What is made of the type and the state of a group that no consumer's protocol knows, and of answers about offsets."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.errors import KafkaError
from spark_eos.kafka.admin import groups
from spark_eos.kafka.codes import Code
from spark_eos.kafka.errors import Cause, init_error
from spark_eos.kafka.requests.list_groups import LIST_GROUPS, ListedGroup, ListGroupsResponse
from spark_eos.kafka.requests.txn_offset_commit import txn_offset_commit
from spark_eos.kafka.transactions import FENCING_END
from tests.support.models.coordinator import Coordinator

STREAMS_STATES = ["Empty", "NotReady", "Assigning", "Reconciling", "Stable", "Dead"]
_ANY = st.text(st.characters(categories=["L"]), min_size=1, max_size=12)


@pytest.fixture(autouse=True)
def no_pauses(clock):
    """Where an answer is asked for again."""


class Lister(Coordinator):
    """Lists a group, and describes none."""

    def supports(self, *_: Any) -> bool:
        return True

    def ask(self, node: int, request: Any, *_: Any) -> Any:
        return self.answers[0] if request is LIST_GROUPS else coded({}, code=Code.GROUP_ID_NOT_FOUND)


def members(kind: str, state: str, name: str = "g") -> list[str]:
    """Of the group ``g``, where the coordinator lists one of this name."""
    group = ListedGroup(group_id=name, protocol_type="", group_state=state, group_type=kind)
    client: Any = Lister(ListGroupsResponse(throttle_time_ms=0, error_code=0, groups=(group,)))
    return groups.ConsumerGroup(client, "g").active_members()


@pytest.mark.parametrize("state", [*STREAMS_STATES, "of a later Kafka"])
def test_a_streams_group_has_members_unless_it_is_empty(state):
    """Also before its topics are there, while tasks are dealt, and in a state that is not known yet; in the list, other
    groups do not count."""
    found = members("streams", state)
    assert (found == []) == (state in ("Empty", "Dead"))
    assert all(state in one for one in found)
    assert members("share", state, name="another") == []


@given(kind=_ANY, state=st.one_of(st.sampled_from(STREAMS_STATES), _ANY))
def test_other_types_are_refused_by_name(kind, state):
    """Those that have no offsets of consumers, and those that Kafka does not have yet; whatever their state is."""
    if kind.lower() in ("classic", "consumer", "streams"):
        assert isinstance(members(kind, state), list)
        return
    with pytest.raises(KafkaError) as caught:
        members(kind, state)
    assert caught.value.condition == "EOS_GROUP_UNSUITABLE"
    assert kind in caught.value.message


def coded(codes: Mapping[int, int], topic: str = "t", group: str = "g", code: int = 0, offset: int = 5) -> Any:
    """An answer about these partitions of a topic, as the requests about groups have it."""
    of = [SimpleNamespace(partition_index=p, error_code=c, committed_offset=offset) for p, c in codes.items()]
    topics = [SimpleNamespace(name=topic, partitions=of)] if codes else []
    whole = SimpleNamespace(group_id=group, error_code=code, topics=topics)
    return SimpleNamespace(groups=[whole], error_code=code, topics=topics)


def group_of(*answers: Any) -> groups.ConsumerGroup:
    """The group whose coordinator answers so."""
    client: Any = Coordinator(*answers)
    return groups.ConsumerGroup(client, "g")


BOTH = {"t": {0: 5, 1: 6}}
PARTIAL = [coded({}), coded({0: 0}), coded({0: 0, 1: 0}, topic="u")]


@pytest.mark.parametrize("answer", PARTIAL, ids=["nothing", "one of two", "another topic"])
def test_what_an_answer_leaves_out_is_not_done(answer):
    """It counts as no answer, and the coordinator is looked up anew."""
    whole = coded({0: 0, 1: 0})
    for ask in (
        lambda group: group.commit(BOTH),
        lambda group: group.delete(BOTH),
        lambda group: group.committed(BOTH) or None,
    ):
        client: Any = Coordinator(answer, whole)
        assert ask(groups.ConsumerGroup(client, "g")) in (None, {"t": {0: 5, 1: 5}})
        assert client.answers == [whole] and client.forgotten == ["g"]
        with pytest.raises(KafkaError):
            ask(group_of(answer))
    client = Coordinator(answer)
    assert txn_offset_commit(client, ("x", 1, 1), "g", BOTH, 1.0, FENCING_END) is None
    assert client.forgotten == ["g"]


def test_offsets_of_many_partitions_are_committed_by_several_requests():
    """A coordinator writes those of one request as one batch, which may have 1 MiB."""
    offsets = {"t": {p: p for p in range(1500)}, "u": {p: p for p in range(600)}}
    sent: list[dict[str, int]] = []

    class Answering(Coordinator):
        def ask(self, node: int, request: Any, values: Any, *_: Any) -> Any:
            sent.append({topic["name"]: len(topic["partitions"]) for topic in values["topics"]})
            return SimpleNamespace(
                topics=[
                    SimpleNamespace(
                        name=topic["name"],
                        partitions=[SimpleNamespace(error_code=0, **p) for p in topic["partitions"]],
                    )
                    for topic in values["topics"]
                ]
            )

    client: Any = Answering()
    groups.ConsumerGroup(client, "g").commit(offsets)
    assert txn_offset_commit(client, ("x", 1, 1), "g", offsets, 1.0, FENCING_END) == 0
    assert sent == [{"t": 1000}, {"t": 500, "u": 500}, {"u": 100}] * 2


def test_the_offsets_of_another_group_are_not_taken():
    """As of no group, which would begin where a query without offsets begins."""
    assert group_of(coded({0: 0, 1: 0}, group="h", offset=9), coded({0: 0, 1: 0})).committed(BOTH) == {
        "t": {0: 5, 1: 5}
    }


def test_a_group_refused_as_a_whole_has_no_partitions():
    """So that its code is told, and not silence."""
    with pytest.raises(KafkaError) as caught:
        group_of(coded({}, code=30)).committed(BOTH)
    assert caught.value.condition == "EOS_UNAUTHORIZED"


def refused(codes: Mapping[int, int]) -> KafkaError:
    """The error of a commit that is answered so."""
    with pytest.raises(KafkaError) as caught:
        group_of(coded(codes)).commit({"t": dict.fromkeys(codes, 5)})
    return caught.value


@pytest.mark.parametrize("codes", [{0: 0, 1: -1}, {0: -1, 1: 0}, {0: 16, 1: -1, 2: 51}])
def test_the_code_of_a_refusal_is_one_that_refuses(codes):
    """Not the largest, and not one that would pass."""
    assert refused(codes).parameters["reason"] == "UNKNOWN_SERVER_ERROR"


@pytest.mark.parametrize(
    ("code", "condition", "says"),
    [
        (3, "EOS_KAFKA_REFUSED", "about "),
        (25, "EOS_KAFKA_REFUSED", "about "),
        (29, "EOS_UNAUTHORIZED", "READ a topic of the consumer "),
        (30, "EOS_UNAUTHORIZED", "READ the consumer "),
        (16, "EOS_KAFKA_UNREACHABLE", "about "),
    ],
)
def test_a_refusal_is_about_the_group(code, condition, says):
    """Not about a topic that is named like it."""
    error = refused({0: code})
    assert error.condition == condition and says in error.message
    assert "group g" in error.message and "topic group" not in error.message and "topic the" not in error.message


@pytest.mark.parametrize(
    ("code", "entry"), [(53, "EOS_UNAUTHORIZED"), (42, "EOS_KAFKA_REFUSED"), (-1, "EOS_KAFKA_REFUSED")]
)
def test_only_a_lack_of_rights_is_told_as_one(code, entry):
    """Of a producer that the brokers refuse; ACLs do not help against the others."""
    error = init_error("p-1", 1000, Cause.from_code(code))
    assert error.condition == entry
    assert ("ACLs" in error.hint) == (entry == "EOS_UNAUTHORIZED")
