"""A cluster as one process knows it: its brokers, who leads and who coordinates, and questions to them.

Calls block, and may come from several threads: each question goes over a connection that nobody else uses meanwhile.
Answers that did not come are None or left out, unless any broker could have given them.
"""

from __future__ import annotations

import os
import random
import socket
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from spark_eos import system
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
from spark_eos.kafka.net.sasl import Refused
from spark_eos.kafka.net.schema import Api, Record, Request
from spark_eos.retry import retrying
from spark_eos.topic_partition import TopicPartition

R = TypeVar("R", bound=Record)
C = TypeVar("C", bound="Connection[Any]")

#: For how long a question that any broker can answer is asked, of one after the other.
ANY_BROKER_S = 15.0

#: Seconds that a broker has for one answer, where the caller says nothing else. Callers ask again for 10 s or more, so
#: one connection of the pool that has silently died does not take all of their time.
ANSWER_S = 8.0

_CONNECT_S = 10.0
#: The first broker that is asked may sleep with its port open, so the first tries are short.
_FIRST_TRY_S = 2.0
#: Seconds for which a broker that did not answer is asked after the others.
_AVOIDED_S = 30.0
#: Each question about brokers that are not known asks anew, but not more often than this.
_REFRESH_S = 1.0
#: For so long the level of transaction.version is taken to stay as it is. Whoever begins a transaction by an older one
#: ends it by that, which brokers take unless it was lowered to 0.
LEVEL_S = 30.0
#: Once no broker was reached for so long at the address that it advertises, it is found out whether that is the reason.
_ADVERTISED_S = 5.0
_PROBE_S, _PROBED = 1.5, 3
_CLIENTS = 8


