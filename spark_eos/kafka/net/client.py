"""Plain requests to brokers: the one module that knows kafka-python.

confluent-kafka has no calls to describe or list somebody's transactions, nor one that reads records together with the
high watermark and the last stable offset of the same moment. They are sent as plain requests over kafka-python's
connections (its private ``_manager``; pinned, and held by a contract test): all requests of a call are on their way
before the first answer is awaited. What is sent often or is large has sockets of its own, which begin here (`connect`).
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import kafka.errors
from kafka import KafkaAdminClient
from kafka.net.connection import KafkaConnection
from kafka.protocol.admin.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest
from kafka.protocol.producer import ProduceRequest
from kafka.protocol.producer.transaction import InitProducerIdRequest, TxnOffsetCommitRequest
from kafka.record import MemoryRecords

from spark_eos.errors import ConnectionFailed
from spark_eos.kafka.config.handshake import kafka_python_config
from spark_eos.kafka.config.java_names import canonical
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.retry import retrying

ENDTXN_VERSION = 5
"""The version that fences: it comes with transaction.version 2. Spoken by `kafka.requests.end_txn`."""

OK = 0
MOVED = {14, 15, 16}
"""Errors of a coordinator: it is loading, not available, or not the one. Ask again, after looking for it again."""
PASSING = MOVED | {7, 13, 51}
"""Those, time-out, network, and a transition that is under way. Ask again."""
OFFSET_OUT_OF_RANGE = 1
_FETCH_WITH_TOPIC_NAMES = 12
FETCH_VERSION = 11
"""The last one of plain fields, spoken by `kafka.requests.fetch`; brokers have it since Kafka 2.3."""
PRODUCE_VERSION = 12
"""The first one that adds a partition to its transaction by itself (KIP-890, with transaction.version 2), and the last
one of topic names; spoken by `kafka.requests.produce`."""
_OFFSETS_VERSION = 5
"""The first one that adds the group to its transaction by itself (KIP-890)."""
_INIT_VERSION = 5
"""The last one without two-phase commit (KIP-939)."""
_READ_COMMITTED = 1
_FEATURES_SECONDS = 15.0
_CONNECT_SECONDS = 10.0
_BOOTSTRAP_SECONDS = (3, 3, 3, 6, 15)


logging.getLogger("kafka").addHandler(logging.NullHandler())  # silent unless the user's logging asks for it


@dataclass(frozen=True)
class LogBatch:
    """One record batch of a log: its place, who wrote it, and its records as (offset, key, value) where asked for."""

    first: int
    last: int
    producer_id: int
    producer_epoch: int
    aborted: bool
    control: bool
    records: tuple[tuple[int, bytes | None, bytes | None], ...] = ()


@dataclass(frozen=True)
class Fetched:
    """One partition at one moment. ``stable`` is the last stable offset; batches lie below it, and may begin before the
    offset that was asked for. ``error`` is Kafka's code."""

    error: int
    begin: int
    stable: int
    high_watermark: int
    batches: tuple[LogBatch, ...] = ()


_open: set[BrokerClient] = set()


