"""The sink's own checks, as findings: what would stop the query when it starts."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from spark_eos.base.log import logger
from spark_eos.errors import ConnectionFailed, EosError, Unauthorized
from spark_eos.kafka.admin.topics import allowed_operations, describe_topic, topic_of
from spark_eos.kafka.config.librdkafka import ClientKind
from spark_eos.kafka.config.librdkafka import check as check_client
from spark_eos.kafka.errors import unauthorized
from spark_eos.kafka.net.client import BrokerClient, broker_client
from spark_eos.kafka.requests.init_producer_id import init_producer_id
from spark_eos.ledger.own_topics import check_for_rows
from spark_eos.ops.doctor.findings import Finding, PlannedQuery, Severity, Tools
from spark_eos.ops.doctor.tables import as_argument
from spark_eos.protocol.names import doctor_name
from spark_eos.sink.brokers import check_brokers
from spark_eos.sink.dead_letters import check_dead_letters
from spark_eos.sink.ledger_topic import check_ledger
from spark_eos.sink.preflight import check_group, check_output, transaction_timeout
from spark_eos.sink.two_phase import check_two_phase

#: The timeout of transactions of the id that is initialized, none of which is begun.
_ID_MS = 10_000
_UNREADABLE = "A query goes on all the same, and has a warning in its log."


@dataclass(frozen=True)
class Rule:
    """One of the sink's checks. ``call``: raises EosError where it fails; ``fine``: the finding where it does not;
    ``unsure``: why it may fail all the same, as settings that it needs cannot be read."""

    check: str
    subject: str
    call: Callable[[], object]
    fine: str
    unsure: str = ""


def judged(rule: Rule, query: PlannedQuery, brokers: int) -> Finding:
    """The finding of a rule. Raises ConnectionFailed where no broker answers any more."""
    try:
        with _without_warnings():
            rule.call()
    except ConnectionFailed as error:
        if error.condition != "EOS_KAFKA_UNREACHABLE":
            raise
        return Finding(rule.check, rule.subject, Severity.UNKNOWN, error.message, error.hint, (), error.condition)
    except EosError as error:
        fix = _fix(rule, error, query, brokers)
        return Finding(rule.check, rule.subject, Severity.ERROR, error.message, error.hint, fix, error.condition)
    if rule.unsure:
        return Finding(rule.check, rule.subject, Severity.UNKNOWN, rule.unsure, _UNREADABLE)
    return Finding(rule.check, rule.subject, Severity.OK, rule.fine)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Suppress the warnings that checks log for a query; the doctor has findings instead."""
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _fix(rule: Rule, error: EosError, query: PlannedQuery, brokers: int) -> tuple[str, ...]:
    if error.condition == "EOS_TOPIC_MISSING":
        return (Tools(query.servers).create(rule.subject.rpartition(" ")[2], brokers),)
    if isinstance(error, Unauthorized) or error.parameters.get("refused"):
        return (acls_command(query),)
    return ()


def acls_command(query: PlannedQuery) -> str:
    """The command that prints the rights that this query needs."""
    options, before = query.options, {"--bootstrap-servers": query.servers}
    if query.writes_topics:
        before |= {"--ledger-topic": options.ledger_topic, "--prefix": options.prefix}
    words = ["spark-eos", *(word for pair in before.items() for word in pair)]
    words += ["doctor", "--acls", "--principal", query.principal]
    words += [word for topic in query.inputs for word in ("--input", topic)]
    outputs = [*query.outputs, *map(as_argument, query.tables)]
    words += [word for output in outputs for word in ("--output", output)]
    given = {"--group": options.group_id, "--dead-letters": options.dead_letters}
    words += [word for flag, value in given.items() if value for word in (flag, value)]
    return shlex.join([*words, *(["--two-phase"] if options.two_phase else [])])


def check_input(client: BrokerClient, topic: str) -> None:
    """Raise TopicError where the topic is missing or not for rows, or this user may not read it."""
    described = describe_topic(client, topic)
    check_for_rows(client, {topic: topic_of(described)})
    allowed = allowed_operations(described)
    if allowed is not None and "READ" not in allowed:
        raise unauthorized(f"READ the input topic {topic} on {client.bootstrap_servers}", "READ and DESCRIBE on it")


def rules(query: PlannedQuery) -> list[Rule]:
    """The checks of properties, topics and group."""
    options, client = query.options, broker_client(query.options.kafka)
    kind: ClientKind = "producer" if query.writes_topics else "consumer"
    found = [Rule("client", "query", lambda: check_client(options.kafka, kind), "the client properties are valid")]
    for topic in query.inputs:
        found.append(Rule("rights", f"input {topic}", partial(check_input, client, topic), "it may be read"))
    for topic in query.outputs:
        fine = "it may be written and read"
        found.append(Rule("rights", f"output {topic}", partial(check_output, client, topic), fine))
    if options.dead_letters is not None:
        letters = options.dead_letters
        subject, fine = f"dead letters {letters}", "it accepts rows that other topics refuse"
        found.append(Rule("rights", subject, lambda: check_output(client, letters), "it may be written and read"))
        found.append(Rule("dead letters", subject, lambda: check_dead_letters(client, options), fine))
    if options.group_id is not None:
        group = options.group_id
        fine = "it has no other members, and its offsets may be committed"
        found.append(Rule("group", f"group {group}", lambda: check_group(client, group), fine))
    return found


def ledger_rule(query: PlannedQuery, broker: dict[str, str] | None) -> Rule:
    """The check of a ledger topic that exists. ``broker``: see `transaction_rules`."""
    ledger = query.options.ledger_topic
    client, fine = broker_client(query.options.kafka), "it is compacted and in sync, and may be read and written"
    return Rule("ledger", f"ledger {ledger}", lambda: check_ledger(client, ledger, broker), fine)


def transaction_rules(query: PlannedQuery, broker: dict[str, str] | None, *, fencing: bool) -> list[Rule]:
    """The checks of transactions and their ids. Brokers do not report whether this user may use an id, so that one is
    initialized, which is that of no query. ``broker``: the settings of a broker, None where this user may not read
    them; ``fencing``: whether the end of a transaction fences its producer, so that no batch comes late."""
    options = query.options
    client, fine = broker_client(options.kafka), "the brokers reject late batches"
    unsure = "whether the brokers reject late batches" if broker is None and not fencing else ""
    found = [Rule("late batches", "brokers", lambda: check_brokers(client, two_phase=options.two_phase), fine, unsure)]
    if broker is not None:  # else only a transaction would tell: `readable` says that this is not known
        fine = "the brokers allow transactions of this length"
        found.append(Rule("transaction.max.timeout.ms", "query", lambda: transaction_timeout(options, broker), fine))
    ids, name = f"transactional ids {options.prefix}-…", doctor_name(options.prefix)
    found.append(Rule("rights", ids, lambda: init_producer_id(client, name, _ID_MS), "this user may use them"))
    if options.two_phase:
        fine = "transactions need not expire"
        unsure = "whether every broker allows transactions that do not expire" if broker is None else ""
        check = partial(check_two_phase, client, options.prefix)
        found.append(Rule("two-phase commit", "brokers", check, fine, unsure))
    return found
