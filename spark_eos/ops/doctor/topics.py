"""Reads a topic's settings and partitions from brokers (`topic_facts`), and judges them. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Literal

from spark_eos.errors import Unauthorized
from spark_eos.kafka.admin.configs import topic_config
from spark_eos.kafka.admin.topics import describe_topic, describe_topics
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.ops.answer import duration
from spark_eos.ops.doctor.brokers import INTERNAL_TOPICS, ClusterFacts
from spark_eos.ops.doctor.findings import ERROR, UNKNOWN, WARNING, Fault, Finding, Tools, finding

_REPLICAS = 3
#: Kafka's default of max.message.bytes.
_DEFAULT_MAX_BYTES = 1_048_588
_IN_SYNC, _UNCLEAN, _MAX_BYTES = "min.insync.replicas", "unclean.leader.election.enable", "max.message.bytes"


@dataclass(frozen=True)
class TopicFacts:
    """Facts about a topic. ``replicas``: the brokers of each partition; ``in_sync``: how many of them are in sync;
    ``config``: the topic's settings, None where this user may not read them."""

    name: str
    replicas: tuple[tuple[int, ...], ...]
    in_sync: tuple[int, ...]
    config: Mapping[str, str] | None

    @property
    def fewest(self) -> int:
        """The least replicas of a partition."""
        return min(map(len, self.replicas))

    def number(self, setting: str, default: int = -1) -> int:
        """Return the value of a setting that is a number."""
        return int((self.config or {}).get(setting, default))

    @property
    def policy(self) -> str:
        return (self.config or {}).get("cleanup.policy", "delete")


def topic_facts(client: BrokerClient, topic: str) -> TopicFacts | None:
    """Return a topic's settings and partitions, as brokers report them; None if it does not exist. Raises EosError."""
    if not describe_topics(client, [topic], missing_ok=True):
        return None
    partitions = describe_topic(client, topic).partitions
    try:
        config: Mapping[str, str] | None = topic_config(client, topic)
    except Unauthorized:
        config = None
    replicas = tuple(tuple(p.replica_nodes) for p in partitions)
    return TopicFacts(topic, replicas, tuple(len(p.isr_nodes) for p in partitions), config)


def durability(role: str, topic: TopicFacts, cluster: ClusterFacts, tools: Tools) -> Iterator[Finding]:
    """Judge whether acknowledged records outlive a broker. ``role``: of the topic in the query, such as output."""
    subject, fewest, alone = f"{role} {topic.name}", topic.fewest, cluster.alone
    one_replica = Fault(
        WARNING if alone else ERROR,
        "If that disk is lost, acknowledged records are lost: rows that count as written, or decisions.",
        "" if alone else more_replicas(topic, cluster),
        "1 replica" + (", and the cluster has one broker" if alone else ""),
    )
    yield finding("replication", subject, f"{fewest} replicas", fewest < 2 and one_replica)
    if topic.config is None:
        fix = (
            f"# run it again with the right to DESCRIBE_CONFIGS on topic {topic.name}; 'spark-eos doctor --acls' "
            "prints the command that grants it"
        )
        fault = Fault(UNKNOWN, "Whether acknowledged rows outlive a broker depends on them.", fix)
        yield finding("settings", subject, f"this user may not read the settings of {topic.name}", fault)
        return
    yield _in_sync(subject, topic, tools)
    why = "A replica without the latest records may become the leader: acknowledged rows and decisions are lost."
    unclean = topic.config.get(_UNCLEAN) == "true"
    fault = Fault(ERROR, why, tools.set_of_topic(topic.name, f"{_UNCLEAN}=false"))
    yield finding(_UNCLEAN, subject, f"{_UNCLEAN}={'true' if unclean else 'false'}", unclean and fault)


