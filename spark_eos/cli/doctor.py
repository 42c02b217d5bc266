"""``spark-eos doctor``."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from spark_eos.cli.acls import print_needed
from spark_eos.cli.options import (
    Format,
    Group,
    Kafka,
    KafkaFile,
    LedgerTopic,
    Output,
    Prefix,
    Servers,
    client,
    tell,
    topic_option,
)

if TYPE_CHECKING:
    from spark_eos.kafka.config.properties import KafkaProperties
    from spark_eos.ops.acls import Query
    from spark_eos.ops.answer import Answer
    from spark_eos.ops.doctor.finding import Severity

_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86400}


def seconds(text: str) -> float:
    """From ``90s``, ``30min``, ``12h`` or ``7d``. Raises BadParameter."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|min|h|d)", text)
    if found is None:
        raise typer.BadParameter(f"'{text}' is not a time such as 90s, 30min, 12h or 7d")
    return float(found[1]) * _UNITS[found[2]]


Inputs = Annotated[list[str] | None, topic_option("--input", "a topic that the query reads (repeat)")]
Outputs = Annotated[list[str] | None, topic_option("--output", "a topic that it writes (repeat)")]
DeadLettersTopic = Annotated[str | None, topic_option("--dead-letters", "deadLetters.topic")]
NotesTopic = Annotated[str | None, topic_option("--notes", "the notes of an ingest, for --acls")]
Timeout = Annotated[
    int | None, typer.Option("--timeout", min=1, metavar="MS", help="transaction.timeout.ms", show_default=False)
]
TwoPhase = Annotated[bool, typer.Option("--two-phase", help="transaction.two.phase.commit is true")]
LongestStop = Annotated[
    str, typer.Option("--longest-stop", metavar="TIME", help="for how long the query may be stopped")
]
WithTrial = Annotated[
    bool, typer.Option("--trial/--no-trial", help="take transactional ids, and abort an empty transaction")
]
AclsOnly = Annotated[bool, typer.Option("--acls", help="only print the least rights, as commands")]
Principal = Annotated[str, typer.Option("--principal", metavar="TYPE:NAME", help="who runs the query, for these")]


def doctor(
    servers: Servers,
    inputs: Inputs = None,
    outputs: Outputs = None,
    group: Group = None,
    dead_letters: DeadLettersTopic = None,
    notes: NotesTopic = None,
    timeout_ms: Timeout = None,
    two_phase: TwoPhase = False,
    longest_stop: LongestStop = "7d",
    trial: WithTrial = True,
    acls_only: AclsOnly = False,
    principal: Principal = "User:NAME",
    kafka: Kafka = None,
    kafka_file: KafkaFile = None,
    ledger_topic: LedgerTopic = None,
    prefix: Prefix = None,
    output: Output = Format.TEXT,
) -> int:
    """Check a cluster, its topics and a user for exactly-once.

    Each finding says how rows could be lost or doubled, and which command fixes it. No setting is changed; what is
    tried is named and cleaned up. Exit code: 0 if all is well, 1 if something is wrong, 2 if something could not be
    determined.
    """
    from spark_eos.ops.acls import Query
    from spark_eos.options.table import DEFAULT_LEDGER_TOPIC, DEFAULT_PREFIX

    query = Query(
        inputs=inputs or [],
        outputs=outputs or [],
        group=group,
        ledger=ledger_topic or DEFAULT_LEDGER_TOPIC,
        prefix=prefix or DEFAULT_PREFIX,
        two_phase=two_phase,
        dead_letters=dead_letters,
        notes=notes,
    )
    if acls_only:
        return print_needed(query, principal, servers, output)
    stop_s = seconds(longest_stop)
    return tell(output, lambda: _visit(query, client(servers, kafka, kafka_file), timeout_ms, stop_s, trial, principal))


def _visit(
    query: Query, kafka: KafkaProperties, timeout_ms: int | None, stop_s: float, trial: bool, principal: str
) -> Answer:
    from spark_eos.ops.doctor.command import doctor as visit
    from spark_eos.ops.doctor.finding import PlannedQuery
    from spark_eos.options.parse import SinkOptions

    options = SinkOptions(
        kafka,
        topic=query.outputs[0] if query.outputs else None,
        dead_letters=query.dead_letters,
        prefix=query.prefix,
        transaction_timeout_ms=timeout_ms,
        two_phase=query.two_phase,
        ledger_topic=query.ledger,
        group_id=query.group,
    )
    asked = PlannedQuery(options, query.inputs, query.outputs, stop_s, trial, principal)
    return visit(asked, _paint if sys.stdout.isatty() else lambda severity, text: text)


def _paint(severity: Severity, text: str) -> str:
    return typer.style(text, fg={"error": "red", "unknown": "magenta", "warning": "yellow", "ok": "green"}[severity])
