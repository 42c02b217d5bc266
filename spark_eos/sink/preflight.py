"""Checks of the driver before any task runs, and the facts from them that tasks need."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from spark_eos.base.caches import log_once, ttl_cache
from spark_eos.base.log import logger
from spark_eos.base.retry import retrying
from spark_eos.checkpoint.files import Checkpoint
from spark_eos.errors import CheckpointError, EosError, invalid_option, stop
from spark_eos.kafka.admin.configs import BrokerConfig, broker_config, topic_config
from spark_eos.kafka.admin.groups import ConsumerGroup
from spark_eos.kafka.admin.topics import allowed_operations, cluster_id, describe_topic, describe_topics, topic_of
from spark_eos.kafka.codes import UNAUTHORIZED
from spark_eos.kafka.errors import Cause, init_error, unauthorized
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.transactions import NEVER_MS
from spark_eos.ledger.ledger import KafkaLedger
from spark_eos.ledger.own_topics import check_for_rows
from spark_eos.ledger.owners import Cluster, Transaction, decided_elsewhere
from spark_eos.options.parse import SinkOptions
from spark_eos.protocol.checks import check_halts, end_offsets_hint
from spark_eos.protocol.head import Head
from spark_eos.protocol.names import ledger_name
from spark_eos.sink.brokers import check_brokers
from spark_eos.sink.dead_letters import check_dead_letters
from spark_eos.sink.ledger_topic import ledger_partitions

KAFKA_DEFAULT_MAX_TIMEOUT_MS = 900_000
#: Seconds for which a process reuses the result of a check, also for a query that is started again meanwhile.
FRESH_S = 30.0

_LOOK_UP_S = 4.0
#: Seconds within which another query carries out a decision, if it runs.
_UNDER_WAY_S = 5.0
_NOT_READABLE = ("EOS_CHECKPOINT_STORE", "EOS_CHECKPOINT_UNREACHABLE")
#: The operations of the sink on an output topic, and why.
_NEEDED = {
    "WRITE": "the rows are written there",
    "READ": "READ is needed to find the outcome of transactions that the coordinator has forgotten",
}


@dataclass(frozen=True)
class Facts:
    """Results of the checks for tasks: a timeout in milliseconds, the ledger's number of partitions, the Spark
    application that runs the query, and the dead-letter topic's number of partitions, 0 without one."""

    transaction_timeout_ms: int
    ledger_partitions: int
    driver: str
    dead_letter_partitions: int = 0


def this_driver() -> str:
    """Return an id of the Spark application whose driver started this Python process; empty outside of one.

    Spark passes the folders of the block manager to all Python processes of its driver. Their names differ between
    applications.
    """
    folders = os.environ.get("SPARK_LOCAL_DIRS", "")
    return hashlib.sha256(folders.encode()).hexdigest()[:16] if folders else ""


def preflight(client: BrokerClient, options: SinkOptions, *, dated: bool = False) -> Facts:
    """Check everything that can be checked on the driver. Raises EosError. Writes nothing, but creates a missing
    ledger. ``dated``: whether rows are given timestamps, which tasks compare with the topic's retention.

    Called for each micro-batch: results of the cluster and of a query are used for `FRESH_S`. Another query, with a new
    checkpoint at the same location, is checked however soon it begins.
    """
    facts = _of_cluster(client, options, dated=dated)
    if options.checkpoint_location and _is_readable(options):
        with _going_on_unread(options):
            _check_checkpoint(client, options, facts, _checkpoint(options).query_id())
    return facts


@ttl_cache(FRESH_S, maxsize=16)
def _of_cluster(client: BrokerClient, options: SinkOptions, *, dated: bool) -> Facts:
    broker, dead_letter_partitions = check_sink_cluster(client, options, dated=dated)
    partitions = ledger_partitions(client, options.ledger_topic, broker)
    return Facts(transaction_timeout(options, broker), partitions, this_driver(), dead_letter_partitions)


def check_sink_cluster(client: BrokerClient, options: SinkOptions, *, dated: bool = False) -> tuple[BrokerConfig, int]:
    """Check the options against the brokers, the topics of rows and dead letters, and the group. Writes nothing.
    Returns the configuration of a broker, and the dead-letter topic's number of partitions, 0 without one. Raises
    EosError."""
    if options.topic is not None:
        check_output(client, options.topic)
        if dated:
            topic_config(client, options.topic)  # this user may read it
    if options.dead_letters is not None:
        check_output(client, options.dead_letters)
    check_brokers(client, two_phase=options.two_phase)
    broker = broker_config(client)
    transaction_timeout(options, broker)
    dead_letter_partitions = check_dead_letters(client, options)
    if options.group_id:
        check_group(client, options.group_id)
    return broker, dead_letter_partitions


