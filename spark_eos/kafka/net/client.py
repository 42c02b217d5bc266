"""The client of a Kafka cluster: its brokers, leaders and coordinators, and requests to them.

Calls block, and may come from several threads; each request has a connection to itself. A request to one broker that is
not answered returns None, or is left out of the result; a request to any broker raises ConnectionFailed.

A process has one client for each set of properties (`broker_client`), so that connections and metadata are shared.
An entry point of the driver, a task or a command gets the client at its beginning, and passes it on.

librdkafka lacks half of the requests that are needed, and its admin client ends the process with an assertion if a
broker returns while a request is given up. A read of the ledger takes 0.4 ms here, and 1.4 ms by kafka-python.
"""

from __future__ import annotations

import math
import os
import random
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from spark_eos.base import system
from spark_eos.base.log import logger
from spark_eos.base.retry import retrying
from spark_eos.base.topic_partition import TopicPartition
from spark_eos.errors import ConnectionFailed, EosError, KafkaError, stop
from spark_eos.kafka.codes import OK, Code
from spark_eos.kafka.config.client import Address, client_config
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.connection import Connection, wait
from spark_eos.kafka.net.handshake import ApiVersions, api_versions, open_socket
from spark_eos.kafka.net.metadata import (
    FIND_COORDINATOR,
    METADATA,
    CoordinatorKind,
    DescribedTopic,
    MetadataResponse,
    about_topics,
)
from spark_eos.kafka.net.pool import ConnectionPool
from spark_eos.kafka.net.sasl import CertificateRefused, Refused
from spark_eos.kafka.net.schema import Api, Record, Request
from spark_eos.kafka.net.threads import begin_each

R = TypeVar("R", bound=Record)
C = TypeVar("C", bound="Connection[Any]")
T = TypeVar("T")

#: Seconds for which a request that any broker can answer is tried, at one broker after the other.
ANY_BROKER_S = 15.0

#: Default timeout of a request, in seconds. Callers retry for 10 s or more, so that one pooled connection that has
#: silently died does not take all of their time.
ANSWER_S = 8.0

_CONNECT_S = 10.0
#: The first broker may accept connections and not answer, so the first tries are short.
_FIRST_TRY_S = 2.0
#: Seconds for which a broker that did not answer is tried after the others.
_AVOIDED_S = 30.0
#: Least and most seconds for which connects to a broker fail at once after one has failed.
_LEAST_PAUSE_S, _MOST_PAUSE_S = 0.05, 5.0
#: Least seconds between two Metadata requests because of an unknown broker.
_REFRESH_S = 1.0
#: Seconds for which the level of transaction.version is cached. A transaction that began with an older level also ends
#: with it, which brokers accept unless the level was lowered to 0.
LEVEL_S = 30.0
#: Seconds without reaching any advertised address, after which `_check_advertised` looks whether these are wrong.
_ADVERTISED_S = 5.0
#: Least seconds for a response on a new connection, as looking up the broker's name may have taken all of the time.
_LATE_S = 1.0
_PROBE_S, _PROBED = 1.5, 3
#: Clients that a process keeps, with their connections and metadata. When there are more, the connections of the least
#: recently used one are closed; it may still be used.
_CLIENTS = 8
#: How many coordinators are remembered; batch writes never use an id again.
_COORDINATORS = 20_000


