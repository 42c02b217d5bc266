"""``spark-eos doctor``."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from spark_eos.cli import acls
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
    from spark_eos.ops.answer import Answer
    from spark_eos.ops.doctor.finding import Severity

_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86400}


def seconds(text: str) -> float:
    """From ``90s``, ``30min``, ``12h`` or ``7d``. Raises BadParameter."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|min|h|d)", text)
    if found is None:
        raise typer.BadParameter(f"'{text}' is not a time such as 90s, 30min, 12h or 7d")
    return float(found[1]) * _UNITS[found[2]]


def doctor(
    servers: Servers,
    inputs: Annotated[list[str] | None, topic_option("--input", "a topic that the query reads (repeat)")] = None,
    outputs: Annotated[list[str] | None, topic_option("--output", "a topic that it writes (repeat)")] = None,
    group: Group = None,
    dead_letters: Annotated[str | None, topic_option("--dead-letters", "deadLetters.topic")] = None,
    notes: Annotated[str | None, topic_option("--notes", "the notes of an ingest, for --acls")] = None,
    timeout_ms: Annotated[
        int | None,
        typer.Option("--timeout", min=1, metavar="MS", help="transaction.timeout.ms", show_default=False),
    ] = None,
    two_phase: Annotated[bool, typer.Option("--two-phase", help="transaction.two.phase.commit is true")] = False,
    longest_stop: Annotated[
        str, typer.Option("--longest-stop", metavar="TIME", help="for how long the query may be stopped")
    ] = "7d",
    trial: Annotated[
        bool, typer.Option("--trial/--no-trial", help="take transactional ids, and abort an empty transaction")
    ] = True,
    acls_only: Annotated[bool, typer.Option("--acls", help="only print the least rights, as commands")] = False,
    principal: Annotated[
        str, typer.Option("--principal", metavar="TYPE:NAME", help="who runs the query, for these")
    ] = "User:NAME",
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
    if acls_only:
        return acls.acls(
            principal,
            servers,
            inputs,
            outputs,
            group,
            ledger_topic=ledger_topic,
            dead_letters=dead_letters,
            notes=notes,
            prefix=prefix,
            two_phase=two_phase,
            output=output,
        )
    from spark_eos.ops.doctor.command import doctor as visit
    from spark_eos.ops.doctor.finding import PlannedQuery
    from spark_eos.options.parse import SinkOptions
    from spark_eos.options.table import DEFAULT_LEDGER_TOPIC, DEFAULT_PREFIX

    stop_s = seconds(longest_stop)

    def answering() -> Answer:
        options = SinkOptions(
            client(servers, kafka, kafka_file),
            topic=outputs[0] if outputs else None,
            dead_letters=dead_letters,
            prefix=prefix or DEFAULT_PREFIX,
            transaction_timeout_ms=timeout_ms,
            two_phase=two_phase,
            ledger_topic=ledger_topic or DEFAULT_LEDGER_TOPIC,
            group_id=group,
        )
        asked = PlannedQuery(options, inputs or [], outputs or [], stop_s, trial, principal)
        return visit(asked, _paint if sys.stdout.isatty() else lambda severity, text: text)

    return tell(output, answering)


def _paint(severity: Severity, text: str) -> str:
    return typer.style(text, fg={"error": "red", "unknown": "magenta", "warning": "yellow", "ok": "green"}[severity])
