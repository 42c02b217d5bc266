"""``spark-eos checkpoint``."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_eos.cli.options import (
    Format,
    Kafka,
    KafkaFile,
    KnownPrefix,
    LedgerTopic,
    Location,
    Output,
    Servers,
    Storage,
    Yes,
    checkpoint_at,
    cluster,
    hadoop,
    new_app,
    tell,
)

app = new_app(
    """Show a checkpoint, take one over, drop a micro-batch.

    What it and the ledger hold of a query; taking over a checkpoint of another sink; and dropping a micro-batch that is
    too large. Exit code: 0 if it is done, or can be with --yes, 2 if the answer is unknown, or nothing may be done.
    """
)


@app.command()
def show(
    checkpoint: Location,
    servers: Servers,
    storage: Storage = None,
    kafka: Kafka = None,
    kafka_file: KafkaFile = None,
    ledger_topic: LedgerTopic = None,
    prefix: KnownPrefix = None,
    output: Output = Format.TEXT,
) -> int:
    """Micro-batches, offsets, decisions, and what a start would do."""
    from spark_eos.ops.checkpoint import command

    return tell(
        output,
        lambda: command.show(
            checkpoint_at(checkpoint, storage), cluster(servers, kafka, kafka_file, ledger_topic, prefix)
        ),
    )


@app.command()
def adopt(
    checkpoint: Location,
    servers: Servers,
    group: Annotated[
        str | None,
        typer.Option(
            "--group", metavar="GROUP", help="offsets.group.id, which is given the offsets", show_default=False
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="do it; without it, only say whether it is possible")] = False,
    storage: Storage = None,
    kafka: Kafka = None,
    kafka_file: KafkaFile = None,
    ledger_topic: LedgerTopic = None,
    prefix: KnownPrefix = None,
    output: Output = Format.TEXT,
) -> int:
    """Let the ledger begin where another sink has ended."""
    from spark_eos.ops.checkpoint import command

    return tell(
        output,
        lambda: command.adopt(
            checkpoint_at(checkpoint, storage),
            cluster(servers, kafka, kafka_file, ledger_topic, prefix),
            group,
            yes=yes,
        ),
    )


@app.command()
def drop(
    checkpoint: Location,
    servers: Servers,
    yes: Yes = False,
    storage: Storage = None,
    kafka: Kafka = None,
    kafka_file: KafkaFile = None,
    ledger_topic: LedgerTopic = None,
    prefix: KnownPrefix = None,
    output: Output = Format.TEXT,
) -> int:
    """Drop the micro-batch that is planned and not decided.

    The next start plans it anew, as large as its options say by then. The cluster is that of the output, where the
    ledger is. If it is decided, this is refused. Stop the query first.
    """
    from spark_eos.ops.checkpoint import command

    return tell(
        output,
        lambda: command.drop(
            checkpoint, hadoop(storage), cluster(servers, kafka, kafka_file, ledger_topic, prefix), yes=yes
        ),
    )
