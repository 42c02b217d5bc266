"""Clusters in memory: their clients are the product's, which get the answers here instead of from a broker.

Each has one broker, number 1. A consumer group of any name has the offsets and the members that a test sets.
"""

from __future__ import annotations

import base64
import bisect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace as Answer
from typing import Any

import pytest

from spark_eos.base import system
from spark_eos.kafka.codes import Code
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.requests.fetch import FetchResponse
from spark_eos.kafka.requests.list_offsets import EARLIEST
from spark_eos.pipelines.mirror import offset_map, plan
from tests.support.judges.record_batches import Batch, Record, encode

NODE, ADDRESS = 1, ("in-memory", 9092)
#: Bytes of a Fetch request for which it gets one record.
_EACH = 2048

Row = tuple[int, bytes | None, bytes | None]


def id_of(name: str) -> str:
    """The id of the first topic of this name, in the form of Kafka's tools."""
    return base64.urlsafe_b64encode(name.encode().ljust(16, b"\0")).decode().rstrip("=")


class MemoryTopic:
    """``begins``, ``ends``: of the log of each partition, by its last stable offset; ``unstable``: how many records
    open transactions have behind that. ``rows``: its records, in order; offsets that the broker has removed are left
    out. ``refuses_fetch``: the error code, or ``damaged`` bytes, that its readers get."""

    def __init__(self, id_: str, partitions: int = 1, **settings: str) -> None:
        self.id, self.settings = id_, settings
        self.rows: list[list[Row]] = [[] for _ in range(partitions)]
        self.begins, self.ends, self.unstable = [0] * partitions, [0] * partitions, [0] * partitions
        self.leader, self.refuses_fetch, self.damaged = NODE, Code.NONE, False
        self.fetched: list[tuple[int, int]] = []

    def put(self, partition: int, record: tuple[bytes, bytes | None], at: int | None = None) -> None:
        at = self.ends[partition] if at is None else at
        self.rows[partition].append((at, *record))
        self.ends[partition] = at + 1

    def compact(self) -> None:
        """Only the newest of each key is left, and where nothing came after it."""
        for number, rows in enumerate(self.rows):
            newest = {key: at for at, key, _ in rows}
            self.rows[number] = [row for row in rows if newest[row[1]] == row[0]]

    def read(self, partition: int, offset: int, most: int) -> list[Row]:
        """At most so many rows from this offset on."""
        rows = self.rows[partition]
        start = bisect.bisect_left(rows, (offset,))
        return rows[start : start + most]

    def fetch(self, partition: int, offset: int, max_bytes: int) -> FetchResponse:
        self.fetched.append((partition, offset))
        most, end = max(1, max_bytes // _EACH), self.ends[partition]
        rows = self.read(partition, offset, most)
        if self.refuses_fetch or (not rows and offset >= end):
            return FetchResponse(self.refuses_fetch, 0)
        last = rows[-1][0] if len(rows) == most else end - 1
        records = tuple(Record(at, key=key, value=value) for at, key, value in rows)
        data = bytearray(encode(Batch(records, offset, last)))
        data[-1] ^= self.damaged
        return FetchResponse(Code.NONE, len(data), data=data)


class MemoryCluster(BrokerClient):
    """A client of the cluster of this id. ``before`` is called before each answer, but not where records are read or
    written, with the name of the request and its values. ``refused``: topics that this user may not describe.
    ``refuses_topics``: what the broker says of new ones. ``takes_records``: whether producers get an answer.

    ``committed``: what a group has, each time that somebody asks, and the last for good; ``busy``: whether it has
    members; ``moved``, ``deleted``: offsets that were committed and deleted; ``unstable_until_s``: until then, an open
    transaction may commit others.
    """

    def __init__(self, cluster: str) -> None:
        super().__init__(KafkaProperties({"bootstrap.servers": f"{cluster}:9092"}))
        self.id = cluster
        self.topics: dict[str, MemoryTopic] = {}
        self.before: Callable[[str, Mapping[str, Any]], None] = lambda *_: None
        self.refused: set[str] = set()
        self.refuses_topics, self.takes_records = "", True
        self.committed: list[dict[str, dict[int, int]]] = [{}]
        self.busy, self.unstable_until_s = False, 0.0
        self.moved: dict[str, dict[int, int]] = {}
        self.deleted: dict[str, list[int]] = {}
        self._made = 0

    def make(self, name: str, partitions: int = 1, **settings: str) -> MemoryTopic:
        """A topic. If there was one of this name before, the new one has another id."""
        self._made += 1
        id_ = id_of(f"{name} {self._made}" if name in self.topics else name)
        self.topics[name] = MemoryTopic(id_, partitions, **settings)
        return self.topics[name]

    # As the client of the product

    def ask_any(self, request: Any, values: Mapping[str, Any], timeout_s: float = 0.0) -> Any:
        self.before(request.name, values)
        return _ANSWERS[request.name](self, values)

    def ask_each(self, asked: Mapping[int, Any], request: Any, timeout_s: float | None = None) -> dict[int, Any]:
        return {node: self.ask_any(request, values) for node, values in asked.items()}

    def connection(self, kind: Any, node: int, timeout_s: float | None = None) -> Any:
        return _Fetching(self)

    def supports(self, api: int, version: int) -> bool:
        return False


class _Fetching:
    """As `FetchConnection`."""

    node, idle, buffer = NODE, False, b""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        self._answers: dict[tuple[str, int], FetchResponse] = {}

    def send(self, topic: str, partition: int, offset: int, *, max_bytes: int, **_: object) -> None:
        self._answers = {(topic, partition): self._cluster.topics[topic].fetch(partition, offset, max_bytes)}

    def send_many(self, wanted: Mapping[str, list[tuple[int, int, int, int]]], **_: object) -> None:
        self._answers = {
            (topic, partition): self._cluster.topics[topic].fetch(partition, offset, size)
            for topic, of in wanted.items()
            for partition, _, offset, size in of
        }

    def receive_one(self, timeout_s: float) -> FetchResponse:
        return next(iter(self._answers.values()))

    def receive_many(self, timeout_s: float) -> dict[tuple[str, int], FetchResponse]:
        return self._answers

    def close(self) -> None: ...


class MemoryProducer:
    """As librdkafka's: what it takes is in the log at the next flush."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster, self._records = cluster, list[tuple[str, int, tuple[bytes, bytes | None], Any]]()

    def produce(self, topic: str, value: bytes | None, key: bytes, *, partition: int, on_delivery: Any) -> None:
        self._records.append((topic, partition, (key, value), on_delivery))

    def flush(self, wait_s: float) -> int:
        if not self._cluster.takes_records:
            return len(self._records)
        for topic, partition, record, delivered in self._records:
            self._cluster.topics[topic].put(partition, record)
            delivered(None, None)
        self._records.clear()
        return 0


class MemoryClusters(dict[str, MemoryCluster]):
    """Clusters by their ids, made when they are first named, and one clock: a pause takes no time."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self._later: list[tuple[float, Callable[[], None]]] = []

    def __missing__(self, cluster: str) -> MemoryCluster:
        self[cluster] = MemoryCluster(cluster)
        return self[cluster]

    def at(self, seconds: float, do: Callable[[], None]) -> None:
        """Do this so many seconds from now."""
        self._later.append((self.now_s + seconds, do))

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        for event in [event for event in self._later if event[0] <= self.now_s]:
            self._later.remove(event)
            event[1]()

    def _of(self, servers: str) -> MemoryCluster:
        return self[servers.partition(":")[0]]

    @contextmanager
    def installed(self) -> Iterator[MemoryClusters]:
        """Within the block, pauses are by this clock, and mirrors and writers of offset maps find these clusters."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(system, "monotonic", lambda: self.now_s)
            patch.setattr(system, "sleep", self.sleep)
            patch.setattr(plan, "broker_client", lambda kafka: self._of(kafka.bootstrap_servers))
            patch.setattr(offset_map, "Producer", lambda config: MemoryProducer(self._of(config["bootstrap.servers"])))
            yield self


# Answers: what the product reads of them


def _metadata(cluster: MemoryCluster, values: Mapping[str, Any]) -> Answer:
    asked = cluster.topics if values["topics"] is None else [topic["name"] for topic in values["topics"]]
    broker = Answer(node_id=NODE, host=ADDRESS[0], port=ADDRESS[1])
    return Answer(brokers=[broker], cluster_id=cluster.id, topics=[_described(cluster, name) for name in asked])


def _described(cluster: MemoryCluster, name: str) -> Answer:
    topic = cluster.topics.get(name)
    if topic is None or name in cluster.refused:
        refused = name in cluster.refused
        code = Code.TOPIC_AUTHORIZATION_FAILED if refused else Code.UNKNOWN_TOPIC_OR_PARTITION
        return Answer(error_code=code, name=name, partitions=[])
    id_ = base64.urlsafe_b64decode(topic.id + "==")
    partitions = [Answer(partition_index=p, leader_id=topic.leader, leader_epoch=0) for p in range(len(topic.rows))]
    return Answer(error_code=0, name=name, topic_id=id_, is_internal=False, partitions=partitions)


def _list_offsets(cluster: MemoryCluster, values: Mapping[str, Any]) -> Answer:
    def listed(topic: MemoryTopic, asked: Mapping[str, int]) -> Answer:
        p, committed = asked["partition_index"], values["isolation_level"]
        end = topic.ends[p] + (0 if committed else topic.unstable[p])
        offset = topic.begins[p] if asked["timestamp"] == EARLIEST else end
        return Answer(partition_index=p, error_code=0, offset=offset, leader_epoch=0)

    return Answer(
        topics=[
            Answer(name=of["name"], partitions=[listed(cluster.topics[of["name"]], each) for each in of["partitions"]])
            for of in values["topics"]
        ]
    )


def _describe_configs(cluster: MemoryCluster, values: Mapping[str, Any]) -> Answer:
    def described(name: str) -> Answer:
        configs = [Answer(name=setting, value=value) for setting, value in cluster.topics[name].settings.items()]
        return Answer(error_code=0, resource_name=name, configs=configs)

    return Answer(results=[described(resource["resource_name"]) for resource in values["resources"]])


def _create_topics(cluster: MemoryCluster, values: Mapping[str, Any]) -> Answer:
    (topic,) = values["topics"]
    if cluster.refuses_topics:
        return Answer(topics=[Answer(error_code=Code.POLICY_VIOLATION, error_message=cluster.refuses_topics)])
    settings = {config["name"]: config["value"] for config in topic["configs"]}
    cluster.make(topic["name"], topic["num_partitions"], **settings)
    return Answer(topics=[Answer(error_code=0, error_message=None)])


def _find_coordinator(_: MemoryCluster, values: Mapping[str, Any]) -> Answer:
    at = {"node_id": NODE, "host": ADDRESS[0], "port": ADDRESS[1]}
    return Answer(coordinators=[Answer(key=key, error_code=0, **at) for key in values["coordinator_keys"]])


def _describe_groups(cluster: MemoryCluster, values: Mapping[str, Any]) -> Answer:
    members = [Answer(client_id="c", client_host="h")] if cluster.busy else []
    return Answer(groups=[Answer(error_code=0, group_id=values["groups"][0], members=members)])


def _offset_fetch(cluster: MemoryCluster, values: Mapping[str, Any]) -> Answer:
    (group,) = values["groups"]
    if system.monotonic() < cluster.unstable_until_s:
        return Answer(groups=[Answer(group_id=group["group_id"], error_code=Code.UNSTABLE_OFFSET_COMMIT)])
    known = cluster.committed.pop(0) if len(cluster.committed) > 1 else cluster.committed[0]
    asked = {topic["name"]: topic["partition_indexes"] for topic in group["topics"] or ()} or known

    def fetched(topic: str, partition: int) -> Answer:
        offset = known.get(topic, {}).get(partition, -1)
        return Answer(partition_index=partition, committed_offset=offset, error_code=0)

    topics = [Answer(name=topic, partitions=[fetched(topic, p) for p in numbers]) for topic, numbers in asked.items()]
    return Answer(groups=[Answer(group_id=group["group_id"], topics=topics, error_code=0)])


def _offset_commit(cluster: MemoryCluster, values: Mapping[str, Any]) -> Answer:
    for topic in values["topics"]:
        offsets = {p["partition_index"]: p["committed_offset"] for p in topic["partitions"]}
        cluster.moved.setdefault(topic["name"], {}).update(offsets)
    return _done(values)


def _offset_delete(cluster: MemoryCluster, values: Mapping[str, Any]) -> Answer:
    for topic in values["topics"]:
        cluster.deleted[topic["name"]] = [p["partition_index"] for p in topic["partitions"]]
    return _done(values)


def _done(values: Mapping[str, Any]) -> Answer:
    """For each partition."""

    def done(topic: Mapping[str, Any]) -> list[Answer]:
        return [Answer(partition_index=p["partition_index"], error_code=0) for p in topic["partitions"]]

    topics = [Answer(name=topic["name"], partitions=done(topic)) for topic in values["topics"]]
    return Answer(error_code=0, topics=topics)


_ANSWERS: dict[str, Callable[[MemoryCluster, Mapping[str, Any]], Answer]] = {
    "Metadata": _metadata,
    "ListOffsets": _list_offsets,
    "DescribeConfigs": _describe_configs,
    "CreateTopics": _create_topics,
    "FindCoordinator": _find_coordinator,
    "DescribeGroups": _describe_groups,
    "OffsetFetch": _offset_fetch,
    "OffsetCommit": _offset_commit,
    "OffsetDelete": _offset_delete,
}
