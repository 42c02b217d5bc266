"""``spark-eos doctor``."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from spark_eos.base.printable import in_lines
from spark_eos.cli.options import Connection, Format, Output, connection, print_answer, topic_option

if TYPE_CHECKING:
    from spark_eos.ops.acls import Query
    from spark_eos.ops.answer import Answer

_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86400}
#: By the kind of a table, the sink's option that names it.
_TABLES = {"delta": "path", "iceberg": "table"}
_COLOURS = {"error": "red", "unknown": "magenta", "warning": "yellow", "ok": "green"}


def seconds(text: str) -> float:
    """From ``90s``, ``30min``, ``12h`` or ``7d``. Raises BadParameter."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]+)?) ?(s|min|h|d)", text)
    if found is None:
        raise typer.BadParameter(f"'{text}' is not a time such as 90s, 30min, 12h or 7d")
    return float(found[1]) * _UNITS[found[2]]


def table_named(text: str) -> dict[str, str] | None:
    """The sink's options that name a table, from ``delta:PATH`` or ``iceberg:NAMESPACE.NAME``; None for anything else,
    such as a topic, which has no colon. Raises BadParameter."""
    kind, colon, name = text.partition(":")
    if not colon:
        return None
    if kind not in _TABLES or not name:
        raise typer.BadParameter(f"'{text}' is none of TOPIC, delta:PATH and iceberg:NAMESPACE.NAME")
    return {"format": kind, _TABLES[kind]: name}


Inputs = Annotated[list[str] | None, topic_option("--input", "a topic that the query reads (repeat)")]
Outputs = Annotated[
    list[str] | None,
    topic_option("--output", "a topic that it writes, or a table, delta:PATH or iceberg:NAMESPACE.NAME (repeat)"),
]
DeadLettersTopic = Annotated[str | None, topic_option("--dead-letters", "deadLetters.topic")]
NotesTopic = Annotated[str | None, topic_option("--notes", "the notes of an ingest, for --acls")]
Timeout = Annotated[
    int | None, typer.Option("--timeout", min=1, metavar="MS", help="transaction.timeout.ms", show_default=False)
]
TwoPhase = Annotated[bool, typer.Option("--two-phase", help="transaction.two.phase.commit is true")]
LongestStop = Annotated[
    str, typer.Option("--longest-stop", metavar="TIME", help="for how long the query may be stopped")
]
AclsOnly = Annotated[
    bool, typer.Option("--acls", help="only print the commands that grant the least rights; contact no cluster")
]
Principal = Annotated[
    str, typer.Option("--principal", metavar="TYPE:NAME", help="who runs the query, for the commands that grant rights")
]
Group = Annotated[str | None, typer.Option("--group", metavar="GROUP", help="offsets.group.id", show_default=False)]
QueryId = Annotated[
    str | None,
    typer.Option(
        "--query", metavar="ID", help="only the transactional ids of this query, for --acls", show_default=False
    ),
]
CreatesLedger = Annotated[
    bool, typer.Option("--create-ledger", help="the query is to create its ledger topic, for --acls")
]


def doctor(
    context: typer.Context,
    inputs: Inputs = None,
    outputs: Outputs = None,
    group: Group = None,
    dead_letters: DeadLettersTopic = None,
    notes: NotesTopic = None,
    timeout_ms: Timeout = None,
    two_phase: TwoPhase = False,
    longest_stop: LongestStop = "7d",
    acls_only: AclsOnly = False,
    principal: Principal = "User:NAME",
    query_id: QueryId = None,
    creates_ledger: CreatesLedger = False,
    output: Output = Format.TEXT,
) -> int:
    """Check a cluster, its topics and a user for exactly-once.

    Each finding has how rows could be lost or doubled, and the command that fixes it. No setting is changed, and no row
    written. Exit code: 0 if all is well, 1 if something is wrong, 2 if something could not be determined. With --acls,
    it only prints the commands that grant the query's rights.
    """
    from spark_eos.ops.acls import Query
    from spark_eos.options.table import DEFAULT_PREFIX

    at = connection(context)
    tables = [sink for output in outputs or () if (sink := table_named(output)) is not None]
    topics = [output for output in outputs or () if table_named(output) is None]
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
    if acls_only:
        return print_answer(output, lambda: _rights(query, principal, at.servers or "HOST:9092"))
    stop_s = seconds(longest_stop)
    return print_answer(output, lambda: _checkup(query, tables, at, timeout_ms, stop_s, principal), paint=_paint)


def _rights(query: Query, principal: str, servers: str) -> Answer:
    """The rights that the query needs, and the commands that grant them."""
    from spark_eos.ops.acls import as_commands, needed
    from spark_eos.ops.answer import Answer

    rights = needed(query)
    data = [{"principal": principal, **asdict(acl)} for acl in rights]
    return Answer(data, in_lines(as_commands(rights, principal, servers)))


def _checkup(
    query: Query,
    tables: list[dict[str, str]],
    at: Connection,
    timeout_ms: int | None,
    stop_s: float,
    principal: str,
) -> Answer:
    from spark_eos.ops.doctor.checkup import doctor as checkup
    from spark_eos.ops.doctor.findings import PlannedQuery
    from spark_eos.options.parse import SinkOptions

    options = SinkOptions(
        at.client(),
        topic=query.outputs[0] if query.outputs else None,
        dead_letters=query.dead_letters,
        prefix=query.prefix,
        transaction_timeout_ms=timeout_ms,
        two_phase=query.two_phase,
        ledger_topic=at.ledger,
        group_id=query.group,
    )
    planned = PlannedQuery(options, query.inputs, query.outputs, stop_s, principal, tables, at.hadoop())
    return checkup(planned)


def _paint(text: str) -> str:
    """Colour the severity at the beginning of each finding."""
    return re.sub(rf"(?m)^({'|'.join(_COLOURS)})  ", lambda match: typer.style(match[0], fg=_COLOURS[match[1]]), text)
