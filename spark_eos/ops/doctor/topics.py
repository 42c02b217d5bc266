"""What brokers report of a topic (`topic_facts`), and findings by that. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil

from spark_eos.errors import Unauthorized
from spark_eos.kafka.admin.configs import topic_config
from spark_eos.kafka.admin.topics import describe_topic, describe_topics
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient, broker_client
from spark_eos.ops.answer import duration
from spark_eos.ops.doctor.brokers import INTERNAL_TOPICS, ClusterFacts
from spark_eos.ops.doctor.findings import Finding, Severity, Tools

ERROR, WARNING, UNKNOWN, OK = Severity.ERROR, Severity.WARNING, Severity.UNKNOWN, Severity.OK

_REPLICAS = 3
#: Kafka's default of max.message.bytes.
_DEFAULT_MAX_BYTES = 1_048_588


@dataclass(frozen=True)
class TopicFacts:
    """``replicas``: the brokers of each partition; ``in_sync``: how many of them are in sync; ``config``: the topic's
    settings, None where this user may not read them."""

    name: str
    replicas: tuple[tuple[int, ...], ...]
    in_sync: tuple[int, ...]
    config: Mapping[str, str] | None


def topic_facts(kafka: KafkaProperties, topic: str) -> TopicFacts | None:
    """What brokers report of a topic; None if it does not exist. Raises EosError."""
    client = broker_client(kafka)
    if not describe_topics(client, [topic], missing_ok=True):
        return None
    described = describe_topic(client, topic)
    return TopicFacts(
        topic,
        tuple(tuple(p.replica_nodes) for p in described.partitions),
        tuple(len(p.isr_nodes) for p in described.partitions),
        _config(client, topic),
    )


def _config(client: BrokerClient, topic: str) -> Mapping[str, str] | None:
    try:
        return topic_config(client, topic)
    except Unauthorized:
        return None


def durability(role: str, topic: TopicFacts, cluster: ClusterFacts, tools: Tools) -> Iterator[Finding]:
    """Whether acknowledged records outlive a broker. ``role``: of the topic in the query, such as output."""
    subject = f"{role} {topic.name}"
    fewest = min(map(len, topic.replicas))
    alone = len(cluster.nodes) == 1
    if fewest > 1:
        yield Finding("replication", subject, OK, f"{fewest} replicas")
    else:
        yield Finding(
            "replication",
            subject,
            WARNING if alone else ERROR,
            "1 replica" + (", and the cluster has one broker" if alone else ""),
            "If that disk is lost, acknowledged records are lost: rows that count as written, or decisions.",
            () if alone else (more_replicas(topic, cluster),),
        )
    if topic.config is None:
        yield _unreadable(subject, topic.name)
        return
    yield _in_sync(subject, topic, fewest, alone, tools)
    yield _unclean(subject, topic, tools)


def beside_the_state(topic: TopicFacts, cluster: ClusterFacts, tools: Tools) -> Iterator[Finding]:
    """Whether the ledger is as durable as the coordinators' own state, as far as `durability` has not said that it is
    on one broker."""
    settings = INTERNAL_TOPICS["__transaction_state"]
    replicas, needed = (cluster.least(name) for name in settings)
    fewest, own = min(map(len, topic.replicas)), int((topic.config or {}).get("min.insync.replicas", 0))
    if replicas is None or needed is None or fewest < 2 or own < 2:
        return
    subject = f"ledger {topic.name}"
    if fewest < replicas:
        why = "If brokers lose decisions that the coordinators still have the transactions of, rows can be doubled."
        what = f"{fewest} replicas, and __transaction_state has {replicas}"
        yield Finding("replication", subject, WARNING, what, why, (more_replicas(topic, cluster),))
    if own < min(needed, replicas):
        why = "If brokers lose the newest decisions, and not the transactions of them, rows can be doubled."
        what = f"min.insync.replicas={own}, and that of __transaction_state is {needed}"
        fix = tools.set_of_topic(topic.name, f"min.insync.replicas={min(needed, replicas)}")
        yield Finding("min.insync.replicas", subject, WARNING, what, why, (fix,))


def _unreadable(subject: str, topic: str) -> Finding:
    return Finding(
        "settings",
        subject,
        UNKNOWN,
        f"this user may not read the settings of {topic}",
        "Whether acknowledged rows outlive a broker depends on them.",
        (
            f"# run it again with the right to DESCRIBE_CONFIGS on topic {topic}; 'spark-eos doctor --acls' prints "
            "the command that grants it",
        ),
    )


def _in_sync(subject: str, topic: TopicFacts, fewest: int, alone: bool, tools: Tools) -> Finding:
    needed = int((topic.config or {})["min.insync.replicas"])
    here = min(topic.in_sync)
    check = "min.insync.replicas"
    if here < min(needed, fewest):
        why = "Nothing can be written to it until a broker is back: whoever writes to it waits, and then stops."
        what = f"a partition has {here} replica(s) in sync, and {check} is {needed}"
        return Finding(check, subject, ERROR, what, why, (f"# start the broker(s) that are down: {_away(topic)}",))
    if fewest > 1 and needed < 2:
        why = "A single broker may acknowledge rows while the others are down; if its disk is lost, the rows are lost."
        return Finding(check, subject, ERROR, f"{check}={needed}", why, (tools.set_of_topic(topic.name, f"{check}=2"),))
    if 1 < fewest <= needed:
        why = "No broker may be down: each restart of a broker stops whoever writes to it. Nothing is lost."
        fix = tools.set_of_topic(topic.name, f"{check}={fewest - 1}")
        return Finding(check, subject, WARNING, f"{check}={needed}, of {fewest} replicas", why, (fix,))
    return Finding(check, subject, OK, f"{check}={needed}" + (", of one replica" if alone else ""))


def _away(topic: TopicFacts) -> str:
    short = next(i for i, here in enumerate(topic.in_sync) if here == min(topic.in_sync))
    return f"partition {short} of {topic.name} is on {', '.join(map(str, topic.replicas[short]))}"


def _unclean(subject: str, topic: TopicFacts, tools: Tools) -> Finding:
    check = "unclean.leader.election.enable"
    if (topic.config or {}).get(check) != "true":
        return Finding(check, subject, OK, f"{check}=false")
    why = "A replica without the latest records may become the leader: acknowledged rows and decisions are lost."
    return Finding(check, subject, ERROR, f"{check}=true", why, (tools.set_of_topic(topic.name, f"{check}=false"),))


def more_replicas(topic: TopicFacts, cluster: ClusterFacts) -> str:
    """How to give a topic three replicas, or as many as there are brokers."""
    count = min(_REPLICAS, len(cluster.nodes))
    return f"# give {topic.name} {count} replicas, by kafka-reassign-partitions.sh --generate and --execute"


def of_an_output(topic: TopicFacts, timeout_ms: int, stop_s: float, tools: Tools) -> Iterator[Finding]:
    """Whether rows are kept until consumers have read them, and until the outcome of their transaction is known."""
    if topic.config is None:
        return
    subject = f"output {topic.name}"
    yield from retention("output", topic, timeout_ms, stop_s, tools)
    yield _compaction(subject, topic)
    kind = topic.config.get("message.timestamp.type", "CreateTime")
    what = f"message.timestamp.type={kind}"
    if kind == "LogAppendTime":
        why = "Brokers replace the timestamps of rows: a repaired micro-batch has the time of its repair."
        yield Finding("message.timestamp.type", subject, WARNING, what, why)
    else:
        yield Finding("message.timestamp.type", subject, OK, what)


def retention(role: str, topic: TopicFacts, timeout_ms: int, stop_s: float, tools: Tools) -> Iterator[Finding]:
    """Whether a topic that the query writes keeps rows until the outcome of their transaction is known, and for the
    longest stop. ``role``: of the topic in the query, such as output."""
    if topic.config is not None:
        yield _retention(f"{role} {topic.name}", topic.config, topic.name, timeout_ms, stop_s, tools)


def _retention(
    subject: str, config: Mapping[str, str], name: str, timeout_ms: int, stop_s: float, tools: Tools
) -> Finding:
    kept_ms, kept_bytes = (int(config.get(key, -1)) for key in ("retention.ms", "retention.bytes"))
    if "delete" not in config.get("cleanup.policy", "delete"):
        return Finding("retention", subject, OK, "rows are not deleted by age")
    what = f"rows are deleted after {duration(kept_ms / 1000)} (retention.ms={kept_ms})"
    if 0 <= kept_ms < timeout_ms:
        why = (
            f"A transaction may stay open for {duration(timeout_ms / 1000)}: its rows can be deleted before they are "
            "committed, and then no reader ever sees them."
        )
        fix = tools.set_of_topic(name, f"retention.ms={2 * timeout_ms}")
        return Finding("retention", subject, ERROR, what, why, (fix,))
    if 0 <= kept_ms < stop_s * 1000:
        why = (
            f"After a stop of {duration(stop_s)}, consumers have missed rows; and the outcome of the last micro-batch "
            "can no longer be read from the log if the coordinators have forgotten it (EOS_OUTCOME_GONE)."
        )
        fix = tools.set_of_topic(name, f"retention.ms={ceil(stop_s * 1000)}")
        return Finding("retention", subject, WARNING, what, why, (fix,))
    if kept_bytes >= 0:
        why = (
            "Rows are deleted by size, too: where more than that is written while a transaction is open, or during a "
            f"stop of {duration(stop_s)}, rows are gone before they are committed, or before consumers have read them."
        )
        return Finding("retention", subject, WARNING, f"retention.bytes={kept_bytes} for a partition", why)
    if kept_ms < 0:
        return Finding("retention", subject, OK, "rows are not deleted by age")
    return Finding("retention", subject, OK, f"{what}; rows with older timestamps can be deleted at once")


def _compaction(subject: str, topic: TopicFacts) -> Finding:
    policy = (topic.config or {}).get("cleanup.policy", "delete")
    if "compact" not in policy:
        return Finding("cleanup.policy", subject, OK, f"cleanup.policy={policy}")
    why = (
        "Only the last row of each key is kept, and rows without a key are refused (EOS_ROW_REFUSED). That is right "
        "for a table's changes only."
    )
    return Finding("cleanup.policy", subject, WARNING, f"cleanup.policy={policy}", why)


def sizes(inputs: list[TopicFacts], output: TopicFacts, tools: Tools) -> Iterator[Finding]:
    """Whether the output accepts rows that are as large as those of the inputs."""
    known = [topic for topic in (*inputs, output) if topic.config is not None]
    most = {t.name: int((t.config or {}).get("max.message.bytes", _DEFAULT_MAX_BYTES)) for t in known}
    if output.name not in most:
        return
    own = most[output.name]
    larger = {name: size for name, size in most.items() if size > own}
    subject, what = f"output {output.name}", f"max.message.bytes={own}"
    if not larger:
        yield Finding("max.message.bytes", subject, OK, what)
        return
    name, size = max(larger.items(), key=lambda item: item[1])
    why = f"Rows of {name}, which may have {size} bytes, can be too large here: the query stops (EOS_ROW_TOO_LARGE)."
    fix = tools.set_of_topic(output.name, f"max.message.bytes={size}")
    yield Finding("max.message.bytes", subject, WARNING, f"{what}, less than that of {name}", why, (fix,))


def of_an_input(topic: TopicFacts, stop_s: float, tools: Tools) -> Iterator[Finding]:
    """Whether rows are kept for the longest stop."""
    subject = f"input {topic.name}"
    if topic.config is None:
        return
    kept_ms, kept_bytes = (int(topic.config.get(key, -1)) for key in ("retention.ms", "retention.bytes"))
    if "delete" not in topic.config.get("cleanup.policy", "delete"):
        yield Finding("retention", subject, OK, "rows are not deleted by age")
        return
    if 0 <= kept_ms < stop_s * 1000:
        stop = f"If the query is stopped for {duration(stop_s)}"
        why = f"{stop}, rows are deleted before it reads them (EOS_SOURCE_DATA_LOSS)."
        fix = tools.set_of_topic(topic.name, f"retention.ms={ceil(stop_s * 1000)}")
        what = f"rows are deleted after {duration(kept_ms / 1000)} (retention.ms={kept_ms})"
        yield Finding("retention", subject, ERROR, what, why, (fix,))
    elif kept_bytes >= 0:
        why = f"If the rows of {duration(stop_s)} are larger than that, they are deleted before the query reads them."
        yield Finding("retention", subject, WARNING, f"retention.bytes={kept_bytes} for a partition", why)
    else:
        yield Finding("retention", subject, OK, "rows are kept for the longest stop")