class BrokerClient:
    """One cluster, by the user's properties. Made without a connection; raises OptionError on properties that are not
    understood."""

    def __init__(self, properties: KafkaProperties) -> None:
        self.properties = properties
        self.bootstrap_servers = properties.bootstrap_servers
        self._config = client_config(properties)
        #: For how long a broker may be silent that owes a response.
        self.silence_s = self._config.silence_s
        self._brokers: dict[int, Address] = {}
        self._api_versions: dict[int, ApiVersions] = {}
        self._learned_at = 0.0
        self._level: int | None = None
        self._leaders: dict[TopicPartition, int] = {}
        self._coordinators: dict[tuple[CoordinatorKind, str], int] = {}
        self._avoided: dict[int, float] = {}
        self._last: int | None = None
        self._refreshed_at = -_REFRESH_S
        self._reached = False
        self._unreached_since: float | None = None
        self._failures: dict[int, OSError] = {}
        #: The cluster's id by the newest answer of one of its brokers; empty where they have none.
        self.cluster_id = ""
        self.pool = ConnectionPool()

    def close(self) -> None:
        """Close its connections; a later question opens new ones."""
        self.pool.close()

    # Questions

    def ask(
        self, node: int, request: Request[R], values: Mapping[str, Any], timeout_s: float | None = None
    ) -> R | None:
        """What this broker answers, or None."""
        return self.ask_each({node: values}, request, timeout_s)[node]

    def ask_each(
        self, asked: Mapping[int, Mapping[str, Any]], request: Request[R], timeout_s: float | None = None
    ) -> dict[int, R | None]:
        """What each of these brokers answers to its question, all at once; None for those that do not within the time,
        by default `ANSWER_S`, or as long as a broker may be silent, if that is less.

        Raises ConnectionFailed (EOS_BROKER_UNREACHABLE) where no broker was ever reached by what it advertises.
        """
        answers, failures = self._ask(asked, request, timeout_s or min(ANSWER_S, self.silence_s))
        if failures:
            self._check_advertised()
        return answers

    def ask_any(self, request: Request[R], values: Mapping[str, Any], timeout_s: float = ANY_BROKER_S) -> R:
        """What the first broker answers that does. Raises ConnectionFailed (EOS_KAFKA_UNREACHABLE)."""
        began = system.monotonic()
        until, try_s = began + timeout_s, _FIRST_TRY_S
        failure: OSError = OSError("no broker is known")
        for _ in retrying(timeout_s):
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
            if isinstance(failure, Refused) and not self._brokers:
                break
            try_s *= 2
        raise self._unreachable(failure, system.monotonic() - began)

    def _candidates(self) -> list[int]:
        """The broker that answered last, then the others, then those that were silent a moment ago, then the
        addresses that the user gave, which have negative numbers. These go first while no broker can be reached."""
        now = system.monotonic()
        known = random.sample(list(self._brokers), len(self._brokers))
        known.sort(key=lambda node: (self._avoided.get(node, 0.0) > now, node != self._last))
        given = [-1 - i for i in range(len(self._config.servers))]
        return given + known if self._failures and not self._reached else known + given

    def _ask(
        self, asked: Mapping[int, Mapping[str, Any]], request: Request[R], timeout_s: float
    ) -> tuple[dict[int, R | None], dict[int, OSError]]:
        until = system.monotonic() + timeout_s
        answers: dict[int, R | None] = dict.fromkeys(asked)
        failures: dict[int, OSError] = {}
        busy: dict[int, Connection[None]] = {}
        for node, values in asked.items():
            try:
                busy[node] = self._send(node, request, values, until)
            except OSError as error:
                failures[node] = self._silent(node, error)
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
        return answers, failures

    def _send(self, node: int, request: Request[Any], values: Mapping[str, Any], until: float) -> Connection[None]:
        """A connection on which the question is on its way. Raises OSError."""
        connection, spoken = self._control(node, until - system.monotonic())
        version, body = _version(node, request, spoken), request.asks.write(values)
        connection.ask(request.api, version, [body], None, flexible=request.flexible)
        return connection

    def _silent(self, node: int, error: OSError) -> OSError:
        if node >= 0:
            self._failures[node] = error
        self._avoided[node] = system.monotonic() + _AVOIDED_S
        self._api_versions.pop(node, None)
        return error

    # Connections

    def connect(self, node: int, timeout_s: float | None = None) -> socket.socket:
        """A socket to a broker, past every handshake, that belongs to the caller. Raises OSError, and ConnectionFailed
        as `ask_each`."""
        try:
            return self._open(node, min(timeout_s or _CONNECT_S, self._connect_s(node)))
        except OSError as error:
            self._silent(node, error)
            self._check_advertised()
            raise

    def connection(self, kind: type[C], node: int, timeout_s: float | None = None) -> C:
        """A connection of this class to a broker: an idle one of the pool, or a new one within so many seconds. It
        belongs to the caller, until given back to the `pool`. Raises as `connect`."""
        kept = self.pool.take(kind, node)
        return kept if kept is not None else kind(self.connect(node, timeout_s), node, self._config.client_id)

    def _open(self, node: int, timeout_s: float) -> socket.socket:
        address = self._address(node)
        if node >= 0 and not self._reached:
            self._unreached_since = self._unreached_since or system.monotonic()
        return open_socket(self._config, address, timeout_s)

    def _connect_s(self, node: int) -> float:
        return _ADVERTISED_S if node >= 0 and not self._reached else _CONNECT_S

    def _control(self, node: int, timeout_s: float) -> tuple[Connection[None], ApiVersions]:
        """A connection for questions, and what the broker speaks, which is asked on each new one."""
        known = self._api_versions.get(node)
        connection = self.pool.take(Connection, node) if known is not None else None
        if known is not None and connection is not None:
            return connection, known
        until = system.monotonic() + min(timeout_s, self._connect_s(node))
        broker = self._open(node, until - system.monotonic())
        try:
            spoken = api_versions(broker, self._config.client_id, until - system.monotonic())
        except BaseException:
            broker.close()
            raise
        if not self._api_versions:
            self._learned_at = system.monotonic()
        self._api_versions[node] = spoken
        if node >= 0:
            self._reached = True
            self._failures.pop(node, None)
        return Connection(broker, node, self._config.client_id), spoken

    def _address(self, node: int) -> Address:
        if node < 0:
            return self._config.servers[-1 - node]
        if node not in self._brokers and system.monotonic() - self._refreshed_at >= _REFRESH_S:
            self.metadata([])
        if node not in self._brokers:
            raise OSError(f"broker {node} is not known")
        return self._brokers[node]

    def reach(self, timeout_s: float = ANY_BROKER_S) -> None:
        """Reach one of the brokers at the address that it advertises, unless one was reached before: for those who
        leave the rest to librdkafka, which does not tell one kind of silence from another.

        Raises ConnectionFailed, as `ask_any` and `ask_each`.
        """
        for _ in retrying(timeout_s):
            if self._reached or any(self._answers(node) for node in self.brokers()):
                return
            self._check_advertised()

    def _answers(self, node: int) -> bool:
        return self._ask({node: about_topics([])}, METADATA, _PROBE_S)[0][node] is not None

    def _check_advertised(self) -> None:
        """A broker that is away is waited for. But where the user's address answers, and no broker was ever reached at
        the address that it advertises, waiting does not help."""
        since = self._unreached_since
        if self._reached or since is None or system.monotonic() - since < _ADVERTISED_S or not self._brokers:
            return
        nodes = random.sample(list(self._brokers), len(self._brokers))
        nodes.sort(key=lambda node: self._brokers[node] not in self._config.servers)  # these may well answer
        if any(self._answers(node) for node in nodes[:_PROBED]):
            return
        for i, (host, port) in enumerate(self._config.servers):
            if self._answers(-1 - i):
                raise self._advertised_wrongly(f"{host}:{port}")
        self._unreached_since = system.monotonic()  # nobody answers: not to be found out each time

    def _advertised_wrongly(self, answering: str) -> EosError:
        return stop(
            "EOS_BROKER_UNREACHABLE",
            bootstrap_servers=self.bootstrap_servers,
            answering=answering,
            unreached=self.unreached(),
        )

    def unreached(self) -> str:
        """The brokers that did not answer when they were last asked, with the addresses that they advertise."""
        failing = [(node, self._brokers[node]) for node in sorted(self._failures) if node in self._brokers]
        return ", ".join(
            f"broker {node} at {host}:{port} ({str(self._failures[node]) or type(self._failures[node]).__name__})"
            for node, (host, port) in failing[:_PROBED]
        )

    # What is known of the cluster

    def brokers(self) -> list[int]:
        """The numbers of all brokers, as they are now. Raises ConnectionFailed."""
        self.metadata([])
        return list(self._brokers)

    def metadata(
        self, topics: Sequence[str] | None, timeout_s: float = ANY_BROKER_S, **flags: bool
    ) -> MetadataResponse:
        """What a broker says of these topics, or of all (None). Raises ConnectionFailed."""
        answer = self.ask_any(METADATA, about_topics(topics) | flags, timeout_s)
        self._refreshed_at = system.monotonic()
        self.cluster_id = answer.cluster_id or ""
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers} or self._brokers
        for topic in answer.topics:
            for p in topic.partitions:
                place = topic.name, p.partition_index
                if p.leader_id >= 0:
                    self._leaders[place] = p.leader_id
                else:
                    self._leaders.pop(place, None)
        return answer

    def leader(self, topic: str, partition: int) -> int | None:
        """The broker that leads a partition, as it was known last; None where it has none, or nobody answers."""
        try:
            return self.leaders([(topic, partition)])[0].get((topic, partition))
        except ConnectionFailed:
            return None

    def leaders(
        self, places: Iterable[TopicPartition], timeout_s: float = ANY_BROKER_S
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """The leaders of partitions, as they were known last; and an error code for each partition without one.

        Raises ConnectionFailed.
        """
        wanted = list(places)
        unknown = sorted({topic for topic, p in wanted if (topic, p) not in self._leaders})
        topics = {topic.name: topic for topic in self.metadata(unknown, timeout_s).topics} if unknown else {}
        found = {place: self._leaders[place] for place in wanted if place in self._leaders}
        return found, {(t, p): _why_no_leader(topics.get(t), p) for t, p in wanted if (t, p) not in found}

    def forget_leader(self, topic: str, partition: int) -> None:
        """Look for this partition's leader again."""
        self._leaders.pop((topic, partition), None)

    def coordinators(
        self, keys: Iterable[str], timeout_s: float, kind: CoordinatorKind = CoordinatorKind.TRANSACTION
    ) -> tuple[dict[int, list[str]], dict[str, int]]:
        """Coordinator → keys (transactional ids, or groups); and for keys without one the error code, where a broker
        gave it."""
        wanted = list(keys)
        unknown = [key for key in wanted if (kind, key) not in self._coordinators]
        errors = self._find(unknown, timeout_s, kind) if unknown else {}
        found: dict[int, list[str]] = {}
        for key in wanted:
            if (kind, key) in self._coordinators:
                found.setdefault(self._coordinators[kind, key], []).append(key)
        return found, errors

    def _find(self, keys: Sequence[str], timeout_s: float, kind: CoordinatorKind) -> dict[str, int]:
        try:
            answer = self.ask_any(FIND_COORDINATOR, {"key_type": int(kind), "coordinator_keys": keys}, timeout_s)
        except ConnectionFailed:
            return {}
        errors = {}
        for row in answer.coordinators:
            if row.error_code == OK:
                self._coordinators[kind, row.key] = row.node_id
                self._brokers[row.node_id] = row.host, row.port
            else:
                errors[row.key] = row.error_code
        return errors

    def forget(self, keys: Iterable[str], kind: CoordinatorKind = CoordinatorKind.TRANSACTION) -> None:
        """Look for these keys' coordinators again."""
        for key in keys:
            self._coordinators.pop((kind, key), None)

    def supports(self, api: int, version: int) -> bool:
        """Whether the broker that answers first has this version of a request. Raises ConnectionFailed."""
        first, last = self._any_api_versions().versions.get(api, (0, -1))
        return first <= version <= last

    def version(self, node: int, api: Api) -> int:
        """The newest version of a request that this broker has, too. Raises OSError, and KafkaError
        (EOS_BROKER_UNSUITABLE) where there is none."""
        if node not in self._api_versions:
            connection, _ = self._control(node, _CONNECT_S)
            self.pool.give_back(connection)
        return _version(node, api, self._api_versions[node])

    def has(self, node: int, api: Api) -> bool:
        """Whether this broker has a version of the request; False where it does not answer."""
        try:
            return bool(self.version(node, api) >= 0)
        except (OSError, KafkaError):
            return False

    def forget_versions(self, node: int) -> None:
        """The broker may come back as another version."""
        self._api_versions.pop(node, None)

    def brokers_without(self, request: Api) -> list[int]:
        """The brokers that answer now, and have no version of the request that is spoken here. Raises
        ConnectionFailed."""
        self._api_versions.clear()  # a broker may have come back as another version
        nothing = {"topics": [], "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
        self.ask_each(dict.fromkeys(self.brokers(), nothing), METADATA)
        spoken = {node: known.versions.get(request.api, (0, -1)) for node, known in self._api_versions.items()}
        return sorted(node for node, versions in spoken.items() if node >= 0 and request.version(*versions) is None)

    def feature(self, name: str) -> int:
        """The finalized level of a feature, such as ``transaction.version``, as it is now; 0 where there is none.

        Raises ConnectionFailed.
        """
        self._api_versions.clear()
        return self._any_api_versions().features.get(name, 0)

    def transaction_version(self) -> int:
        """The finalized level of transaction.version, 0 where there is none, as it was within the last half a minute,
        or when a broker last answered. Raises ConnectionFailed where none has yet."""
        if system.monotonic() - self._learned_at > LEVEL_S:
            self._api_versions.clear()
        try:
            self._level = self._any_api_versions().features.get("transaction.version", 0)
        except ConnectionFailed:
            if self._level is None:
                raise
        return self._level

    def _any_api_versions(self) -> ApiVersions:
        for node in self._candidates():
            if node in self._api_versions:
                return self._api_versions[node]
        self.metadata([])
        return self._api_versions[self._last if self._last is not None else -1]

    def _unreachable(self, error: OSError, waited_s: float) -> EosError:
        reason = str(error) or type(error).__name__
        return stop(
            "EOS_KAFKA_UNREACHABLE.bootstrap",
            bootstrap_servers=self.bootstrap_servers,
            waited_s=round(waited_s, 1),
            reason=reason,
        )


def _answer(connection: Connection[None], request: Request[R], until: float) -> R | None:
    """The answer, if it is there. Raises OSError, also when the time is up."""
    connection.push()
    for _, _, answer in connection.receive(request.answers.read):
        return answer
    if system.monotonic() >= until:
        raise TimeoutError(f"broker {connection.node} does not answer")
    return None


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
    """The process's client for a cluster. The least recently used one is closed when there are too many."""
    key = properties, os.getpid()
    with _clients_lock:
        client = _clients.pop(key, None) or BrokerClient(properties)
        _clients[key] = client
        surplus = [_clients.popitem(last=False)[1] for _ in range(len(_clients) - _CLIENTS)]
    for other in surplus:
        other.close()
    return client


def close_all() -> None:
    """Close every client of this process; the next one that is asked for is new."""
    with _clients_lock:
        closed = list(_clients.values())
        _clients.clear()
    for client in closed:
        client.close()
