"""``spark-eos transactions``."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_eos.cli.options import (
    Format,
    Kafka,
    KafkaFile,
    KnownPrefix,
    LedgerTopic,
    Output,
    Servers,
    Yes,
    cluster,
    new_app,
    tell,
)

app = new_app(
    """Show and end the open transactions of queries.

    Whose they are, whether they are decided, and how to end them without their query. Exit code: 0 if nothing is
    open, or what was asked is done, or can be with --yes; 1 if something is open or left to be done, 2 if that is
    unknown, or nothing may be ended.
    """
)

QueryFilter = Annotated[
    list[str] | None, typer.Option("--query", metavar="ID", help="only of this query (repeat)", show_default=False)
]
QueriesToEnd = Annotated[list[str], typer.Option("--query", metavar="ID", help="the query's id (repeat)")]


@app.command("list")
def list_(
    servers: Servers,
    query: QueryFilter = None,
    open_for: Annotated[
        float, typer.Option("--open-for", metavar="S", help="only those open for so many seconds")
    ] = 0.0,
    kafka: Kafka = None,
    kafka_file: KafkaFile = None,
    ledger_topic: LedgerTopic = None,
    prefix: KnownPrefix = None,
    output: Output = Format.TEXT,
) -> int:
    """Every open transaction: whose it is, and whether it is decided."""
    from spark_eos.ops.transactions import command

    return tell(
        output,
        lambda: command.list_open(cluster(servers, kafka, kafka_file, ledger_topic, prefix), query or [], open_for),
    )


@app.command()
def describe(
    servers: Servers,
    query: QueryFilter = None,
    id_: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="only this transactional id (repeat)", show_default=False),
    ] = None,
    kafka: Kafka = None,
    kafka_file: KafkaFile = None,
    ledger_topic: LedgerTopic = None,
    prefix: KnownPrefix = None,
    output: Output = Format.TEXT,
) -> int:
    """The same as list, with producers and partitions."""
    from spark_eos.ops.transactions import command

    return tell(
        output,
        lambda: command.describe(cluster(servers, kafka, kafka_file, ledger_topic, prefix), query or [], id_ or []),
    )


@app.command()
def abort(
    servers: Servers,
    query: QueriesToEnd,
    yes: Yes = False,
    kafka: Kafka = None,
    kafka_file: KafkaFile = None,
    ledger_topic: LedgerTopic = None,
    prefix: KnownPrefix = None,
    output: Output = Format.TEXT,
) -> int:
    """Close a query and abort what it has open and not decided."""
    from spark_eos.ops.transactions import command

    return tell(
        output,
        lambda: command.abort(cluster(servers, kafka, kafka_file, ledger_topic, prefix), query, yes=yes),
    )


@app.command()
def settle(
    servers: Servers,
    query: QueriesToEnd,
    yes: Yes = False,
    abort_broken: Annotated[
        bool,
        typer.Option(
            "--abort-broken",
            help="abort a transaction that has lost rows in one partition (EOS_DECISION_BROKEN), so that the query "
            "writes all of it again",
        ),
    ] = False,
    kafka: Kafka = None,
    kafka_file: KafkaFile = None,
    ledger_topic: LedgerTopic = None,
    prefix: KnownPrefix = None,
    output: Output = Format.TEXT,
) -> int:
    """Commit what a query has decided and left open."""
    from spark_eos.ops.transactions import command

    return tell(
        output,
        lambda: command.settle(
            cluster(servers, kafka, kafka_file, ledger_topic, prefix), query, yes=yes, abort_broken=abort_broken
        ),
    )