def _checkpoint(options: SinkOptions) -> Checkpoint:
    return Checkpoint(options.checkpoint_location or "", options.storage)


@ttl_cache(FRESH_S, maxsize=16)
def _is_readable(options: SinkOptions) -> bool:
    """Return whether the store of the checkpoint can be read; cached, so that not every micro-batch waits for it."""
    with _going_on_unread(options):
        _checkpoint(options).query_id()
        return True
    return False


@contextmanager
def _going_on_unread(options: SinkOptions) -> Iterator[None]:
    """Only log that the checkpoint cannot be read, where it is not needed."""
    try:
        yield
    except CheckpointError as error:
        if options.group_id or error.condition not in _NOT_READABLE:
            raise
        log_once(
            logging.WARNING,
            "%s The query continues; its first task checks the checkpoint against the ledger. But "
            "'offsets.group.id' cannot be used, and transactions that other queries have left open on its topic "
            "are not looked for.",
            error.message,
        )


def check_output(client: BrokerClient, topic: str) -> None:
    """Raise TopicError where the topic is missing or not for rows, and Unauthorized where this user lacks a right that
    the sink needs on it."""
    described = describe_topic(client, topic)
    allowed = allowed_operations(described)
    for operation, why in _NEEDED.items():
        if allowed is not None and operation not in allowed:
            output = f"{operation} the output topic {topic} on {client.bootstrap_servers}"
            raise unauthorized(output, f"READ, WRITE and DESCRIBE on it; {why}", topic=topic)
    check_for_rows(client, {topic: topic_of(described)})


def transaction_timeout(options: SinkOptions, broker: BrokerConfig) -> int:
    """Return how long a transaction of a task may live, in ms. Raises OptionError.

    Where the user may not read the brokers' limit, InitProducerId refuses a longer one. The limit is for transactions
    that expire, as one with `NEVER_MS` does not, also without two-phase commit.
    """
    most = None if broker is None else int(broker["transaction.max.timeout.ms"])
    chosen = options.transaction_timeout_ms
    if most is not None and chosen is not None and chosen > most and not options.two_phase:
        raise stop("EOS_TRANSACTION_TIMEOUT_TOO_LONG", timeout_ms=chosen, most=f", which is {most}")
    if chosen == NEVER_MS and not options.two_phase:
        raise invalid_option("transaction.timeout.ms", str(chosen), "less: no timeout ends such a transaction")
    return chosen or (None if most == NEVER_MS else most) or KAFKA_DEFAULT_MAX_TIMEOUT_MS


def check_group(client: BrokerClient, group: str) -> None:
    """Raise KafkaError where the group has members, or this user may not commit its offsets."""
    otherwise = "or set another 'offsets.group.id': the sink would overwrite their offsets"
    ConsumerGroup(client, group).check_inactive(otherwise, to_commit=True)


def _check_same_cluster(client: BrokerClient, group: str, checkpoint: Checkpoint, batch: int, *, is_new: bool) -> None:
    """Check that the group does not get the offsets of another cluster's topics.

    Where the offset log does not have the cluster of a topic, the topic's id shows it, if the group ``is_new`` to the
    query: later, another id is that of a topic that was created anew.
    """
    here, noted = cluster_id(client), checkpoint.cluster_ids(batch)
    foreign = {topic for topic, cluster in noted.items() if here and cluster != here}
    if is_new:
        ids = checkpoint.topic_ids(batch)
        unsure = [topic for topic in ids if not here or topic not in noted]
        there = describe_topics(client, unsure, missing_ok=True) if unsure else {}
        foreign |= {name for name, topic in there.items() if ids[name] != topic.id}
    if foreign:
        raise stop(
            "EOS_OPTION_CONFLICT.group_of_other_cluster",
            group=group,
            why=(
                f"the query reads {', '.join(sorted(foreign))} on another cluster than {client.bootstrap_servers}, "
                "to which it writes"
            ),
        )


def _check_ids(client: BrokerClient, name: str) -> None:
    """Raise an error if this user may not even look up the coordinator of one of the query's transactional ids, and so
    has no rights on any."""
    _, code = client.coordinator(name, _LOOK_UP_S)
    if code in UNAUTHORIZED:
        raise init_error(name, 0, Cause.from_code(code))


