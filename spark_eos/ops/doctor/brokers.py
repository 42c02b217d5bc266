"""What brokers report of themselves (`cluster_facts`), and findings by that. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil

from spark_eos.kafka.admin.configs import each_broker_config
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.net.schema import Api
from spark_eos.ops.answer import duration
from spark_eos.ops.doctor.findings import Finding, Severity, Tools, in_properties

ERROR, WARNING, UNKNOWN, OK = Severity.ERROR, Severity.WARNING, Severity.UNKNOWN, Severity.OK

_FENCING = 2
_SHORT_MS = 60_000
#: Kafka's internal topics, and the brokers' settings by which they are created.
INTERNAL_TOPICS = {
    "__transaction_state": ("transaction.state.log.replication.factor", "transaction.state.log.min.isr"),
    "__consumer_offsets": ("offsets.topic.replication.factor", "min.insync.replicas"),
}
_LOST_WITH = {
    "__transaction_state": "If its only disk is lost, the coordinators lose all transactions: decided rows are "
    "aborted, and the query has to write them again.",
    "__consumer_offsets": "If its only disk is lost, the offsets of groups are gone: a new checkpoint cannot continue "
    "from them.",
}


#: Kafka 4.1 and newer have it (KIP-1152).
_LISTS_BY_PATTERN = Api("ListTransactions", 66, 2, 1 << 14)


@dataclass(frozen=True)
class ClusterFacts:
    """``nodes``: the ids of the brokers; ``config``: their settings, None where this user may not read them;
    ``transaction_version``: its finalized level; ``before_4_1``: the brokers that are older than Kafka 4.1."""

    nodes: tuple[int, ...]
    config: Mapping[int, Mapping[str, str]] | None
    transaction_version: int
    before_4_1: tuple[int, ...]

    @property
    def fencing(self) -> bool:
        """Whether the end of a transaction fences its producer."""
        return self.transaction_version >= _FENCING

    def least(self, setting: str) -> int | None:
        """The lowest value of a setting among the brokers; None where it is not known."""
        values = [each[setting] for each in (self.config or {}).values() if each.get(setting)]
        return min(map(int, values), default=None)


def cluster_facts(kafka: KafkaProperties) -> ClusterFacts:
    """What the brokers report. Raises EosError."""
    client = broker_client(kafka)
    return ClusterFacts(
        tuple(sorted(client.brokers())),
        each_broker_config(client),
        client.feature("transaction.version"),
        tuple(client.brokers_without(_LISTS_BY_PATTERN)),
    )


def readable(cluster: ClusterFacts) -> Iterator[Finding]:
    """Whether this user may read the brokers' settings."""
    if cluster.config is None:
        yield Finding(
            "settings",
            "brokers",
            UNKNOWN,
            "this user may not read the brokers' settings",
            "How long transactions, ids and offsets are kept, and how the coordinators' topics are replicated, is not "
            "known.",
            ("# run it again as a user with DESCRIBE_CONFIGS on the cluster",),
        )


def internal_topic(topic: str, cluster: ClusterFacts) -> Iterator[Finding]:
    """Whether an internal topic is or will be replicated, by the brokers' settings: for a topic that does not exist
    yet, or that this user may not describe."""
    replication, in_sync = INTERNAL_TOPICS[topic]
    replicas, needed = cluster.least(replication), cluster.least(in_sync)
    if replicas is None or needed is None:
        return
    alone = len(cluster.nodes) == 1
    what = f"{replication}={replicas}, {in_sync}={needed}"
    if replicas > 1 and needed > 1:
        yield Finding("replication", f"topic {topic}", OK, what)
        return
    why = _LOST_WITH[topic]
    fix = () if alone else (in_properties(f"{replication}=3, {in_sync}=2"),)
    yield Finding("replication", f"topic {topic}", WARNING if alone else ERROR, what, why, fix)


