"""``spark-eos mirror``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from spark_eos.cli.options import (
    Format,
    Kafka,
    KafkaFile,
    Output,
    Servers,
    Setting,
    Yes,
    client,
    new_app,
    setting,
    tell,
)

if TYPE_CHECKING:
    from spark_eos.ops.answer import Answer

app = new_app("Move consumer groups to the target of a mirror.")


@app.command("move-group")
def move_group(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="the consumer group", show_default=False)],
    servers: Servers,
    source: Annotated[
        str, typer.Option("--source", metavar="HOST:PORT[,…]", help="brokers of the source", show_default=False)
    ],
    kafka: Kafka = None,
    kafka_file: KafkaFile = None,
    source_kafka: Annotated[
        list[Setting] | None,
        typer.Option(metavar="KEY=VALUE", parser=setting, help="client property of the source", show_default=False),
    ] = None,
    source_kafka_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="the same, one KEY=VALUE a line", show_default=False)
    ] = None,
    map_: Annotated[
        str | None, typer.Option("--map", metavar="TOPIC", help="the topic of the offset map", show_default=False)
    ] = None,
    wait_s: Annotated[float, typer.Option("--wait", metavar="S", help="seconds to wait for the mirror")] = 60.0,
    delete: Annotated[bool, typer.Option("--delete", help="delete what was moved at the source afterwards")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="also where the group has read at the target")] = False,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> int:
    """Let a consumer group continue at a mirror's target where it was at the source.

    The cluster of --bootstrap-servers is the target. The consumers must be stopped on both sides. Exit code:
    0 if it was done, or can be; 2 if not.
    """
    from spark_eos.mirror.groups import Mover
    from spark_eos.mirror.map_topic import DEFAULT_MAP
    from spark_eos.mirror.report import answer

    def moved() -> Answer:
        here, there = client(source, source_kafka, source_kafka_file), client(servers, kafka, kafka_file)
        mover = Mover(group, here, there, map_ or DEFAULT_MAP)
        return answer(mover.move(apply=yes, delete=delete, overwrite=overwrite, wait_s=wait_s))

    return tell(output, moved)
