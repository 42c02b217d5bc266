"""``spark-eos mirror``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from spark_eos.cli.options import Format, Output, Setting, Yes, client, connection, new_app, setting, tell

if TYPE_CHECKING:
    from spark_eos.ops.answer import Answer

app = new_app("Groups and offsets at the target of a mirror.")

Source = Annotated[
    str, typer.Option("--source", metavar="HOST:PORT[,…]", help="brokers of the source", show_default=False)
]
SourceKafka = Annotated[
    list[Setting] | None,
    typer.Option(
        "--source-kafka",
        metavar="KEY=VALUE",
        parser=setting,
        help="client property of the source",
        show_default=False,
    ),
]
SourceKafkaFile = Annotated[
    str | None,
    typer.Option("--source-kafka-file", metavar="FILE", help="the same, one KEY=VALUE a line", show_default=False),
]
Map = Annotated[
    str | None, typer.Option("--map", metavar="TOPIC", help="the topic of the offset map", show_default=False)
]


@app.command("move-group")
def move_group(
    context: typer.Context,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="the consumer group", show_default=False)],
    source: Source,
    source_kafka: SourceKafka = None,
    source_kafka_file: SourceKafkaFile = None,
    map_: Map = None,
    wait_s: Annotated[float, typer.Option("--wait", metavar="S", help="seconds to wait for the mirror")] = 60.0,
    delete: Annotated[bool, typer.Option("--delete", help="delete what was moved at the source afterwards")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="also where the group has read at the target")] = False,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> int:
    """Move a consumer group to a mirror's target.

    It continues there where it was at the source. The cluster of --bootstrap-servers is the target. The consumers must
    be stopped on both sides. Exit code: 0 if it was done, or can be; 2 if not.
    """
    from spark_eos.mirror.groups import Mover
    from spark_eos.mirror.map_topic import DEFAULT_MAP
    from spark_eos.mirror.report import answer

    def moved() -> Answer:
        here, there = client(source, source_kafka, source_kafka_file), connection(context).client()
        mover = Mover(group, here, there, map_ or DEFAULT_MAP)
        return answer(mover.move(apply=yes, delete=delete, overwrite=overwrite, wait_s=wait_s))

    return tell(output, moved)


@app.command()
def position(
    context: typer.Context,
    source: Source,
    query: Annotated[str, typer.Option("--query", metavar="ID", help="the mirror's query", show_default=False)],
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC", help="only of this source topic (repeat)", show_default=False),
    ] = None,
    source_kafka: SourceKafka = None,
    source_kafka_file: SourceKafkaFile = None,
    map_: Map = None,
    wait_s: Annotated[float, typer.Option("--wait", metavar="S", help="seconds to wait for the map's readers")] = 60.0,
    yes: Annotated[bool, typer.Option("--yes", help="close the query and settle it before, if needed")] = False,
    output: Output = Format.TEXT,
) -> int:
    """Tell where a new checkpoint of a mirror begins.

    For a mirror whose checkpoint is lost. The cluster of --bootstrap-servers is the target. Exit code: 0, or 2 if that
    is not known, or can still change.
    """
    from spark_eos.mirror.map_topic import DEFAULT_MAP
    from spark_eos.mirror.position import Finder
    from spark_eos.mirror.report import end_answer

    def found() -> Answer:
        here, there = client(source, source_kafka, source_kafka_file), connection(context).cluster()
        finder = Finder(query, here, there, map_ or DEFAULT_MAP, tuple(topic or ()))
        return end_answer(finder.find(settle=yes, wait_s=wait_s))

    return tell(output, found)


@app.command()
def translate(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="of the source", show_default=False)],
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0, show_default=False)],
    offset: Annotated[
        list[int], typer.Argument(metavar="OFFSET", min=0, help="one or more of them", show_default=False)
    ],
    source: Source,
    source_kafka: SourceKafka = None,
    source_kafka_file: SourceKafkaFile = None,
    map_: Map = None,
    topic_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="of a topic that was deleted or recreated since", show_default=False),
    ] = None,
    output: Output = Format.TEXT,
) -> int:
    """Where offsets of a mirror's source are in its target.

    The cluster of --bootstrap-servers is the target. A reader that has read all before OFFSET in the source goes on
    there. Changes nothing. Exit code: 0; 2 if one of the offsets cannot be translated.
    """
    from spark_eos.mirror.map_topic import DEFAULT_MAP
    from spark_eos.mirror.report import positions
    from spark_eos.mirror.translating import translated

    def found() -> Answer:
        here, there = client(source, source_kafka, source_kafka_file), connection(context).client()
        return positions(translated(here, there, map_ or DEFAULT_MAP, topic, partition, offset, topic_id))

    return tell(output, found)