def _in_sync(subject: str, topic: TopicFacts, tools: Tools) -> Finding:
    needed, here, fewest = topic.number(_IN_SYNC), min(topic.in_sync), topic.fewest
    short = topic.in_sync.index(here)
    brokers = ", ".join(map(str, topic.replicas[short]))
    away = Fault(
        ERROR,
        "Nothing can be written to it until a broker is back: each writer waits, and then stops.",
        f"# start the broker(s) that are down: partition {short} of {topic.name} is on {brokers}",
        f"a partition has {here} replica(s) in sync, and {_IN_SYNC} is {needed}",
    )
    one_is_enough = Fault(
        ERROR,
        "A single broker may acknowledge rows while the others are down; if its disk is lost, the rows are lost.",
        tools.set_of_topic(topic.name, f"{_IN_SYNC}=2"),
    )
    all_are_needed = Fault(
        WARNING,
        "No broker may be down: each restart of a broker stops all writers. Nothing is lost.",
        tools.set_of_topic(topic.name, f"{_IN_SYNC}={fewest - 1}"),
        f"{_IN_SYNC}={needed}, of {fewest} replicas",
    )
    return finding(
        _IN_SYNC,
        subject,
        f"{_IN_SYNC}={needed}" + (", of one replica" if fewest == 1 else ""),
        here < min(needed, fewest) and away,
        needed < 2 <= fewest and one_is_enough,
        1 < fewest <= needed and all_are_needed,
    )


def beside_the_state(topic: TopicFacts, cluster: ClusterFacts, tools: Tools) -> Iterator[Finding]:
    """Judge whether the ledger is as durable as the coordinators' own state, as far as `durability` has not said that
    it is on one broker."""
    replicas, needed = (cluster.least(name) for name in INTERNAL_TOPICS["__transaction_state"][0])
    fewest, own, subject = topic.fewest, topic.number(_IN_SYNC), f"ledger {topic.name}"
    if replicas is None or needed is None or fewest < 2 or own < 2:
        return
    if fewest < replicas:
        why = "If brokers lose decisions that the coordinators still have the transactions of, rows can be doubled."
        what = f"{fewest} replicas, and __transaction_state has {replicas}"
        yield finding("replication", subject, what, Fault(WARNING, why, more_replicas(topic, cluster)))
    if own < min(needed, replicas):
        why = "If brokers lose the newest decisions, and not the transactions of them, rows can be doubled."
        fix = tools.set_of_topic(topic.name, f"{_IN_SYNC}={min(needed, replicas)}")
        what = f"{_IN_SYNC}={own}, and that of __transaction_state is {needed}"
        yield finding(_IN_SYNC, subject, what, Fault(WARNING, why, fix))


def more_replicas(topic: TopicFacts, cluster: ClusterFacts) -> str:
    """Return how to give a topic three replicas, or as many as there are brokers."""
    count = min(_REPLICAS, len(cluster.nodes))
    return f"# give {topic.name} {count} replicas, by kafka-reassign-partitions.sh --generate and --execute"


def of_an_output(topic: TopicFacts, timeout_ms: int, stop_s: float, tools: Tools) -> Iterator[Finding]:
    """Judge whether rows are kept until consumers have read them, and until the outcome of their transaction is
    known."""
    if topic.config is None:
        return
    subject = f"output {topic.name}"
    yield from retention("output", topic, timeout_ms, stop_s, tools)
    why = (
        "Only the last row of each key is kept, and rows without a key are refused (EOS_ROW_REFUSED). That is right "
        "for a table's changes only."
    )
    compacts = "compact" in topic.policy and Fault(WARNING, why)
    yield finding("cleanup.policy", subject, f"cleanup.policy={topic.policy}", compacts)
    check, kind = "message.timestamp.type", topic.config.get("message.timestamp.type", "CreateTime")
    why = "Brokers replace the timestamps of rows: a repaired micro-batch has the time of its repair."
    yield finding(check, subject, f"{check}={kind}", kind == "LogAppendTime" and Fault(WARNING, why))


