"""What is made of the type and the state of a group that no consumer's protocol knows."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.errors import KafkaError
from spark_eos.kafka.admin import groups
from spark_eos.kafka.requests.list_groups import LIST_GROUPS, ListedGroup, ListGroupsResponse

STREAMS_STATES = ["Empty", "NotReady", "Assigning", "Reconciling", "Stable", "Dead"]
_ANY = st.text(st.characters(categories=["L"]), min_size=1, max_size=12)


def members(patch: pytest.MonkeyPatch, kind: str, state: str, name: str = "g") -> list[str]:
    """Of the group ``g``, where the coordinator lists one of this name, and describes none."""
    group = ListedGroup(group_id=name, protocol_type="", group_state=state, group_type=kind)
    listed = ListGroupsResponse(throttle_time_ms=0, error_code=0, groups=(group,))
    patch.setattr(groups, "_ask", lambda _client, _group, request, *_: listed if request is LIST_GROUPS else None)
    return groups.active_members(SimpleNamespace(supports=lambda *_: True), "g")


@pytest.mark.parametrize("state", STREAMS_STATES)
def test_a_streams_group_has_members_unless_it_is_empty(state, monkeypatch):
    """Also before its topics are there, and while tasks are dealt."""
    found = members(monkeypatch, "streams", state)
    assert (found == []) == (state in ("Empty", "Dead"))
    assert all(state in one for one in found)


@given(kind=_ANY, state=st.one_of(st.sampled_from(STREAMS_STATES), _ANY))
def test_other_types_are_refused_by_name(kind, state):
    """Those that have no offsets of consumers, and those that Kafka does not have yet; whatever their state is."""
    with pytest.MonkeyPatch.context() as patch:
        if kind.lower() in ("classic", "consumer", "streams"):
            assert isinstance(members(patch, kind, state), list)
            return
        with pytest.raises(KafkaError) as caught:
            members(patch, kind, state)
        assert caught.value.condition == "EOS_GROUP_UNSUITABLE"
        assert kind in caught.value.message


def test_a_state_that_is_not_known_yet_counts_as_members(monkeypatch):
    """Of a streams group in a later version of Kafka; in the list, other groups do not count."""
    assert members(monkeypatch, "streams", "Dancing")
    assert members(monkeypatch, "share", "Stable", name="another") == []
