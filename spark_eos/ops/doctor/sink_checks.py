"""The sink's own checks, as findings: each would stop the query when it starts. None of them writes a row."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from spark_eos.base.log import logger
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.errors import ConnectionFailed, EosError, Unauthorized
from spark_eos.kafka.admin.topics import allowed_operations, describe_topic, topic_of
from spark_eos.kafka.config.librdkafka import check as check_client
from spark_eos.kafka.errors import unauthorized
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.requests.init_producer_id import init_producer_id
from spark_eos.ledger.own_topics import check_for_rows
from spark_eos.ops.doctor.brokers import ClusterFacts
from spark_eos.ops.doctor.findings import ERROR, OK, UNKNOWN, Finding, PlannedQuery, Tools
from spark_eos.ops.table_state import in_words, reference_of
from spark_eos.protocol.names import doctor_name
from spark_eos.sink.brokers import check_brokers
from spark_eos.sink.dead_letters import check_dead_letters
from spark_eos.sink.ledger_topic import check_ledger
from spark_eos.sink.preflight import check_group, check_output, transaction_timeout
from spark_eos.sink.two_phase import check_two_phase

#: The timeout of transactions of the id that is initialized, none of which is begun.
_ID_MS = 10_000
_UNREADABLE = "A query goes on all the same, and has a warning in its log."


class SinkChecks:
    """The checks of a query by its sink. Raises ConnectionFailed where no broker answers any more."""

    def __init__(self, query: PlannedQuery, cluster: ClusterFacts) -> None:
        self._query, self._cluster, self._client = query, cluster, query.client

    def topics(self) -> Iterator[Finding]:
        """Yield the checks of client properties, topics and the consumer group."""
        query, options, client = self._query, self._query.options, self._client
        kind = "producer" if query.writes_topics else "consumer"
        yield self._judged("client", "query", "the client properties are valid", check_client, options.kafka, kind)
        for topic in query.inputs:
            yield self._judged("rights", f"input {topic}", "it may be read", check_input, client, topic)
        for topic in query.outputs:
            yield self._judged("rights", f"output {topic}", "it may be written and read", check_output, client, topic)
        if options.dead_letters is not None:
            topic, subject = options.dead_letters, f"dead letters {options.dead_letters}"
            yield self._judged("rights", subject, "it may be written and read", check_output, client, topic)
            fine = "it accepts rows that other topics refuse"
            yield self._judged("dead letters", subject, fine, check_dead_letters, client, options)
        if options.group_id is not None:
            group, fine = options.group_id, "it has no other members, and its offsets may be committed"
            yield self._judged("group", f"group {group}", fine, check_group, client, group)

    def ledger(self) -> Finding:
        """Return the check of a ledger topic that exists."""
        topic, fine = self._query.options.ledger_topic, "it is compacted and in sync, and may be read and written"
        broker = self._cluster.broker
        return self._judged("ledger", f"ledger {topic}", fine, check_ledger, self._client, topic, broker)

    def transactions(self) -> Iterator[Finding]:
        """Yield the checks of transactions and their ids. Brokers do not report whether this user may use an id, so one
        is initialized that belongs to no query."""
        options, client, broker = self._query.options, self._client, self._cluster.broker

        def late_batches() -> None:
            check_brokers(client, two_phase=options.two_phase)

        # A producer that is fenced by the end of its transaction has no late batches.
        unsure = "" if broker or self._cluster.fencing else "whether the brokers reject late batches"
        yield self._judged("late batches", "brokers", "the brokers reject late batches", late_batches, unsure=unsure)
        if broker is not None:  # else only a transaction would show it: `readable` reports that this is not known
            check, fine = "transaction.max.timeout.ms", "the brokers allow transactions of this length"
            yield self._judged(check, "query", fine, transaction_timeout, options, broker)
        ids, name = f"transactional ids {options.prefix}-…", doctor_name(options.prefix)
        yield self._judged("rights", ids, "this user may use them", init_producer_id, client, name, _ID_MS)
        if options.two_phase:
            fine = "transactions need not expire"
            unsure = "" if broker else "whether every broker allows transactions that do not expire"
            arguments = (check_two_phase, client, options.prefix)
            yield self._judged("two-phase commit", "brokers", fine, *arguments, unsure=unsure)

    def _judged(
        self, check: str, subject: str, fine: str, call: Callable[..., object], *arguments: object, unsure: str = ""
    ) -> Finding:
        """Return the finding of a check that raises EosError where it fails. ``fine``: the finding where it does not;
        ``unsure``: why it may fail all the same, as settings that it needs cannot be read."""
        try:
            with _without_warnings():
                call(*arguments)
        except ConnectionFailed as error:
            if error.condition != "EOS_KAFKA_UNREACHABLE":
                raise
            return Finding(check, subject, UNKNOWN, error.message, error.hint, (), error.condition)
        except EosError as error:
            return Finding(check, subject, ERROR, error.message, error.hint, self._fix(subject, error), error.condition)
        return Finding(check, subject, UNKNOWN, unsure, _UNREADABLE) if unsure else Finding(check, subject, OK, fine)

    def _fix(self, subject: str, error: EosError) -> tuple[str, ...]:
        if error.condition == "EOS_TOPIC_MISSING":
            return (Tools(self._query.servers).create(subject.rpartition(" ")[2], len(self._cluster.nodes)),)
        if isinstance(error, Unauthorized) or error.parameters.get("refused"):
            return (acls_command(self._query),)
        return ()


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Suppress the warnings that checks log for a query; the doctor has findings instead."""
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def acls_command(query: PlannedQuery) -> str:
    """Return the command that prints the rights that this query needs."""
    options = query.options
    before = {"--bootstrap-servers": query.servers}
    if query.writes_topics:
        before |= {"--ledger-topic": options.ledger_topic, "--prefix": options.prefix}
    outputs = [*query.outputs, *(f"{sink['format']}:{sink.get('path') or sink['table']}" for sink in query.tables)]
    given = [("--principal", query.principal), *(("--input", topic) for topic in query.inputs)]
    given += [("--output", output) for output in outputs]
    given += [("--group", options.group_id or ""), ("--dead-letters", options.dead_letters or "")]
    words = ["spark-eos", *(word for pair in before.items() for word in pair), "doctor", "--acls"]
    words += [word for flag, value in given if value for word in (flag, value)]
    return shlex.join([*words, *(["--two-phase"] if options.two_phase else [])])


