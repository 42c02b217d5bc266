"""``spark-eos query`` and ``spark-eos recover``."""

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
    new_app,
    tell,
)

app = new_app("Show the state of a query.")

Watch = Annotated[
    float, typer.Option("--watch", min=0, metavar="S", help="seconds between two looks, for signs of a run")
]
Quiet = Annotated[
    float, typer.Option("--quiet", min=0, metavar="S", help="a sign of a run that is younger than this counts as one")
]


@app.callback()
def _group() -> None:
    pass


@app.command()
def status(
    checkpoint: Location,
    servers: Servers,
    watch: Watch = 3.0,
    quiet: Quiet = 60.0,
    storage: Storage = None,
    kafka: Kafka = None,
    kafka_file: KafkaFile = None,
    ledger_topic: LedgerTopic = None,
    prefix: KnownPrefix = None,
    output: Output = Format.TEXT,
) -> int:
    """Run, micro-batch, open transactions, lag, and who runs it.

    Exit code: 0 if it needs no attention, 1 if it does, 2 if that is unknown.
    """
    from spark_eos.ops.query.status import status as ask

    return tell(
        output,
        lambda: ask(
            checkpoint_at(checkpoint, storage),
            cluster(servers, kafka, kafka_file, ledger_topic, prefix),
            watch,
            quiet,
        ),
    )


def recover(
    checkpoint: Location,
    servers: Servers,
    yes: Yes = False,
    even_if_running: Annotated[
        bool, typer.Option("--even-if-running", help="even if it seems to be running; that run then stops")
    ] = False,
    watch: Watch = 3.0,
    quiet: Quiet = 60.0,
    storage: Storage = None,
    kafka: Kafka = None,
    kafka_file: KafkaFile = None,
    ledger_topic: LedgerTopic = None,
    prefix: KnownPrefix = None,
    output: Output = Format.TEXT,
) -> int:
    """Do what a start of a query would do first.

    Without Spark: what is decided is committed, what is not is aborted, and readers go on. Exit code: 0 if it is
    done, or can be with --yes, 1 if something is left that it cannot do, 2 if that is unknown, or the query seems to be
    running: a run that waits for rows gives no sign, so make sure yourself that there is none.
    """
    from spark_eos.ops.query.recovery import recover_query

    return tell(
        output,
        lambda: recover_query(
            checkpoint_at(checkpoint, storage),
            cluster(servers, kafka, kafka_file, ledger_topic, prefix),
            yes=yes,
            even_if_running=even_if_running,
            watch_s=watch,
            quiet_s=quiet,
        ),
    )
