"""``spark-eos doctor``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from spark_eos.cli.options import Format, Output, connection, option, print_answer, switch

if TYPE_CHECKING:
    from spark_eos.ops.answer import Answer

_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86400}
#: By the kind of a table, the sink's option that names it.
_TABLES = {"delta": "path", "iceberg": "table"}
_COLOURS = {"error": "red", "unknown": "magenta", "warning": "yellow", "ok": "green"}
_OUTPUT = "a topic that it writes, or a table, delta:PATH or iceberg:NAMESPACE.NAME (repeat)"
_ACLS = "only print the commands that grant the least rights; contact no cluster"


def seconds(text: str) -> float:
    """Parse ``90s``, ``30min``, ``12h`` or ``7d``. Raises BadParameter."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]+)?) ?(s|min|h|d)", text)
    if match is None:
        raise typer.BadParameter(f"'{text}' is not a time such as 90s, 30min, 12h or 7d")
    return float(match[1]) * _UNITS[match[2]]


def _table(text: str) -> dict[str, str] | None:
    """Return the sink's options that name a table, from ``delta:PATH`` or ``iceberg:NAMESPACE.NAME``; None for anything
    else, such as a topic, which has no colon. Raises BadParameter."""
    kind, colon, name = text.partition(":")
    if not colon:
        return None
    if kind not in _TABLES or not name:
        raise typer.BadParameter(f"'{text}' is none of TOPIC, delta:PATH and iceberg:NAMESPACE.NAME")
    return {"format": kind, _TABLES[kind]: name}


def doctor(
    context: typer.Context,
    inputs: Annotated[list[str] | None, option("--input", "TOPIC", "a topic that the query reads (repeat)")] = None,
    outputs: Annotated[list[str] | None, option("--output", "TOPIC", _OUTPUT)] = None,
    group: Annotated[str | None, option("--group", "GROUP", "offsets.group.id of the query")] = None,
    dead_letters: Annotated[str | None, option("--dead-letters", "TOPIC", "deadLetters.topic of the query")] = None,
    notes: Annotated[str | None, option("--notes", "TOPIC", "the notes of an ingest, for --acls")] = None,
    timeout_ms: Annotated[int | None, option("--timeout", "MS", "transaction.timeout.ms of the query", min=1)] = None,
    two_phase: Annotated[bool, switch("--two-phase", "the query has transaction.two.phase.commit=true")] = False,
    longest_stop: Annotated[
        str, typer.Option("--longest-stop", metavar="TIME", help="for how long the query may be stopped")
    ] = "7d",
    acls_only: Annotated[bool, switch("--acls", _ACLS)] = False,
    principal: Annotated[
        str, typer.Option(metavar="TYPE:NAME", help="the user that runs the query, for the commands that grant rights")
    ] = "User:NAME",
    query_id: Annotated[
        str | None, option("--query", "ID", "only the transactional ids of this query, for --acls")
    ] = None,
    creates_ledger: Annotated[
        bool, switch("--create-ledger", "the query is to create its ledger topic, for --acls")
    ] = False,
    output: Output = Format.TEXT,
) -> int:
    """Check a cluster, its topics and a user for exactly-once.

    Each finding has how rows could be lost or doubled, and the command that fixes it. No setting is changed, and no row
    written. Exit code: 0 if all is well, 1 if something is wrong, 2 if something could not be determined. With --acls,
    it only prints the commands that grant the query's rights.
    """
    from spark_eos.ops.acls import Query, rights
    from spark_eos.options.table import DEFAULT_PREFIX

    at = connection(context)
    tables = [sink for output in outputs or () if (sink := _table(output)) is not None]
    topics = [output for output in outputs or () if _table(output) is None]
    if tables and dead_letters is not None:
        raise typer.BadParameter("no commit spans a table and a topic: a query to a table has no --dead-letters")
    query = Query(
        inputs=inputs or [],
        outputs=topics,
        group=group,
        ledger=None if tables and not topics else at.ledger,
        prefix=at.prefix or DEFAULT_PREFIX,
        two_phase=two_phase,
        id=query_id,
        creates_ledger=creates_ledger,
        dead_letters=dead_letters,
        notes=notes,
    )
    stop_s = seconds(longest_stop)

    def answer() -> Answer:
        if acls_only:
            return rights(query, principal, at.servers or "HOST:9092")
        from spark_eos.ops.doctor.checkup import doctor as checkup
        from spark_eos.ops.doctor.findings import PlannedQuery
        from spark_eos.options.parse import SinkOptions

        options = SinkOptions(
            at.properties,
            topic=topics[0] if topics else None,
            dead_letters=dead_letters,
            prefix=query.prefix,
            transaction_timeout_ms=timeout_ms,
            two_phase=two_phase,
            ledger_topic=at.ledger,
            group_id=group,
        )
        return checkup(PlannedQuery(at.client, options, query.inputs, topics, stop_s, principal, tables, at.hadoop()))

    return print_answer(output, answer, paint=str if acls_only else _paint)


def _paint(text: str) -> str:
    """Colour the severity at the beginning of each finding."""
    return re.sub(rf"(?m)^({'|'.join(_COLOURS)})  ", lambda match: typer.style(match[0], fg=_COLOURS[match[1]]), text)