def check_input(client: BrokerClient, topic: str) -> None:
    """Raise TopicError where the topic is missing or not for rows, or this user may not read it."""
    described = describe_topic(client, topic)
    check_for_rows(client, {topic: topic_of(described)})
    allowed = allowed_operations(described)
    if allowed is not None and "READ" not in allowed:
        raise unauthorized(f"READ the input topic {topic} on {client.bootstrap_servers}", "READ and DESCRIBE on it")


def check_table(sink: Mapping[str, str], settings: HadoopSettings) -> Finding:
    """Judge whether a table exists, or can be created. ``sink``: the query's options that name it; ``settings``: see
    `spark_eos.ops.table_state.reference_of`. Does not try to write it."""
    subject = f"output {in_words(sink)}"
    try:
        reference = reference_of(sink, settings)
        columns = reference.columns()
        if columns is None:
            reference.check_new(None)
    except EosError as error:
        severity = UNKNOWN if error.restart_helps or error.condition == "EOS_NOT_INSTALLED" else ERROR
        return Finding("table", subject, severity, error.message, error.hint, (), error.condition)
    what = "it does not exist yet; the first start of a query creates it"
    return Finding(
        "table", subject, OK, what if columns is None else f"it is there, with {len(columns.schema)} column(s)"
    )
