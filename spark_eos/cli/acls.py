"""``spark-eos acls``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from spark_eos.cli.options import Format, Group, LedgerTopic, Output, Prefix, tell, topic_option

if TYPE_CHECKING:
    from spark_eos.ops.acls import Query


def acls(
    principal: Annotated[str, typer.Option(metavar="TYPE:NAME", help="who runs the query, as User:ann")],
    servers: Annotated[
        str, typer.Option("--bootstrap-servers", metavar="HOST:PORT[,…]", help="for the commands; it is not contacted")
    ] = "HOST:9092",
    inputs: Annotated[list[str] | None, topic_option("--input", "a topic it reads (repeat)")] = None,
    outputs: Annotated[list[str] | None, topic_option("--output", "a topic it writes (repeat)")] = None,
    group: Group = None,
    ledger_topic: LedgerTopic = None,
    dead_letters: Annotated[str | None, topic_option("--dead-letters", "deadLetters.topic")] = None,
    notes: Annotated[
        str | None, topic_option("--notes", "the topic in which an ingest notes the files that it took")
    ] = None,
    create_ledger: Annotated[
        bool, typer.Option("--create-ledger", help="the query is to create its ledger topic")
    ] = False,
    prefix: Prefix = None,
    query: Annotated[
        str | None,
        typer.Option(
            "--query", metavar="ID", help="only the transactional ids of this query (default: all)", show_default=False
        ),
    ] = None,
    two_phase: Annotated[bool, typer.Option("--two-phase", help="transaction.two.phase.commit is true")] = False,
    output: Output = Format.TEXT,
) -> int:
    """Print the commands that grant what a query needs.

    They use kafka-acls.sh, and grant the least rights of a query. No cluster is contacted.
    """
    from spark_eos.ops.acls import Query
    from spark_eos.options.table import DEFAULT_LEDGER_TOPIC, DEFAULT_PREFIX

    uses = Query(
        inputs=inputs or [],
        outputs=outputs or [],
        group=group,
        ledger=ledger_topic or DEFAULT_LEDGER_TOPIC,
        prefix=prefix or DEFAULT_PREFIX,
        two_phase=two_phase,
        id=query,
        creates_ledger=create_ledger,
        dead_letters=dead_letters,
        notes=notes,
    )
    return print_needed(uses, principal, servers, output)


def print_needed(query: Query, principal: str, servers: str, output: Format) -> int:
    """Print the rights that this query needs. Returns the exit code."""
    from spark_eos.ops.acls import as_commands, needed
    from spark_eos.ops.answer import Answer

    rights = needed(query)
    data = [{"principal": principal, **asdict(acl)} for acl in rights]
    return tell(output, lambda: Answer(data, "\n".join(as_commands(rights, principal, servers))))