def _group_of_both(group: str) -> EosError:
    return stop("EOS_OPTION_CONFLICT.group_of_both", group=group)


def _warn_of_begin(query: str, begin: int) -> None:
    """Warn once in an application, before its first run: from then on the head is the application's own. So an
    application whose own start needed the option does not log this."""
    logger.warning(
        "query=%s is in its ledger already: option 'ledger.begin' (%d) has no effect any more, and can be removed.",
        query,
        begin,
    )


@ttl_cache(FRESH_S, maxsize=16)
def _check_checkpoint(client: BrokerClient, options: SinkOptions, facts: Facts, query: str | None) -> None:
    checkpoint = _checkpoint(options)
    if query is None:
        raise checkpoint.elsewhere()
    planned, done = checkpoint.last_batch("offsets"), checkpoint.last_batch("commits")
    if planned is not None and options.group_id:
        checkpoint.kafka_offsets(planned)
        if options.group_id in checkpoint.source_groups(planned):
            raise _group_of_both(options.group_id)
    _check_ids(client, ledger_name(options.prefix, query))
    ledger = KafkaLedger(client, options.ledger_topic, facts.ledger_partitions, options.prefix, query)
    head = ledger.read()
    check_halts(head, options.topic)
    if planned is not None and options.group_id:
        known = head is not None and head.decision is not None and head.decision.group == options.group_id
        _check_same_cluster(client, options.group_id, checkpoint, planned, is_new=done is None or not known)
    if head is not None and options.ledger_begin is not None and head.driver != facts.driver:
        _warn_of_begin(query, options.ledger_begin)
    if done is None:
        check_predecessors(client, options, query)
        return
    _check_logs(checkpoint, planned, done, head)
    # As `Status.HEAD_MISSING` says, before any task.
    if head is None and options.ledger_begin != done + 1:
        raise stop("EOS_LEDGER_HEAD_MISSING", batch=done + 1)


def _check_logs(checkpoint: Checkpoint, planned: int | None, done: int, head: Head | None) -> None:
    """Check that the planned micro-batch comes after the done one, which ended where it was decided to, as far as the
    head says. A planned one before the last decision is left to the first task, whose error says where that ended."""
    decision = None if head is None else head.decision
    if planned is not None and planned <= done:
        if decision is None or decision.batch <= planned:
            raise checkpoint.damaged(
                f"offsets/{planned}",
                f"micro-batch {done} is in 'commits'. If another start of the query runs on this checkpoint, that one "
                "has written it, and nothing is wrong with the file. Otherwise the file that was there was lost, and "
                "Spark has planned the micro-batch anew: remove this one and its checksum before the query is started "
                "again, as it could go on behind it",
            )
        return
    if decision is None or decision.batch != done or decision.offsets is None:
        return
    if checkpoint.kafka_offsets(done) != decision.offsets:
        raise checkpoint.damaged(
            f"offsets/{done}",
            "it does not end where the micro-batch was decided to end: the file was lost and planned again, or belongs "
            f"to another checkpoint. By the ledger, {end_offsets_hint(decision)}",
        )


def check_predecessors(client: BrokerClient, options: SinkOptions, query: str | None) -> None:
    """Raise ProtocolStop (EOS_TWO_PHASE_UNSETTLED) where the decision of another query on the output topic is not
    carried out, or may not be, and no timeout will end it: only that query's next start, or an operator, will.

    A query with a new checkpoint goes on from offsets that were published with such a decision.
    """
    if options.topic is None:
        return
    cluster = Cluster(client, options.ledger_topic)  # under any prefix
    left: list[Transaction] = []
    for _ in retrying(_UNDER_WAY_S):  # a query that is alive commits within a moment
        left = decided_elsewhere(cluster, options.topic, query)
        if not left:
            return
    raise _unsettled(options.topic, [t for t in left if t.decided] or left)


def _unsettled(topic: str, left: list[Transaction]) -> EosError:
    """Return the error of transactions that are all decided, or all of queries whose head could not be read."""
    queries = sorted({t.query for t in left})
    parameters = {"queries": queries, "count": len(left), "topic": topic, "query_ids": ", ".join(queries)}
    if left[0].decided:
        return stop("EOS_TWO_PHASE_UNSETTLED.decided", **parameters)
    return stop("EOS_TWO_PHASE_UNSETTLED.unread", why=left[0].problem, **parameters)
