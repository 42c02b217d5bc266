"""Reads the settings and versions of brokers (`cluster_facts`), and judges them. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil

from spark_eos.kafka.admin.configs import each_broker_config
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.net.schema import Api
from spark_eos.kafka.transactions import FENCING_LEVEL
from spark_eos.ops.answer import duration
from spark_eos.ops.doctor.findings import ERROR, UNKNOWN, WARNING, Fault, Finding, Tools, finding, in_properties

_SHORT_MS = 60_000
#: Kafka's internal topics: the brokers' settings by which they are created, and the data that is lost with their only
#: disk.
INTERNAL_TOPICS = {
    "__transaction_state": (
        ("transaction.state.log.replication.factor", "transaction.state.log.min.isr"),
        "If its only disk is lost, the coordinators lose all transactions: decided rows are aborted, and the query has "
        "to write them again.",
    ),
    "__consumer_offsets": (
        ("offsets.topic.replication.factor", "min.insync.replicas"),
        "If its only disk is lost, the offsets of groups are gone: a new checkpoint cannot continue from them.",
    ),
}
#: Kafka 4.1 and newer have it (KIP-1152).
_LISTS_BY_PATTERN = Api("ListTransactions", 66, 2, 1 << 14)


@dataclass(frozen=True)
class ClusterFacts:
    """Facts about the brokers. ``nodes``: their ids; ``config``: their settings, None where this user may not read
    them; ``transaction_version``: its finalized level; ``before_4_1``: the brokers that are older than Kafka 4.1."""

    nodes: tuple[int, ...]
    config: Mapping[int, Mapping[str, str]] | None
    transaction_version: int
    before_4_1: tuple[int, ...]

    @property
    def alone(self) -> bool:
        """True for a cluster of one broker."""
        return len(self.nodes) == 1

    @property
    def fencing(self) -> bool:
        """True if the end of a transaction fences its producer."""
        return self.transaction_version >= FENCING_LEVEL

    @property
    def broker(self) -> dict[str, str] | None:
        """The settings of a broker, with the shortest limit of any: each may be the coordinator of a transaction. None
        where this user may not read them."""
        name = "transaction.max.timeout.ms"
        least = self.least(name)
        if not self.config:
            return None
        return {**next(iter(self.config.values())), **({} if least is None else {name: str(least)})}

    def least(self, setting: str) -> int | None:
        """Return the lowest value of a setting among the brokers; None where it is not known."""
        values = [each[setting] for each in (self.config or {}).values() if each.get(setting)]
        return min(map(int, values), default=None)


def cluster_facts(client: BrokerClient) -> ClusterFacts:
    """Ask the brokers. Raises EosError."""
    return ClusterFacts(
        tuple(sorted(client.brokers())),
        each_broker_config(client),
        client.feature("transaction.version"),
        tuple(client.brokers_without(_LISTS_BY_PATTERN)),
    )


def readable(cluster: ClusterFacts) -> Iterator[Finding]:
    """Judge whether this user may read the brokers' settings."""
    if cluster.config is None:
        what, why = (
            "this user may not read the brokers' settings",
            "How long transactions, ids and offsets are kept, and how the coordinators' topics are replicated, is not "
            "known.",
        )
        fix = "# run it again as a user with DESCRIBE_CONFIGS on the cluster"
        yield finding("settings", "brokers", what, Fault(UNKNOWN, why, fix))


def internal_topic(topic: str, cluster: ClusterFacts) -> Iterator[Finding]:
    """Judge whether an internal topic is or will be replicated, by the brokers' settings: for a topic that does not
    exist yet, or that this user may not describe."""
    (replication, in_sync), why = INTERNAL_TOPICS[topic]
    replicas, needed = cluster.least(replication), cluster.least(in_sync)
    if replicas is None or needed is None:
        return
    severity = WARNING if cluster.alone else ERROR
    fix = "" if cluster.alone else in_properties(f"{replication}=3, {in_sync}=2")
    what = f"{replication}={replicas}, {in_sync}={needed}"
    yield finding("replication", f"topic {topic}", what, min(replicas, needed) < 2 and Fault(severity, why, fix))


def versions(cluster: ClusterFacts, tools: Tools) -> Iterator[Finding]:
    """Report versions with restrictions that the sink handles (docs/versions.md); the sink's checks refuse the
    others."""
    upgrade = tools.upgrade("transaction.version", FENCING_LEVEL)
    not_fencing = Fault(
        WARNING,
        "The end of a transaction does not fence its producer (KIP-890): the outcome of a transaction can only be "
        "read from the log, which takes longer. Nothing is lost.",
        f"# with Kafka 4.0 or newer: {upgrade}" if cluster.before_4_1 else upgrade,
    )
    what = f"transaction.version={cluster.transaction_version}"
    yield finding("transaction.version", "brokers", what, not cluster.fencing and not_fencing)
    fences_twice = Fault(
        WARNING,
        "4.0.0 raises the epoch twice when it fences (KAFKA-19367), so the outcome has to be read from the log "
        "more often. This is handled; 4.0.1 and newer do not do it.",
        "# if it is 4.0.0, upgrade the brokers",
        f"Kafka 4.0: {', '.join(map(str, cluster.before_4_1))}",
    )
    is_4_0 = bool(cluster.before_4_1) and cluster.fencing
    yield finding("versions", "brokers", "no known bug has to be worked around", is_4_0 and fences_twice)


def timeouts(timeout_ms: int, *, two_phase: bool) -> Iterator[Finding]:
    """Judge whether transactions may stay open long enough. That brokers allow this is one of the sink's checks."""
    if not two_phase:
        why = (
            "If brokers are down for longer, decided transactions are aborted: the next start writes their rows again."
        )
        fix = "# set the option transaction.timeout.ms of the sink to 900000"
        what = f"transactions expire after {duration(timeout_ms / 1000)}"
        yield finding("transaction.timeout.ms", "query", what, timeout_ms < _SHORT_MS and Fault(WARNING, why, fix))


def ids_retention(cluster: ClusterFacts, stop_s: float) -> Iterator[Finding]:
    """Judge whether transactional ids are kept for the longest stop."""
    setting = "transactional.id.expiration.ms"
    ids_ms = cluster.least(setting)
    if ids_ms is not None:
        why = (
            f"After a stop of {duration(stop_s)}, the coordinators no longer know the query: the outcome of its "
            "last micro-batch can only be read from the log, and a ledger that was lost meanwhile is not noticed."
        )
        fault = Fault(WARNING, why, in_properties(f"{setting}={ceil(stop_s * 1000)}"))
        what = f"transactional ids are forgotten after {duration(ids_ms / 1000)} ({setting})"
        yield finding(setting, "brokers", what, ids_ms < stop_s * 1000 and fault)


def offsets_retention(cluster: ClusterFacts, stop_s: float, group: str | None) -> Iterator[Finding]:
    """Judge whether committed offsets are kept for the longest stop."""
    setting = "offsets.retention.minutes"
    offsets_min = cluster.least(setting)
    if offsets_min is not None:
        why = (
            f"After a stop of {duration(stop_s)}, {f'the consumer group {group}' if group else 'a consumer group'} has "
            "no offsets: a new checkpoint cannot continue from it, and other consumers follow auto.offset.reset, which "
            "repeats or skips rows."
        )
        fault = Fault(ERROR if group else WARNING, why, in_properties(f"{setting}={ceil(stop_s / 60)}"))
        what = f"committed offsets are deleted after {duration(offsets_min * 60)} ({setting})"
        yield finding(setting, "brokers", what, offsets_min * 60 < stop_s and fault)