class BrokerClient:
    """A client of one cluster, configured by the user's properties. It connects when it first sends a request. Clients
    with the same properties are equal, so that caches may have them in their keys.

    Raises OptionError for properties that cannot be followed.
    """

    def __init__(self, properties: KafkaProperties) -> None:
        self.properties = properties
        self.bootstrap_servers = properties.bootstrap_servers
        self._config = client_config(properties)
        #: Seconds for which a broker may be silent that owes a response.
        self.silence_s = self._config.silence_s
        #: Milliseconds for which a broker may wait for records that its log has: where they are in remote storage
        #: (KIP-405), it answers without them after that time, brokers before Kafka 3.8 always.
        self.fetch_wait_ms = self._config.fetch_wait_ms
        self._brokers: dict[int, Address] = {}
        self._api_versions: dict[int, ApiVersions] = {}
        self._level: int | None = None
        self._level_at = -math.inf
        self._leaders: dict[TopicPartition, int] = {}
        #: The last known leader of each partition, and the epoch in which it leads.
        self._epochs: dict[TopicPartition, tuple[int, int]] = {}
        self._coordinators: dict[tuple[CoordinatorKind, str], int] = {}
        self._avoided: dict[int, float] = {}
        self._last: int | None = None
        self._refreshed_at = -_REFRESH_S
        self._reached = False
        self._unreached_since: float | None = None
        self._failures: dict[int, OSError] = {}
        #: By address: until when connects fail at once, by the monotonic clock, and how the last one failed.
        self._failed: dict[Address, tuple[float, OSError]] = {}
        #: The cluster's id as of the last Metadata response; empty if brokers have none.
        self.cluster_id = ""
        self.pool = ConnectionPool()

    def __eq__(self, other: object) -> bool:
        return self.properties == other.properties if isinstance(other, BrokerClient) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.properties)

    def close(self) -> None:
        """Close the idle connections; a later request opens new ones."""
        self.pool.close()

    # Requests

    def ask(
        self, node: int, request: Request[R], values: Mapping[str, Any], timeout_s: float | None = None
    ) -> R | None:
        """Return the response of one broker to a request with these values; None without one. See `ask_each`."""
        return self.ask_each({node: values}, request, timeout_s)[node]

    def ask_each(
        self, asked: Mapping[int, Mapping[str, Any]], request: Request[R], timeout_s: float | None = None
    ) -> dict[int, R | None]:
        """Send each broker its request, all at once. Returns the responses; None for a broker that does not answer in
        time: within ``timeout_s``, or by default `ANSWER_S` or the silence that the user's properties allow, if that is
        shorter.

        Raises ConnectionFailed (EOS_BROKER_UNREACHABLE) if no broker was ever reached at its advertised address.
        """
        answers, failures = self._ask(asked, request, timeout_s or min(ANSWER_S, self.silence_s))
        if failures:
            self._check_advertised()
        return answers

    def ask_any(self, request: Request[R], values: Mapping[str, Any], timeout_s: float = ANY_BROKER_S) -> R:
        """Return the response of the first broker that answers. Raises ConnectionFailed: EOS_KAFKA_UNREACHABLE, and
        EOS_UNAUTHENTICATED if one of the brokers asked has refused this client."""
        began = system.monotonic()
        until, try_s = began + timeout_s, _FIRST_TRY_S
        failure: OSError = OSError("no broker is known")
        refused: Refused | None = None
        for _ in retrying(timeout_s):
            others = False
            for node in self._candidates():
                left = min(try_s, until - system.monotonic())
                if left <= 0:
                    break
                answers, failures = self._ask({node: values}, request, left)
                answer = answers[node]
                if answer is not None:
                    self._last = node
                    return answer
                failure = failures[node]
                if isinstance(failure, Refused):
                    refused = failure
                else:
                    others = True
            if refused is not None and not (self._brokers and others):
                break
            try_s *= 2
        raise self._unreachable(refused or failure, system.monotonic() - began)

    def _candidates(self) -> list[int]:
        """Return brokers in the order in which to try them: first the one that answered last, then others, then brokers
        that did not answer lately, and the bootstrap servers, which have negative numbers. The bootstrap servers come
        first while no broker was reached."""
        now = system.monotonic()
        known = _shuffled(self._brokers)
        known.sort(key=lambda node: (self._avoided.get(node, 0.0) > now, node != self._last))
        given = [-1 - i for i in range(len(self._config.servers))]
        return given + known if self._failures and not self._reached else known + given

    def _ask(
        self, asked: Mapping[int, Mapping[str, Any]], request: Request[R], timeout_s: float
    ) -> tuple[dict[int, R | None], dict[int, OSError]]:
        """Send requests as `ask_each` does. Brokers with an idle connection are asked before any other is opened; where
        there are several brokers, the others are asked in threads, so that a host that drops packets takes nobody
        else's time."""
        until = system.monotonic() + timeout_s
        answers: dict[int, R | None] = dict.fromkeys(asked)
        failures: dict[int, OSError] = {}
        busy: dict[int, Connection[None]] = {}
        unopened = []
        try:
            for node, values in asked.items():
                try:
                    connection = self._send(node, request, values, until, opens=len(asked) == 1)
                except OSError as error:
                    failures[node] = self._silent(node, error)
                    continue
                if connection is None:
                    unopened.append(node)
                else:
                    busy[node] = connection
            if busy:
                until = max(until, system.monotonic() + min(timeout_s, _LATE_S))
            others = begin_each(
                lambda node: self._ask({node: asked[node]}, request, until - system.monotonic()), unopened
            )
            self._receive(busy, request, until, answers, failures)
            for answered, failed in others():
                answers |= answered
                failures |= failed
        finally:
            for connection in busy.values():
                connection.close()
        return answers, failures

    def _send(
        self, node: int, request: Request[Any], values: Mapping[str, Any], until: float, *, opens: bool
    ) -> Connection[None] | None:
        """Send the request without waiting; returns its connection. None where there is no idle one, unless this
        ``opens`` one. Raises OSError, and KafkaError (EOS_BROKER_UNSUITABLE)."""
        opened = self._idle(node)
        if opened is None and not opens:
            return None
        connection, spoken = opened or self._control(node, until - system.monotonic())
        try:
            version, body = _version(node, request, spoken), request.asks.write(values)
            connection.ask(request.api, version, [body], None, flexible=request.flexible)
            connection.push()
        except OSError:
            self.pool.lost(connection)
            raise
        except BaseException:
            connection.close()
            raise
        return connection

    def _receive(
        self,
        busy: dict[int, Connection[None]],
        request: Request[R],
        until: float,
        answers: dict[int, R | None],
        failures: dict[int, OSError],
    ) -> None:
        """Wait for the responses on these connections, each of which is given back or closed, and left out then."""
        while busy:
            for node, connection in list(busy.items()):
                try:
                    answers[node] = _answer(connection, request, until)
                except OSError as error:
                    failures[node] = self._silent(node, error)
                    self.pool.lost(busy.pop(node))
                else:
                    if answers[node] is not None:
                        self.pool.give_back(busy.pop(node))
            if busy:
                wait(busy.values(), until)

    def _silent(self, node: int, error: OSError) -> OSError:
        if node >= 0:
            self._failures[node] = error
        self._avoided[node] = system.monotonic() + _AVOIDED_S
        self._api_versions.pop(node, None)
        return error

    # Connections

    def connect(self, node: int, timeout_s: float | None = None) -> socket.socket:
        """Return a new socket to a broker, with TLS and SASL done, which belongs to the caller. Raises OSError, and
        ConnectionFailed as `ask_each`."""
        try:
            return self._open(node, min(timeout_s or _CONNECT_S, self._connect_s(node)), lambda broker, _: broker)
        except OSError as error:
            self._silent(node, error)
            self._check_advertised()
            raise

    def connection(self, kind: type[C], node: int, timeout_s: float | None = None) -> C:
        """Return a connection of this class to a broker: an idle one of the pool, or a new one within ``timeout_s``. It
        belongs to the caller, who gives it back to the `pool`. Raises OSError, and ConnectionFailed as `ask_each`."""
        kept = self.pool.take(kind, node)
        return kept if kept is not None else kind(self.connect(node, timeout_s), node, self._config.client_id)

    def _open(self, node: int, timeout_s: float, use: Callable[[socket.socket, float], T]) -> T:
        """Return a new socket to a broker, as ``use`` makes it, which gets the time that is left. Raises OSError, at
        once if a connect to this address has failed just now."""
        until = system.monotonic() + timeout_s
        address = self._address(node, timeout_s)
        began = system.monotonic()
        again_at, failure = self._failed.get(address, (-math.inf, OSError()))
        if began < again_at:
            raise _again(failure)
        if began >= until:
            raise TimeoutError("no time is left to connect")  # which says nothing about the broker
        if node >= 0 and not self._reached:
            self._unreached_since = self._unreached_since or began
        broker: socket.socket | None = None
        try:
            broker = open_socket(self._config, address, until - began)
            used = use(broker, max(until - system.monotonic(), _LATE_S))
        except BaseException as error:
            if broker is not None:
                broker.close()
            if isinstance(error, Refused) or (isinstance(error, OSError) and node >= 0):
                self._gone(node, address, began, error)
            raise
        self._failed.pop(address, None)
        return used

    def _gone(self, node: int, address: Address, began: float, error: OSError) -> None:
        """Note that a connect, since ``began``, has failed. The next ones fail at once for as long as it took, so that
        many callers do not wait for this broker one after the other; and leaders and coordinators on it are looked up
        anew. A second login that is refused makes a long pause, as many lock the account; the first makes none, as it
        may have been with an old token."""
        now = system.monotonic()
        pause_s = min(max(now - began, _LEAST_PAUSE_S), _MOST_PAUSE_S)
        if isinstance(error, Refused):
            again = isinstance(self._failed.get(address, (0.0, None))[1], Refused)
            pause_s = _MOST_PAUSE_S if again else 0.0
        self._failed[address] = now + pause_s, _again(error)
        for partition, leader in list(self._leaders.items()):
            if leader == node:
                self._leaders.pop(partition, None)
        for key, coordinator in list(self._coordinators.items()):
            if coordinator == node:
                self._coordinators.pop(key, None)

    def _connect_s(self, node: int) -> float:
        return _ADVERTISED_S if node >= 0 and not self._reached else _CONNECT_S

    def _idle(self, node: int) -> tuple[Connection[None], ApiVersions] | None:
        """Return an idle connection for short requests to a broker whose API versions are known."""
        known = self._api_versions.get(node)
        connection = self.pool.take(Connection, node) if known is not None else None
        return None if known is None or connection is None else (connection, known)

    def _control(self, node: int, timeout_s: float) -> tuple[Connection[None], ApiVersions]:
        """Return a new connection for short requests, and the broker's API versions, which are requested on it."""

        def ask_versions(broker: socket.socket, left_s: float) -> tuple[socket.socket, ApiVersions]:
            return broker, api_versions(Connection(broker, node, self._config.client_id), left_s)

        broker, spoken = self._open(node, min(timeout_s, self._connect_s(node)), ask_versions)
        self._api_versions[node] = spoken
        if node >= 0:
            self._reached = True
            self._failures.pop(node, None)
        # Brokers answer about their versions before the login that they require: it is no answer yet.
        return Connection(broker, node, self._config.client_id), spoken

    def _address(self, node: int, timeout_s: float) -> Address:
        """Return where a broker can be reached; it is looked up if it is not known. Raises OSError."""
        if -len(self._config.servers) <= node < 0:
            return self._config.servers[-1 - node]
        if node not in self._brokers and system.monotonic() - self._refreshed_at >= _REFRESH_S:
            try:
                self.metadata([], min(timeout_s, ANY_BROKER_S))
            except ConnectionFailed as error:
                raise OSError(error.message) from None
        address = self._brokers.get(node)
        if address is None:
            raise OSError(f"broker {node} is not known")
        return address

    def reach(self, timeout_s: float = ANY_BROKER_S) -> None:
        """Reach a broker at its advertised address, unless one was reached before. For callers that go on with
        librdkafka, which cannot say why it gets no answer.

        Raises ConnectionFailed (EOS_KAFKA_UNREACHABLE, EOS_BROKER_UNREACHABLE).
        """
        for _ in retrying(timeout_s):
            if self._reached or any(self._answers(node) for node in self.brokers()):
                return
            self._check_advertised()

    def _answers(self, node: int) -> bool:
        self._failed.clear()
        return self._ask({node: about_topics([])}, METADATA, _PROBE_S)[0][node] is not None

    def _check_advertised(self) -> None:
        """Raise ConnectionFailed if a bootstrap server answers, and no broker was ever reached at the address that it
        advertises: then waiting does not help."""
        since, brokers = self._unreached_since, dict(self._brokers)
        if self._reached or since is None or system.monotonic() - since < _ADVERTISED_S or not brokers:
            return
        nodes = _shuffled(brokers)
        nodes.sort(key=lambda node: brokers[node] not in self._config.servers)  # these are likely to answer
        if any(self._answers(node) for node in nodes[:_PROBED]):
            return
        for i, (host, port) in enumerate(self._config.servers):
            if self._answers(-1 - i):
                raise self._advertised_wrongly(f"{host}:{port}")
        self._unreached_since = system.monotonic()  # no server answers: do not look each time

    def _advertised_wrongly(self, answering: str) -> EosError:
        return stop(
            "EOS_BROKER_UNREACHABLE",
            bootstrap_servers=self.bootstrap_servers,
            answering=answering,
            unreached=self.unreached(),
        )

    def unreached(self) -> str:
        """Return the brokers that did not answer their last request, with their advertised addresses and the reasons,
        as text."""
        brokers, failures = dict(self._brokers), dict(self._failures)
        failing = [(node, *brokers[node]) for node in sorted(failures) if node in brokers]
        return ", ".join(
            f"broker {node} at {host}:{port} ({_text(failures[node])})" for node, host, port in failing[:_PROBED]
        )

    # Metadata

    def brokers(self) -> list[int]:
        """Return the ids of all brokers, by a Metadata request. Raises ConnectionFailed."""
        self.metadata([])
        return list(self._brokers)

    def metadata(
        self, topics: Sequence[str] | None, timeout_s: float = ANY_BROKER_S, **flags: bool
    ) -> MetadataResponse:
        """Return metadata of these topics, or of all (None). Raises ConnectionFailed."""
        answer = self.ask_any(METADATA, about_topics(topics) | flags, timeout_s)
        self._refreshed_at = system.monotonic()
        self.cluster_id = answer.cluster_id or ""
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers} or self._brokers
        for topic in answer.topics:
            for p in topic.partitions:
                partition = topic.name, p.partition_index
                if p.leader_id >= 0:
                    self._leaders[partition] = p.leader_id
                    self._epochs[partition] = p.leader_id, p.leader_epoch
                else:
                    self._leaders.pop(partition, None)
        return answer

    def leader(self, topic: str, partition: int) -> int | None:
        """Return the broker that leads a partition, as far as it is known; None if there is none or no broker
        answers."""
        try:
            return self.leaders([(topic, partition)])[0].get((topic, partition))
        except ConnectionFailed:
            return None

    def leaders(
        self, partitions: Iterable[TopicPartition], timeout_s: float = ANY_BROKER_S
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Return the leaders of partitions, as far as they are known, and an error code for each partition without one.

        Raises ConnectionFailed.
        """
        wanted = list(partitions)
        leaders = self._known_leaders(wanted)
        unknown = sorted({topic for topic, p in wanted if (topic, p) not in leaders})
        topics = {topic.name: topic for topic in self.metadata(unknown, timeout_s).topics} if unknown else {}
        leaders = {partition: leader for partition, leader in leaders.items() if partition[0] not in topics}
        leaders |= self._known_leaders(partition for partition in wanted if partition[0] in topics)
        return leaders, {(t, p): _why_no_leader(topics.get(t), p) for t, p in wanted if (t, p) not in leaders}

    def _known_leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: leader for partition in partitions if (leader := self._leaders.get(partition)) is not None}

    def leader_epoch(self, topic: str, partition: int, leader: int) -> int:
        """Return the epoch in which this broker leads a partition, as far as it is known; else -1."""
        known, epoch = self._epochs.get((topic, partition), (leader, -1))
        return epoch if known == leader else -1

    def forget_leader(self, topic: str, partition: int) -> None:
        """Forget the partition's leader, so that the next request looks it up, at any broker: the one that answered
        last may lag behind."""
        self._leaders.pop((topic, partition), None)
        self._last = None

    def coordinator(
        self, key: str, timeout_s: float, kind: CoordinatorKind = CoordinatorKind.TRANSACTION
    ) -> tuple[int | None, int | None]:
        """Return the coordinator of a transactional id or group; None without one, and the error code if a broker
        returned one."""
        by_node, errors = self.coordinators([key], timeout_s, kind)
        return next(iter(by_node), None), errors.get(key)

    def coordinators(
        self, keys: Iterable[str], timeout_s: float, kind: CoordinatorKind = CoordinatorKind.TRANSACTION
    ) -> tuple[dict[int, list[str]], dict[str, int]]:
        """Return the coordinators of transactional ids or groups, {broker: keys}; and an error code for each key for
        which a broker returned one."""
        wanted = list(keys)
        known = {key: node for key in wanted if (node := self._coordinators.get((kind, key))) is not None}
        unknown = [key for key in wanted if key not in known]
        looked_up, errors = self._find(unknown, timeout_s, kind) if unknown else ({}, {})
        known |= looked_up
        by_node: dict[int, list[str]] = {}
        for key in wanted:
            if key in known:
                by_node.setdefault(known[key], []).append(key)
        return by_node, errors

    def _find(
        self, keys: Sequence[str], timeout_s: float, kind: CoordinatorKind
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Return the coordinators of these keys, and error codes. Raises ConnectionFailed (EOS_UNAUTHENTICATED), as
        waiting does not help then."""
        try:
            answer = self.ask_any(FIND_COORDINATOR, {"key_type": int(kind), "coordinator_keys": keys}, timeout_s)
        except ConnectionFailed as error:
            if error.condition == "EOS_UNAUTHENTICATED":
                raise
            return {}, {}
        nodes, errors = {}, {}
        for row in answer.coordinators:
            if row.error_code == OK:
                nodes[row.key] = self._coordinators[kind, row.key] = row.node_id
                self._brokers[row.node_id] = row.host, row.port
            else:
                errors[row.key] = row.error_code
        for key in list(self._coordinators)[:-_COORDINATORS]:
            self._coordinators.pop(key, None)
        return nodes, errors

    def forget(self, keys: Iterable[str], kind: CoordinatorKind = CoordinatorKind.TRANSACTION) -> None:
        """Forget the coordinators of these keys, so that the next request looks them up."""
        for key in keys:
            self._coordinators.pop((kind, key), None)

    def supports(self, api: int, version: int) -> bool:
        """Return whether some broker has this version of a request. Raises ConnectionFailed."""
        first, last = self._any_api_versions().versions.get(api, (0, -1))
        return first <= version <= last

    def version(self, node: int, api: Api) -> int:
        """Return the newest version of a request that both this broker and this client have. Raises OSError, and
        KafkaError (EOS_BROKER_UNSUITABLE) if there is none."""
        spoken = self._api_versions.get(node)
        if spoken is None:
            connection, spoken = self._control(node, _CONNECT_S)
            self.pool.give_back(connection)
        return _version(node, api, spoken)

    def has(self, node: int, api: Api) -> bool:
        """Return whether this broker has a version of the request. Raises OSError and ConnectionFailed if it does not
        answer, which proves neither."""
        try:
            self.version(node, api)
        except ConnectionFailed:
            raise
        except KafkaError:
            return False
        return True

    def forget_versions(self, node: int) -> None:
        """Forget the broker's API versions, as it may come back as another version: the next use requests them."""
        self._api_versions.pop(node, None)

    def brokers_without(self, request: Api) -> list[int]:
        """Return the brokers that have no version of the request that this client knows. Brokers that do not answer are
        asked again for `ANY_BROKER_S` seconds, as a restart may change their version; then they are left out, with a
        warning. Raises ConnectionFailed."""
        spoken: dict[int, ApiVersions] = {}
        silent: list[int] = []
        self._api_versions.clear()  # a broker may have come back as another version
        for _ in retrying(ANY_BROKER_S):
            asked = [node for node in self.brokers() if node not in spoken]
            self.ask_each(dict.fromkeys(asked, about_topics([])), METADATA)
            spoken |= {node: known for node in asked if (known := self._api_versions.get(node)) is not None}
            silent = [node for node in asked if node not in spoken]
            if not silent:
                break
        if silent:
            logger.warning(
                "brokers %s do not answer: whether they support %s is not known",
                ", ".join(map(str, silent)),
                request.name,
            )
        lacking = (
            node for node, of in spoken.items() if request.version(*of.versions.get(request.api, (0, -1))) is None
        )
        return sorted(lacking)

    def feature(self, name: str) -> int:
        """Return the finalized level of a feature, such as ``transaction.version``; 0 if the cluster does not have it.

        Requested anew, on an idle connection if there is one. Raises ConnectionFailed.
        """
        for node in self._candidates():
            connection = self.pool.take(Connection, node)
            if connection is None:
                continue
            try:
                spoken = api_versions(connection, _FIRST_TRY_S)
            except OSError:
                self.pool.lost(connection)
                continue
            self._api_versions[node] = spoken
            self.pool.give_back(connection)
            return spoken.features.get(name, 0)
        self._api_versions.clear()
        return self._any_api_versions().features.get(name, 0)

    def transaction_version(self) -> int:
        """Return the finalized level of transaction.version, 0 if there is none, at most `LEVEL_S` seconds old; older
        if no broker answers. Raises ConnectionFailed if no broker has ever answered."""
        if self._level is None or system.monotonic() - self._level_at > LEVEL_S:
            try:
                self._level, self._level_at = self.feature("transaction.version"), system.monotonic()
            except ConnectionFailed:
                if self._level is None:
                    raise
        return self._level

    def _any_api_versions(self) -> ApiVersions:
        while True:
            for node in self._candidates():
                known = self._api_versions.get(node)
                if known is not None:
                    return known
            self.metadata([])  # another thread may forget this response at once

    def _unreachable(self, error: OSError, waited_s: float) -> EosError:
        if isinstance(error, Refused):
            return self._unauthenticated(error)
        return stop(
            "EOS_KAFKA_UNREACHABLE.brokers",
            bootstrap_servers=self.bootstrap_servers,
            waited_s=round(waited_s, 1),
            reason=_text(error),
            about="",
        )

    def _unauthenticated(self, refused: Refused) -> EosError:
        sasl, servers = self._config.sasl, self.bootstrap_servers
        if sasl is None or isinstance(refused, CertificateRefused):
            return stop("EOS_UNAUTHENTICATED.certificate", bootstrap_servers=servers, reason=_text(refused))
        return stop(
            "EOS_UNAUTHENTICATED.login",
            bootstrap_servers=servers,
            who=sasl.who,
            mechanism=sasl.mechanism,
            reason=_text(refused),
        )


def _answer(connection: Connection[None], request: Request[R], until: float) -> R | None:
    """Return the response, or None while it is not there. Raises OSError, also when the time is up."""
    connection.push()
    for _, _, answer in connection.receive(request.answers.read):
        return answer
    if system.monotonic() >= until:
        raise TimeoutError(f"broker {connection.node} does not answer")
    return None


def _again(error: OSError) -> OSError:
    """Copy the failure without its stack, to be raised more than once."""
    return type(error)(_text(error)) if isinstance(error, Refused) else OSError(_text(error))


def _text(error: OSError) -> str:
    return str(error) or type(error).__name__


def _shuffled(nodes: Iterable[int]) -> list[int]:
    listed = list(nodes)
    return random.sample(listed, len(listed))


def _why_no_leader(topic: DescribedTopic | None, partition: int) -> int:
    if topic is None or topic.error_code not in (OK, Code.LEADER_NOT_AVAILABLE):
        return Code.UNKNOWN_TOPIC_OR_PARTITION if topic is None else int(topic.error_code)
    known = partition in (p.partition_index for p in topic.partitions)
    return Code.LEADER_NOT_AVAILABLE if known else Code.UNKNOWN_TOPIC_OR_PARTITION


def _version(node: int, request: Api, spoken: ApiVersions) -> int:
    first, last = spoken.versions.get(request.api, (0, -1))
    version = request.version(first, last)
    if version is None:
        raise stop(
            "EOS_BROKER_UNSUITABLE.request",
            request=request.name,
            node=node,
            first=first,
            last=last,
            oldest=request.first,
            newest=request.last,
        )
    return version


_clients: OrderedDict[tuple[KafkaProperties, int], BrokerClient] = OrderedDict()
_clients_lock = threading.Lock()


def broker_client(properties: KafkaProperties) -> BrokerClient:
    """Return this process's client for these properties, which is made at the first call and closed by nobody.

    Call this where nothing can pass a client, and pass it from there, as the first argument. A forked child gets
    clients of its own.
    """
    key = properties, os.getpid()
    with _clients_lock:
        client = _clients.pop(key, None) or BrokerClient(properties)
        _clients[key] = client
        surplus = [_clients.popitem(last=False)[1] for _ in range(len(_clients) - _CLIENTS)]
    for other in surplus:
        other.close()
    return client


def close_all() -> None:
    """Close and forget every client of this process."""
    with _clients_lock:
        closed = list(_clients.values())
        _clients.clear()
    for client in closed:
        client.close()