def versions(cluster: ClusterFacts, tools: Tools) -> Iterator[Finding]:
    """Versions with restrictions that the sink handles (docs/versions.md); the sink's checks refuse the others."""
    level = cluster.transaction_version
    if cluster.fencing:
        yield Finding("transaction.version", "brokers", OK, f"transaction.version={level}")
    else:
        upgrade = tools.upgrade("transaction.version", _FENCING)
        yield Finding(
            "transaction.version",
            "brokers",
            WARNING,
            f"transaction.version={level}",
            "The end of a transaction does not fence its producer (KIP-890): the outcome of a transaction can only be "
            "read from the log, which takes longer. Nothing is lost.",
            (("# with Kafka 4.0 or newer: " if cluster.before_4_1 else "") + upgrade,),
        )
    if cluster.before_4_1 and cluster.fencing:
        numbers = ", ".join(map(str, cluster.before_4_1))
        yield Finding(
            "versions",
            "brokers",
            WARNING,
            f"Kafka 4.0: {numbers}",
            "4.0.0 raises the epoch twice when it fences (KAFKA-19367), so the outcome has to be read from the log "
            "more often. This is handled; 4.0.1 and newer do not do it.",
            ("# if it is 4.0.0, upgrade the brokers",),
        )
    else:
        yield Finding("versions", "brokers", OK, "no known bug has to be worked around")


def timeouts(timeout_ms: int, *, two_phase: bool) -> Iterator[Finding]:
    """Whether transactions may stay open long enough. That brokers allow this is one of the sink's checks."""
    if two_phase:
        return
    what = f"transactions expire after {duration(timeout_ms / 1000)}"
    if timeout_ms >= _SHORT_MS:
        yield Finding("transaction.timeout.ms", "query", OK, what)
        return
    why = "If brokers are down for longer, decided transactions are aborted: the next start writes their rows again."
    fix = "# set the option transaction.timeout.ms of the sink to 900000"
    yield Finding("transaction.timeout.ms", "query", WARNING, what, why, (fix,))


def ids_retention(cluster: ClusterFacts, stop_s: float) -> Iterator[Finding]:
    """Whether transactional ids are kept for the longest stop."""
    ids_ms = cluster.least("transactional.id.expiration.ms")
    if ids_ms is not None:
        what = f"transactional ids are forgotten after {duration(ids_ms / 1000)} (transactional.id.expiration.ms)"
        if ids_ms < stop_s * 1000:
            why = (
                f"After a stop of {duration(stop_s)}, the coordinators no longer know the query: the outcome of its "
                "last micro-batch can only be read from the log, and a ledger that was lost meanwhile is not noticed."
            )
            fix = in_properties(f"transactional.id.expiration.ms={ceil(stop_s * 1000)}")
            yield Finding("transactional.id.expiration.ms", "brokers", WARNING, what, why, (fix,))
        else:
            yield Finding("transactional.id.expiration.ms", "brokers", OK, what)


def offsets_retention(cluster: ClusterFacts, stop_s: float, group: str | None) -> Iterator[Finding]:
    """Whether committed offsets are kept for the longest stop."""
    offsets_min = cluster.least("offsets.retention.minutes")
    if offsets_min is None:
        return
    what = f"committed offsets are deleted after {duration(offsets_min * 60)} (offsets.retention.minutes)"
    if offsets_min * 60 >= stop_s:
        yield Finding("offsets.retention.minutes", "brokers", OK, what)
        return
    who = f"the consumer group {group}" if group else "a consumer group"
    why = (
        f"After a stop of {duration(stop_s)}, {who} has no offsets: a new "
        "checkpoint cannot continue from it, and other consumers follow auto.offset.reset, which repeats or skips rows."
    )
    fix = in_properties(f"offsets.retention.minutes={ceil(stop_s / 60)}")
    yield Finding("offsets.retention.minutes", "brokers", ERROR if group else WARNING, what, why, (fix,))
