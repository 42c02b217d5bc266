"""The sink's own checks, as findings: what would stop the query when it starts."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from spark_eos.errors import ConnectionFailed, EosError, Unauthorized, stop
from spark_eos.kafka.admin.topics import allowed_operations, describe_topic, topic_of
from spark_eos.kafka.config.librdkafka import check as check_client
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.ledger.own_topics import check_for_rows
from spark_eos.log import logger
from spark_eos.ops.doctor.findings import Finding, PlannedQuery, Severity, Tools
from spark_eos.sink.brokers import check_brokers
from spark_eos.sink.dead_letters import check_dead_letters
from spark_eos.sink.ledger_topic import check_ledger
from spark_eos.sink.preflight import check_group, check_output, transaction_timeout
from spark_eos.sink.two_phase import check_two_phase


@dataclass(frozen=True)
class Rule:
    """A check that raises, what it is about, and what is said where it does not."""

    check: str
    subject: str
    call: Callable[[], object]
    fine: str


def judged(rule: Rule, asked: PlannedQuery, brokers: int) -> Finding:
    """By the sink's own check. Raises ConnectionFailed where no broker answers any more."""
    try:
        with _without_warnings():
            rule.call()
    except ConnectionFailed as error:
        if error.entry == "EOS_BROKER_UNREACHABLE":
            raise
        return Finding(rule.check, rule.subject, Severity.UNKNOWN, error.message, error.hint, (), error.condition)
    except EosError as error:
        fix = _fix(rule, error, asked, brokers)
        return Finding(rule.check, rule.subject, Severity.ERROR, error.message, error.hint, fix, error.condition)
    return Finding(rule.check, rule.subject, Severity.OK, rule.fine)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """What the checks warn of in a query's log is a finding here."""
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _fix(rule: Rule, error: EosError, asked: PlannedQuery, brokers: int) -> tuple[str, ...]:
    if error.condition == "EOS_TOPIC_MISSING":
        return (Tools(asked.servers).create(rule.subject.rpartition(" ")[2], brokers),)
    if isinstance(error, Unauthorized) or error.entry == "EOS_TWO_PHASE_UNAVAILABLE.refused":
        return (acls_command(asked),)
    return ()


def acls_command(asked: PlannedQuery) -> str:
    """The command that prints what this query needs."""
    options = asked.options
    before = {
        "--bootstrap-servers": asked.servers,
        "--ledger-topic": options.ledger_topic,
        "--prefix": options.prefix,
    }
    words = ["spark-eos", *(word for pair in before.items() for word in pair)]
    words += ["doctor", "--acls", "--principal", asked.principal]
    words += [word for topic in asked.inputs for word in ("--input", topic)]
    words += [word for topic in asked.outputs for word in ("--output", topic)]
    given = {"--group": options.group_id, "--dead-letters": options.dead_letters}
    words += [word for flag, value in given.items() if value for word in (flag, value)]
    return shlex.join([*words, *(["--two-phase"] if options.two_phase else [])])


def check_input(kafka: KafkaProperties, topic: str) -> None:
    """Raise TopicError where the topic is missing or not for rows, or this user may not read it."""
    client = broker_client(kafka)
    described = describe_topic(client, topic)
    check_for_rows(client, {topic: topic_of(described)})
    allowed = allowed_operations(described)
    if allowed is not None and "READ" not in allowed:
        raise stop("EOS_UNAUTHORIZED.topic_input", topic=topic, bootstrap_servers=kafka.bootstrap_servers)


def rules(asked: PlannedQuery, broker: dict[str, str] | None, *, ledger: bool) -> list[Rule]:
    """All that can be checked without a trial; ``ledger``: whether there is a ledger topic."""
    options = asked.options
    kafka = options.kafka
    found = [Rule("client", "query", lambda: check_client(kafka, "producer"), "the client's properties are right")]
    for topic in asked.inputs:
        found.append(Rule("rights", f"input {topic}", partial(check_input, kafka, topic), "it may be read"))
    for topic in asked.outputs:
        fine = "it may be written and read"
        found.append(Rule("rights", f"output {topic}", partial(check_output, kafka, topic), fine))
    if options.dead_letters is not None:
        letters = options.dead_letters
        subject, fine = f"dead letters {letters}", "it takes what other topics refuse"
        found.append(Rule("rights", subject, lambda: check_output(kafka, letters), "it may be written and read"))
        found.append(Rule("dead letters", subject, lambda: check_dead_letters(options), fine))
    if ledger:
        subject = f"ledger {options.ledger_topic}"
        fine = "compacted, in sync, and it may be read and written"
        found.append(Rule("ledger", subject, lambda: check_ledger(kafka, options.ledger_topic, broker), fine))
    fine = "the brokers reject late batches"
    found.append(Rule("late batches", "brokers", lambda: check_brokers(options), fine))
    fine = "the brokers allow a transaction of that length"
    found.append(Rule("transaction.max.timeout.ms", "query", lambda: transaction_timeout(options, broker), fine))
    if options.group_id is not None:
        group = options.group_id
        fine = "nobody else is in it, and its offsets may be committed"
        found.append(Rule("group", f"group {group}", lambda: check_group(kafka, group), fine))
    return found


def two_phase_rule(asked: PlannedQuery) -> Rule:
    """It takes a transactional id, so that it is part of the trial."""
    return Rule("two-phase commit", "brokers", lambda: check_two_phase(asked.options), "transactions need not expire")
