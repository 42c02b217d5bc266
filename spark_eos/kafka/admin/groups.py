"""Consumer groups: their active members, and fetching, committing and deleting their offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from spark_eos.base import system
from spark_eos.base.printable import excerpt
from spark_eos.base.retry import retrying
from spark_eos.base.topic_partition import PartitionOffsets
from spark_eos.errors import EosError, stop
from spark_eos.kafka.admin.topics import TIMEOUT_S
from spark_eos.kafka.codes import ADMIN_RETRIES, COORDINATOR_MOVED, OK, Code
from spark_eos.kafka.config.properties import Isolation
from spark_eos.kafka.errors import group_active, group_refusal, group_unauthorized
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.net.metadata import CoordinatorKind
from spark_eos.kafka.net.schema import Record, Request
from spark_eos.kafka.requests.describe_groups import (
    CONSUMER_GROUP_DESCRIBE,
    DESCRIBE_GROUPS,
    DescribedConsumerGroup,
    DescribedGroup,
)
from spark_eos.kafka.requests.list_groups import LIST_GROUPS, ListedGroup, ListGroupsResponse
from spark_eos.kafka.requests.offset_commit import offset_commit
from spark_eos.kafka.requests.offset_delete import OFFSET_DELETE, OffsetDeleteResponse
from spark_eos.kafka.requests.offset_fetch import OFFSET_FETCH, FetchedGroup
from spark_eos.kafka.requests.partition_codes import partition_codes

A = TypeVar("A", bound=Record)
#: The part of a response that is about one group.
OfGroup = DescribedGroup | DescribedConsumerGroup | ListGroupsResponse | FetchedGroup | OffsetDeleteResponse
G = TypeVar("G", bound=OfGroup)
D = TypeVar("D", DescribedGroup, DescribedConsumerGroup, FetchedGroup, ListedGroup)
P = TypeVar("P", FetchedGroup, OffsetDeleteResponse)

_TRY_S = 4.0
#: The bit of the operation READ in ``authorized_operations``, and the value of that field if it was not requested.
_READ = 1 << 3
_NOT_REPORTED = -(2**31)
#: Types of groups that commit consumers' offsets, and states of groups without members.
_HAVE_OFFSETS = frozenset({"classic", "consumer", "streams"})
_WITHOUT_MEMBERS = frozenset({"Empty", "Dead"})
#: UNSUPPORTED_VERSION: the protocol of KIP-848 is switched off, as it is by default in Kafka 3.
_NO_SUCH_GROUP = frozenset({Code.GROUP_ID_NOT_FOUND, Code.UNSUPPORTED_VERSION})


@dataclass(frozen=True)
class ConsumerGroup:
    """A consumer group of a cluster, by its name."""

    client: BrokerClient
    name: str

    def check_inactive(self, otherwise: str, at: str = "", *, to_commit: bool = False) -> None:
        """Raise KafkaError (EOS_GROUP_ACTIVE) where the group has members, and as `active_members` does.
        ``otherwise``: the consequence if they went on; ``at``: on which side they are."""
        members = self.active_members(to_commit=to_commit)
        if members:
            raise group_active(self.name, members, otherwise, at)

    def active_members(self, *, to_commit: bool = False) -> list[str]:
        """Return the members, each as "client id at host"; empty if the group has no members or does not exist. For a
        group of Kafka Streams' protocol (KIP-1071), one entry with the group's state. ``to_commit``: also check that
        this user may commit offsets for the group.

        Raises ConnectionFailed and KafkaError (EOS_KAFKA_REFUSED, EOS_UNAUTHORIZED, EOS_GROUP_UNSUITABLE).
        """
        client, group = self.client, self.name
        flags = {"include_authorized_operations": to_commit}
        described: DescribedGroup | DescribedConsumerGroup | None
        values: dict[str, Any] = {"groups": [group], **flags}
        described = _ask(client, group, DESCRIBE_GROUPS, values, TIMEOUT_S, lambda answer: _of(group, answer.groups))
        if described is None and client.supports(CONSUMER_GROUP_DESCRIBE.api, CONSUMER_GROUP_DESCRIBE.last):
            values = {"group_ids": [group], **flags}
            described = _ask(
                client, group, CONSUMER_GROUP_DESCRIBE, values, TIMEOUT_S, lambda answer: _of(group, answer.groups)
            )
        if described is None and client.supports(LIST_GROUPS.api, LIST_GROUPS.last):
            return _members_by_state(client, group)
        members = described.members if described is not None else ()
        return [f"{excerpt(member.client_id, 100)} at {excerpt(member.client_host, 100)}" for member in members]

    def committed(
        self,
        partitions: Mapping[str, Iterable[int]] | None,
        timeout_s: float = TIMEOUT_S,
        *,
        isolation: Isolation = "read_committed",
    ) -> PartitionOffsets:
        """Return the committed offsets for these partitions, or for all (None); partitions without one are left out.

        With ``read_committed``, it waits for open transactions that may commit newer offsets. Raises as
        `active_members`.
        """
        group = self.name
        asked = None if partitions is None else {topic: list(numbers) for topic, numbers in partitions.items()}
        topics = None if asked is None else [{"name": topic, "partition_indexes": p} for topic, p in asked.items()]
        values = {
            "groups": [{"group_id": group, "topics": topics}],
            "require_stable": isolation == "read_committed",
        }
        fetched = _ask(
            self.client, group, OFFSET_FETCH, values, timeout_s, lambda answer: _whole(_of(group, answer.groups), asked)
        )
        result: PartitionOffsets = {}
        for topic in fetched.topics if fetched is not None else ():
            for p in topic.partitions:
                if p.committed_offset >= 0:
                    result.setdefault(topic.name, {})[p.partition_index] = p.committed_offset
        return result

    def commit(self, offsets: PartitionOffsets) -> None:
        """Commit offsets, without leader epochs; the group must have no members. Raises KafkaError
        (EOS_KAFKA_REFUSED)."""
        began, refused = system.monotonic(), int(Code.REQUEST_TIMED_OUT)
        for _ in retrying(TIMEOUT_S):
            answer = offset_commit(self.client, self.name, offsets, _TRY_S)
            codes = list(answer.values()) if isinstance(answer, dict) else [answer]
            wrong = [code for code in codes if code != OK]
            if not wrong:
                return
            final = [code for code in wrong if code is not None and code not in ADMIN_RETRIES]
            refused = next((code for code in (*final, *wrong) if code is not None), refused)
            if final:
                break
        raise self._refusal(refused, began, "the offsets of ")

    def delete(self, partitions: Mapping[str, Iterable[int]]) -> None:
        """Delete the committed offsets of these partitions, and of no others. The group must have no members.

        Raises KafkaError (EOS_KAFKA_REFUSED).
        """
        asked = {topic: list(numbers) for topic, numbers in partitions.items()}
        topics = [{"name": t, "partitions": [{"partition_index": p} for p in ps]} for t, ps in asked.items()]
        values = {"group_id": self.name, "topics": topics}
        began, code = system.monotonic(), int(Code.REQUEST_TIMED_OUT)
        for _ in retrying(TIMEOUT_S):
            answer, code = _of_coordinator(self.client, self.name, OFFSET_DELETE, values, _TRY_S)
            answer = _whole(answer, asked)
            code = code if answer is None else _code(answer)
            if code in (OK, Code.GROUP_ID_NOT_FOUND):
                return
            if answer is None or code in COORDINATOR_MOVED:
                self.client.forget([self.name], CoordinatorKind.GROUP)
            if code not in ADMIN_RETRIES:
                break
        raise self._refusal(code, began, "an end of the offsets of ")

    def _refusal(self, code: int, began: float, of: str) -> EosError:
        waited_s = system.monotonic() - began
        return group_refusal(self.client.bootstrap_servers, self.name, code, waited_s, of=of)


def _of(group: str, listed: Iterable[D]) -> D | None:
    """Return the part of a response about this group; None if there is none."""
    return next((one for one in listed if one.group_id == group), None)


def _whole(found: P | None, asked: Mapping[str, Iterable[int]] | None) -> P | None:
    """Return the answer, if it is about all partitions that were asked for (None: whichever there are), or refused as a
    whole."""
    if found is None or found.error_code != OK or asked is None:
        return found
    return found if partition_codes(found.topics, asked) is not None else None


def _members_by_state(client: BrokerClient, group: str) -> list[str]:
    """Return the members of a group that neither DescribeGroups nor ConsumerGroupDescribe knows, by the state in
    ListGroups."""
    values: dict[str, list[str]] = {"states_filter": [], "types_filter": []}
    listed = _ask(client, group, LIST_GROUPS, values, TIMEOUT_S, lambda answer: answer)
    listed_group = _of(group, listed.groups if listed is not None else ())
    if listed_group is None:
        return []
    kind = listed_group.group_type.lower()
    if kind not in _HAVE_OFFSETS:
        raise stop(
            "EOS_GROUP_UNSUITABLE.type",
            group=group,
            type=listed_group.group_type,
            have_offsets=", ".join(sorted(_HAVE_OFFSETS)),
        )
    empty = listed_group.group_state in _WITHOUT_MEMBERS
    return [] if empty else [f"members of a {kind} group, which is {listed_group.group_state}"]


def _ask(
    client: BrokerClient,
    group: str,
    request: Request[A],
    values: Mapping[str, Any],
    timeout_s: float,
    part: Callable[[A], G | None],
) -> G | None:
    """Send a request to the group's coordinator, with retries. ``part``: takes the group's part out of the response; a
    response without one counts as none. None if the coordinator knows no such group of the request's protocol."""
    began, code = system.monotonic(), int(Code.REQUEST_TIMED_OUT)
    for _ in retrying(timeout_s):
        left = min(_TRY_S, max(0.1, began + timeout_s - system.monotonic()))
        answer, code = _of_coordinator(client, group, request, values, left)
        result = None if answer is None else part(answer)
        code = code if result is None else _code(result)
        if result is not None and not _may_commit(result):
            raise group_unauthorized(client.bootstrap_servers, group)
        if code == OK or code in _NO_SUCH_GROUP:
            return result if result is not None and code == OK and not _is_dead(result) else None
        if result is None or code in COORDINATOR_MOVED:
            client.forget([group], CoordinatorKind.GROUP)
        if code not in ADMIN_RETRIES:
            break
    stable = code == Code.UNSTABLE_OFFSET_COMMIT
    why = "an open transaction may hold newer ones" if stable else None
    raise group_refusal(client.bootstrap_servers, group, code, system.monotonic() - began, why)