class BrokerClient:
    """One client with its connections. Calls block; answers that did not come are None or left out."""

    def __init__(self, properties: KafkaProperties) -> None:
        self._admin = _client(properties)
        self.properties = properties
        self._manager = self._admin._manager
        self._coordinators: dict[str, int] = {}
        self._group_coordinators: dict[str, int] = {}
        self._leaders: dict[tuple[str, int], int] = {}
        _open.add(self)

    def close(self) -> None:
        """End its thread, which else goes on asking a cluster that is gone."""
        self._admin.close()

    def transaction_version(self) -> int:
        """The cluster's finalized ``transaction.version``; 0 where it has none."""
        failure: kafka.errors.KafkaError | None = None
        for _ in retrying(_FEATURES_SECONDS):
            try:
                feature = self._admin.describe_features().get("transaction.version", {})
            except kafka.errors.KafkaError as error:  # the broker that was asked is gone
                failure = error
                continue
            _, level = feature.get("finalized", (0, 0))
            return int(level)
        raise _unreachable(self.properties, failure)

    def describe(self, ids: Iterable[str]) -> list[Any]:
        """A TransactionState for each transactional id whose coordinator answered; each has an error code."""
        return self._run(self._describe, list(ids))

    def ongoing(self, prefix_pattern: str) -> list[str] | None:
        """Ids of open transactions whose id matches the pattern (RE2), or more; None when a broker did not answer."""
        return self._run(self._ongoing, prefix_pattern)

    def transactional_ids(self, producer_id: int) -> list[str]:
        """The transactional ids that have this producer id, by the brokers that answer."""
        return self._run(self._transactional_ids, producer_id)

    def init_producer(self, transactional_id: str, timeout_ms: int) -> tuple[int, int, int] | None:
        """InitProducerId: error code, producer id and epoch; None without an answer. It fences whoever had the id, and
        aborts what they had open, which takes the broker a while (51) in which to ask again."""
        return self._run(self._init_producer, transactional_id, timeout_ms)

    def coordinators(self, ids: Iterable[str], seconds: float) -> dict[int, list[str]]:
        """Coordinator → transactional ids; ids whose coordinator is not known within ``seconds`` are left out."""
        return self._run(self._find_coordinators, list(ids), seconds)

    def commit_offsets(
        self, transaction: tuple[str, int, int], group: str, offsets: Mapping[str, Mapping[int, int]], seconds: float
    ) -> int | None:
        """Offsets for a group, by topic and partition, with the transaction (transactional id, producer id, epoch):
        Kafka's error code, that of the group or of any of the partitions; None where a request has no answer within
        ``seconds``."""
        return self._run(self._commit_offsets, transaction, group, offsets, seconds)

    def producers(self, topic: str, partition: int) -> list[Any]:
        """The ProducerStates of a partition, by its leader; empty without an answer."""
        return self._run(self._producers, topic, partition)

    def fetch(self, topic: str, partition: int, offset: int, *, records: bool, max_bytes: int) -> Fetched | None:
        """What a partition holds from ``offset`` on, read_committed, not waiting for more; None without an answer."""
        return self._run(self._fetch, topic, partition, offset, records, max_bytes)

    def fetches(self) -> bool:
        """Whether the brokers speak `FETCH_VERSION`."""
        return self._speaks(FetchRequest, FETCH_VERSION)

    def produces(self) -> bool:
        """Whether the brokers speak `PRODUCE_VERSION`."""
        return self._speaks(ProduceRequest, PRODUCE_VERSION)

    def _speaks(self, request: type, version: int) -> bool:
        try:
            self._manager.broker_version_data.api_version(request, version, version)
        except kafka.errors.IncompatibleBrokerVersion:
            return False
        return True

    def leader(self, topic: str, partition: int) -> int | None:
        """The broker that leads a partition, as it was known last, or None."""
        known = self._leaders.get((topic, partition))
        return self._run(self._leader, topic, partition) if known is None else known

    def connect(self, node: int, seconds: float | None = None) -> socket.socket | None:
        """A socket to a broker, past every handshake, that now belongs to the caller; None without one.

        It blocks, for 10 seconds at most or as many as are given. Over TLS it is a TLS socket. kafka-python's own way
        of receiving takes 4 KiB at a time and copies them six times, which is too dear for rows.
        """
        return self._run(self._connect, node, seconds or _CONNECT_SECONDS)

    def forget_leader(self, topic: str, partition: int) -> None:
        """Look for this partition's leader again."""
        self._leaders.pop((topic, partition), None)

    def forget(self, ids: Iterable[str]) -> None:
        """Look for these transactional ids' coordinators again."""
        for name in ids:
            self._coordinators.pop(name, None)

    # On the client's I/O thread

    def _run(self, call: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        return self._manager.run(call, *arguments)

    async def _describe(self, ids: list[str]) -> list[Any]:
        coordinators = await self._find_coordinators(ids)
        requests = {node: DescribeTransactionsRequest(transactional_ids=names) for node, names in coordinators.items()}
        states = []
        for node, response in (await self._ask(requests)).items():
            if response is None:
                self.forget(coordinators[node])
            else:
                states += response.transaction_states
        return states

    async def _ongoing(self, pattern: str) -> list[str] | None:
        version = self._manager.broker_version_data.api_version(ListTransactionsRequest)
        filters = {"transactional_id_pattern": pattern} if version >= 2 else {}
        responses = await self._list(state_filters=["Ongoing"], producer_id_filters=[], **filters)
        if any(response is None or response.error_code != OK for response in responses):
            return None
        return [state.transactional_id for response in responses for state in response.transaction_states]

    async def _transactional_ids(self, producer_id: int) -> list[str]:
        responses = await self._list(state_filters=[], producer_id_filters=[producer_id])
        answers = [response for response in responses if response is not None and response.error_code == OK]
        return [state.transactional_id for response in answers for state in response.transaction_states]

    async def _init_producer(self, name: str, timeout_ms: int) -> tuple[int, int, int] | None:
        if name not in self._coordinators:
            errors = await self._look_up([name])
            if name not in self._coordinators:
                return (errors[name], -1, -1) if name in errors else None
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=timeout_ms, max_version=_INIT_VERSION
        )
        response = await _answer(self._send(request, self._coordinators[name]))
        if response is None:
            self.forget([name])
            return None
        return response.error_code, response.producer_id, response.producer_epoch

    async def _commit_offsets(
        self, transaction: tuple[str, int, int], group: str, offsets: Mapping[str, Mapping[int, int]], seconds: float
    ) -> int | None:
        if group not in self._group_coordinators:
            errors = await self._look_up([group], seconds, CoordinatorType.GROUP)
            if errors.get(group) != OK:
                return errors.get(group)
        coordinator = self._group_coordinators[group]
        response = await _answer(self._send(_offsets_request(*transaction, group, offsets), coordinator, seconds))
        codes = () if response is None else [p.error_code for topic in response.topics for p in topic.partitions]
        wrong = next((code for code in codes if code != OK), OK)
        if response is None or wrong in MOVED:
            self._group_coordinators.pop(group, None)
        return None if response is None else wrong

    async def _producers(self, topic: str, partition: int) -> list[Any]:
        leader = await self._leader(topic, partition)
        if leader is None:
            return []
        asked = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[partition])
        response = await _answer(self._send(DescribeProducersRequest(topics=[asked]), leader))
        if response is None or response.topics[0].partitions[0].error_code != OK:
            self._leaders.pop((topic, partition), None)
            return []
        return response.topics[0].partitions[0].active_producers

    async def _fetch(self, topic: str, partition: int, offset: int, records: bool, max_bytes: int) -> Fetched | None:
        leader = await self._leader(topic, partition)
        if leader is None:
            return None
        response = await _answer(self._send(_fetch_request(topic, partition, offset, max_bytes), leader))
        if response is None or not response.responses:
            self._leaders.pop((topic, partition), None)
            return None
        data = response.responses[0].partitions[0]
        if data.error_code not in (OK, OFFSET_OUT_OF_RANGE):
            self._leaders.pop((topic, partition), None)
        batches = tuple(_batches(data, records)) if data.error_code == OK else ()
        return Fetched(data.error_code, data.log_start_offset, data.last_stable_offset, data.high_watermark, batches)

    async def _connect(self, node: int, seconds: float) -> socket.socket | None:
        broker = self._manager.cluster.broker_metadata(node)
        if broker is None:
            return None
        try:
            return await self._socket(broker, seconds)
        except (kafka.errors.KafkaError, OSError):
            return None

    async def _socket(self, broker: Any, seconds: float) -> socket.socket:
        """Connect and authenticate as the manager does, then take the socket away from the I/O thread."""
        until, net = time.monotonic() + seconds, self._manager._net
        known = {"node_id": broker.node_id, "broker_version_data": self._manager.broker_version_data}
        transport = await self._manager._build_transport(broker, timeout_at=until)
        connection = KafkaConnection(net, **known, **self._manager.config)
        try:
            connection.connection_made(transport)
            await connection.initialize(timeout_at=until)
            await connection.init_future
            await net.sleep(0)  # lets the task that reads come to rest
        except BaseException:
            transport.abort()
            raise
        taken, transport._sock = transport._sock, None
        transport.close()
        taken.settimeout(_CONNECT_SECONDS)
        return taken

    async def _leader(self, topic: str, partition: int) -> int | None:
        place = (topic, partition)
        if place not in self._leaders:
            try:
                metadata = await self._admin._get_cluster_metadata([topic])
            except kafka.errors.KafkaError:  # the broker that was asked is gone; the next look asks another one
                return None
            for known in metadata.get("topics", ()):
                for p in known.get("partitions", ()):
                    if p["leader_id"] >= 0:
                        self._leaders[known["name"], p["partition_index"]] = p["leader_id"]
        return self._leaders.get(place)

    async def _find_coordinators(self, ids: list[str], seconds: float | None = None) -> dict[int, list[str]]:
        unknown = [name for name in ids if name not in self._coordinators]
        if unknown:
            await self._look_up(unknown, seconds)
        coordinators = defaultdict(list)
        for name in ids:
            if name in self._coordinators:
                coordinators[self._coordinators[name]].append(name)
        return coordinators

    async def _look_up(
        self, ids: list[str], seconds: float | None = None, kind: CoordinatorType = CoordinatorType.TRANSACTION
    ) -> dict[str, int]:
        """Ask for these ids' coordinators; the error code for each that a broker answered about."""
        coordinators = self._group_coordinators if kind is CoordinatorType.GROUP else self._coordinators
        response = await _answer(self._send(_find_request(ids, kind), None, seconds))
        rows = [] if response is None else response.coordinators
        for row in rows:
            if row.error_code == OK:
                coordinators[row.key] = self._manager.cluster.add_coordinator(
                    row, kind, row.key, synthesize_node_id=False
                )
        return {row.key: row.error_code for row in rows}

    async def _ask(self, requests: Mapping[int, Any]) -> dict[int, Any]:
        """One request for each broker, all at once; None for a broker that did not answer."""
        sent = {node: self._send(request, node) for node, request in requests.items()}
        return {node: await _answer(future) for node, future in sent.items()}

    async def _list(self, **filters: Any) -> list[Any]:
        """ListTransactions of every broker; None for one that did not answer."""
        nodes = [broker.node_id for broker in self._manager.cluster.brokers()]
        return list((await self._ask({node: ListTransactionsRequest(**filters) for node in nodes})).values())

    def _send(self, request: Any, node: int | None, seconds: float | None = None) -> Any:
        try:
            within = {} if seconds is None else {"request_timeout_ms": int(1000 * seconds)}
            return self._manager.send(request, node_id=node, **within)
        except kafka.errors.KafkaError as error:
            return error