def retention(role: str, topic: TopicFacts, timeout_ms: int, stop_s: float, tools: Tools) -> Iterator[Finding]:
    """Judge whether a topic that the query writes keeps rows until the outcome of their transaction is known, and for
    the longest stop. ``role``: of the topic in the query, such as output."""
    kept_ms, stopped = topic.number("retention.ms"), duration(stop_s)
    expires = Fault(
        ERROR,
        f"A transaction may stay open for {duration(timeout_ms / 1000)}: its rows can be deleted before they are "
        "committed, and then no reader ever sees them.",
        tools.set_of_topic(topic.name, f"retention.ms={2 * timeout_ms}"),
    )
    missed = Fault(
        WARNING,
        f"After a stop of {stopped}, consumers have missed rows; and the outcome of the last micro-batch can no longer "
        "be read from the log if the coordinators have forgotten it (EOS_OUTCOME_GONE).",
        tools.set_of_topic(topic.name, f"retention.ms={ceil(stop_s * 1000)}"),
    )
    by_size = (
        "Rows are deleted by size, too: where more than that is written while a transaction is open, or during a "
        f"stop of {stopped}, rows are gone before they are committed, or before consumers have read them."
    )
    faults = (0 <= kept_ms < timeout_ms and expires, 0 <= kept_ms < stop_s * 1000 and missed)
    yield from _retention(f"{role} {topic.name}", topic, by_size, *faults)


def of_an_input(topic: TopicFacts, stop_s: float, tools: Tools) -> Iterator[Finding]:
    """Judge whether rows are kept for the longest stop."""
    kept_ms, stopped = topic.number("retention.ms"), duration(stop_s)
    unread = Fault(
        ERROR,
        f"If the query is stopped for {stopped}, rows are deleted before it reads them (EOS_SOURCE_DATA_LOSS).",
        tools.set_of_topic(topic.name, f"retention.ms={ceil(stop_s * 1000)}"),
    )
    by_size = f"If the rows of {stopped} are larger than that, they are deleted before the query reads them."
    yield from _retention(f"input {topic.name}", topic, by_size, 0 <= kept_ms < stop_s * 1000 and unread)


def _retention(subject: str, topic: TopicFacts, by_size: str, *faults: Fault | Literal[False]) -> Iterator[Finding]:
    """Judge whether a topic deletes rows too early: by their age, with these faults, or by size."""
    if topic.config is None:
        return
    kept_ms, kept_bytes = topic.number("retention.ms"), topic.number("retention.bytes")
    if "delete" not in topic.policy or (kept_ms < 0 and kept_bytes < 0):
        yield finding("retention", subject, "rows are not deleted by age")
        return
    what = f"rows are deleted after {duration(kept_ms / 1000)} (retention.ms={kept_ms})"
    size = Fault(WARNING, by_size, "", f"retention.bytes={kept_bytes} for a partition")
    old = f"{what}; rows with older timestamps can be deleted at once"
    by_age = (fault and replace(fault, what=what) for fault in faults)
    yield finding("retention", subject, old, *by_age, kept_bytes >= 0 and size)


def sizes(inputs: list[TopicFacts], output: TopicFacts, tools: Tools) -> Iterator[Finding]:
    """Judge whether the output accepts rows as large as the inputs' rows."""
    if output.config is None:
        return
    own = output.number(_MAX_BYTES, _DEFAULT_MAX_BYTES)
    known = {topic.name: topic.number(_MAX_BYTES, _DEFAULT_MAX_BYTES) for topic in inputs if topic.config is not None}
    name, size = max(known.items(), key=lambda item: item[1], default=("", own))
    larger = Fault(
        WARNING,
        f"Rows of {name}, which may have {size} bytes, can be too large here: the query stops (EOS_ROW_TOO_LARGE).",
        tools.set_of_topic(output.name, f"{_MAX_BYTES}={size}"),
        f"{_MAX_BYTES}={own}, less than that of {name}",
    )
    yield finding(_MAX_BYTES, f"output {output.name}", f"{_MAX_BYTES}={own}", size > own and larger)