def _may_commit(result: OfGroup) -> bool:
    """Return whether this user may commit offsets for the group; True if the response does not say."""
    if not isinstance(result, DescribedGroup | DescribedConsumerGroup):
        return True
    return result.authorized_operations == _NOT_REPORTED or bool(result.authorized_operations & _READ)


def _is_dead(found: OfGroup) -> bool:
    return isinstance(found, DescribedGroup | DescribedConsumerGroup) and found.group_state == "Dead"


def _of_coordinator(
    client: BrokerClient, group: str, request: Request[A], values: Mapping[str, Any], timeout_s: float
) -> tuple[A | None, int]:
    """Return the response of the group's coordinator; or None, and the error code for the reason."""
    node, code = client.coordinator(group, timeout_s, CoordinatorKind.GROUP)
    answer = None if node is None else client.ask(node, request, values, timeout_s)
    return answer, int(Code.REQUEST_TIMED_OUT) if code is None else code


def _code(result: OfGroup) -> int:
    """Return the group's error code, or the first one of its partitions."""
    codes: list[int] = []
    if isinstance(result, FetchedGroup | OffsetDeleteResponse):
        codes = [p.error_code for topic in result.topics for p in topic.partitions]
    return next((code for code in (result.error_code, *codes) if code != OK), OK)
