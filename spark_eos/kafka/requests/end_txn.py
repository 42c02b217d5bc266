"""EndTxn requests, as many at once as the coordinators take.

A broker begins with a connection's next request when it has answered the one before, and it answers an EndTxn when the
replicas have it. So each coordinator gets up to 16 connections: 1,000 requests take a fifth of the time on one broker,
and a sixth with three replicas.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from spark_eos.base import system
from spark_eos.base.retry import retrying
from spark_eos.kafka.codes import COORDINATOR_MOVED, COORDINATOR_RETRIES, UNAUTHORIZED
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.net.connection import Connection, wait
from spark_eos.kafka.net.schema import NO_TAGS, Api, text
from spark_eos.kafka.transactions import FENCING_END, FENCING_LEVEL, PLAIN_END

#: Transactional id, producer id, epoch.
TransactionKey = tuple[str, int, int]

#: Versions that do not raise the producer epoch, for transactions that began with transaction.version 0 or 1.
_PLAIN = Api("EndTxn", 26, 3, PLAIN_END)

_CONNECTIONS = 16
#: Requests to a connection, at the least: with fewer, more connections cost more than they save.
_FEWEST = 2
_KEPT = 256
#: Attempts of `end_own_txn` that may go without a response before its time is over.
_TRIES = 3
#: Throttle time, error
_ANSWER = struct.Struct(">ih")


class EndConnection(Connection[str]):
    """One connection to one coordinator."""

    kept_each = _CONNECTIONS
    kept_in_all = _KEPT

    def queue(self, transactions: Iterable[TransactionKey], commit: bool, version: int) -> None:
        """Queue an EndTxn request of this version for each transaction; `push` sends them."""
        for name, producer_id, epoch in transactions:
            body = text(name), struct.pack(">qh?", producer_id, epoch, commit), NO_TAGS
            self.ask(_PLAIN.api, version, body, name)

    def answers(self) -> list[tuple[str, int]]:
        """Return the responses that have arrived, as (transactional id, error code)."""
        return [(name, code) for _, name, (_, code) in self.receive(lambda fields: fields.unpack(_ANSWER))]


def endtxn_version(client: BrokerClient) -> int:
    """Return the version of EndTxn for transactions that begin now: `FENCING_END` or `PLAIN_END`. Raises
    ConnectionFailed."""
    return FENCING_END if client.transaction_version() >= FENCING_LEVEL else PLAIN_END


def end_own_txn(
    client: BrokerClient, transaction: TransactionKey, commit: bool, timeout_s: float, version: int
) -> int | None:
    """End this process's own transaction, with retries for ``timeout_s``, or half as long again if the coordinator does
    not answer. Returns Kafka's final error code; None if the outcome is unknown."""
    name = transaction[0]
    for _ in retrying(timeout_s):
        error = end_txns(client, [transaction], commit, version, timeout_s / _TRIES)[name]
        if error is not None and error not in COORDINATOR_RETRIES:
            return error
        if error is None or error in COORDINATOR_MOVED:
            client.forget([name])
    return None


def end_txns(
    client: BrokerClient,
    transactions: Iterable[TransactionKey],
    commit: bool,
    version: int,
    silence_s: float | None = None,
) -> dict[str, int | None]:
    """End transactions, at all coordinators at once. Returns Kafka's error code for each transactional id, also where
    this user may not even look up its coordinator; None without a response.

    ``version``: `PLAIN_END` or `FENCING_END`, the one with which these transactions began. ``silence_s``: seconds for
    which a coordinator may be silent, at most the user's property, which is the default.
    """
    silence_s = min(client.silence_s, silence_s or math.inf)
    asked = {transaction[0]: transaction for transaction in transactions}
    codes: dict[str, int | None] = dict.fromkeys(asked)
    coordinators, errors = client.coordinators(asked, silence_s)
    codes |= {name: code for name, code in errors.items() if code in UNAUTHORIZED}
    by_coordinator = [(node, [asked[name] for name in names]) for node, names in coordinators.items()]
    if len(by_coordinator) == 1:
        codes |= _end_txns_at(client, *by_coordinator[0], commit, silence_s, version)
    elif by_coordinator:
        with ThreadPoolExecutor(len(by_coordinator), "eos ends") as pool:
            answers = [pool.submit(_end_txns_at, client, *of, commit, silence_s, version) for of in by_coordinator]
        for answer in answers:
            codes |= answer.result()
    return codes


def _end_txns_at(
    client: BrokerClient,
    node: int,
    transactions: Sequence[TransactionKey],
    commit: bool,
    silence_s: float,
    version: int,
) -> dict[str, int | None]:
    """End transactions of one coordinator; returns the error codes, without transactions that got no response."""
    codes: dict[str, int | None] = {}
    busy = _asked(client, node, transactions, commit, silence_s, version)
    while busy:
        for connection in list(busy):
            try:
                connection.push()
                codes.update(connection.answers())
                if not connection.idle and system.monotonic() - connection.moved_at > silence_s:
                    raise TimeoutError("the broker is silent")
            except OSError:
                client.pool.lost(connection)
                client.forget_versions(node)
            else:
                if not connection.idle:
                    continue
                client.pool.give_back(connection)
            busy.remove(connection)
        if busy:
            wait(busy, min(connection.moved_at for connection in busy) + silence_s)
    return codes


def _asked(
    client: BrokerClient,
    node: int,
    transactions: Sequence[TransactionKey],
    commit: bool,
    timeout_s: float,
    version: int,
) -> list[EndConnection]:
    """Return connections with the requests queued; none if the coordinator cannot be reached."""
    try:
        spoken = version if version >= FENCING_END else client.version(node, _PLAIN)
    except OSError:
        return []
    connections = list(_connections(client, node, len(transactions), timeout_s))
    for i, connection in enumerate(connections):
        connection.queue(transactions[i :: len(connections)], commit, spoken)
    return connections


def _connections(client: BrokerClient, node: int, ends: int, timeout_s: float) -> Iterator[EndConnection]:
    """Yield as many connections as this number of requests is worth, or as can be opened."""
    for _ in range(min(_CONNECTIONS, -(-ends // _FEWEST))):
        try:
            yield client.connection(EndConnection, node, timeout_s)
        except OSError:
            return