async def _answer(future: Any) -> Any:
    if isinstance(future, kafka.errors.KafkaError):
        return None
    try:
        return await future
    except kafka.errors.KafkaError:
        return None


def _batches(data: Any, with_records: bool) -> Iterable[LogBatch]:
    """KIP-98's rule: from its first offset on, all of a producer is aborted until its abort marker."""
    beginning = sorted(data.aborted_transactions or [], key=lambda t: t.first_offset)
    aborting: set[int] = set()
    memory = MemoryRecords(bytes(data.records or b""))
    while (batch := memory.next_batch()) is not None:
        while beginning and beginning[0].first_offset <= batch.last_offset:
            aborting.add(beginning.pop(0).producer_id)
        aborted = batch.is_transactional and batch.producer_id in aborting
        if batch.is_control_batch:
            aborting.discard(batch.producer_id)
        wanted = with_records and not aborted and not batch.is_control_batch
        records = tuple((r.offset, r.key, r.value) for r in batch) if wanted else ()
        yield LogBatch(
            batch.base_offset,
            batch.last_offset,
            batch.producer_id,
            batch.producer_epoch,
            aborted,
            batch.is_control_batch,
            records,
        )


def _fetch_request(topic: str, partition: int, offset: int, max_bytes: int) -> FetchRequest:
    where = FetchRequest.FetchTopic.FetchPartition(
        partition=partition,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=max_bytes,
    )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=max_bytes,
        isolation_level=_READ_COMMITTED,
        session_id=0,
        session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[where])],
        forgotten_topics_data=[],
        rack_id="",
        max_version=_FETCH_WITH_TOPIC_NAMES,
    )


