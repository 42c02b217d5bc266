"""``spark-eos ledger``."""

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
    cluster,
    new_app,
    tell,
)

app = new_app("Show what a ledger holds.")


@app.callback()
def _group() -> None:
    pass


@app.command()
def show(
    servers: Servers,
    query: Annotated[
        list[str] | None, typer.Option("--query", metavar="ID", help="only of this query (repeat)", show_default=False)
    ] = None,
    kafka: Kafka = None,
    kafka_file: KafkaFile = None,
    ledger_topic: LedgerTopic = None,
    prefix: KnownPrefix = None,
    output: Output = Format.TEXT,
) -> int:
    """Every query: run, micro-batch, state, and how old that is.

    Reads the whole topic. Exit code: 0, or 2 if it cannot be read.
    """
    from spark_eos.ops.ledger import command

    return tell(output, lambda: command.show(cluster(servers, kafka, kafka_file, ledger_topic, prefix), query or []))