def _find_request(names: list[str], kind: CoordinatorType) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key_type=kind.value, coordinator_keys=names, min_version=4)


def _offsets_request(
    name: str, producer_id: int, epoch: int, group: str, offsets: Mapping[str, Mapping[int, int]]
) -> TxnOffsetCommitRequest:
    asked = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    topics = [
        asked(
            name=topic,
            partitions=[
                asked.TxnOffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=""
                )
                for partition, offset in partitions.items()
            ],
        )
        for topic, partitions in offsets.items()
    ]
    return TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=group,
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=topics,
        min_version=_OFFSETS_VERSION,
        max_version=_OFFSETS_VERSION,
    )


def _client(properties: KafkaProperties) -> KafkaAdminClient:
    """A client that has found a broker. Each try asks one at random, which may sleep with its port open."""
    for seconds in _BOOTSTRAP_SECONDS:
        try:
            return KafkaAdminClient(**kafka_python_config(properties), bootstrap_timeout_ms=1000 * seconds)
        except kafka.errors.KafkaError as error:
            failure = error
    raise _unreachable(properties, failure)


def _unreachable(properties: KafkaProperties, error: Exception | None) -> ConnectionFailed:
    return ConnectionFailed(
        "EOS_KAFKA_UNREACHABLE",
        f"No broker of '{properties.bootstrap_servers}' answers ({error}).",
        hint="Check kafka.bootstrap.servers, the network, kafka.security.* and kafka.sasl.*.",
    )


def wire(properties: KafkaProperties) -> BrokerClient:
    """The process's client for a cluster."""
    return _wire(properties, os.getpid())


def close_all() -> None:
    """Close every client of this process; the next one that is asked for is new."""
    _wire.cache_clear()
    for client in list(_open):
        client.close()
    _open.clear()


@lru_cache(maxsize=4)
def _wire(properties: KafkaProperties, process_id: int) -> BrokerClient:
    return BrokerClient(properties)


def speaks(properties: KafkaProperties, what: Callable[[BrokerClient], bool]) -> bool:
    """What `BrokerClient.fetches` or `BrokerClient.produces` says of a cluster, once in a process.

    False, too, where authentication or encryption does not get through here: librdkafka looks for certificates in more
    places, or knows better what is wrong. Raises ConnectionFailed where no broker answers a plain connection.
    """
    return _speaks(properties, what, os.getpid())


@lru_cache(maxsize=16)
def _speaks(properties: KafkaProperties, what: Callable[[BrokerClient], bool], process_id: int) -> bool:
    try:
        return what(wire(properties))
    except ConnectionFailed:
        if canonical(properties).get("security.protocol", "PLAINTEXT").upper() == "PLAINTEXT":
            raise
        return False
