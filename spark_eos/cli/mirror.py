"""``spark-eos mirror``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from spark_eos.base.printable import in_lines
from spark_eos.cli.options import Format, Output, Setting, Yes, client, connection, new_app, print_answer, setting

if TYPE_CHECKING:
    from spark_eos.ops.answer import Answer
    from spark_eos.pipelines.mirror.offsets import GroupMove, MirrorPosition, TranslatedOffset

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
    be stopped on both sides. Exit code: 0 if it was done, or can be; 2 if not, or if only the deletion failed.
    """
    from spark_eos.kafka.net.client import broker_client
    from spark_eos.pipelines.mirror.offset_map import DEFAULT_MAP
    from spark_eos.pipelines.mirror.offsets import GroupMover

    def answer() -> Answer:
        here = broker_client(client(source, source_kafka, source_kafka_file))
        there = broker_client(connection(context).client())
        mover = GroupMover(group, here, there, map_ or DEFAULT_MAP)
        return move_answer(mover.move(apply=yes, delete=delete, overwrite=overwrite, wait_s=wait_s))

    return print_answer(output, answer)


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
    from spark_eos.kafka.net.client import broker_client
    from spark_eos.pipelines.mirror.offset_map import DEFAULT_MAP
    from spark_eos.pipelines.mirror.offsets import MirrorQuery

    def answer() -> Answer:
        here = broker_client(client(source, source_kafka, source_kafka_file))
        there = connection(context).cluster()
        mirror = MirrorQuery(query, here, there, map_ or DEFAULT_MAP, tuple(topic or ()))
        return position_answer(mirror.position(settle=yes, wait_s=wait_s))

    return print_answer(output, answer)


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
    from spark_eos.kafka.net.client import broker_client
    from spark_eos.pipelines.mirror.offset_map import DEFAULT_MAP
    from spark_eos.pipelines.mirror.offsets import translate as translated

    def answer() -> Answer:
        here = broker_client(client(source, source_kafka, source_kafka_file))
        there = broker_client(connection(context).client())
        return translation_answer(translated(here, there, map_ or DEFAULT_MAP, topic, partition, offset, topic_id))

    return print_answer(output, answer)


def move_answer(move: GroupMove) -> Answer:
    """A group's move, as it was done or would be."""
    from spark_eos.ops.answer import Answer

    verb = "is at" if move.done else "would be at"
    lines = [_line(one, verb) for one in move.offsets]
    lines += [f"{topic} is not mirrored: its offsets stay as they are" for topic in move.not_mirrored]
    if move.done:
        lines.append(f"{move.group} was moved{', and deleted at the source for these topics' if move.deletes else ''}")
    else:
        lines.append("nothing was changed; --yes does it")
    return Answer(asdict(move), in_lines(lines))


def position_answer(position: MirrorPosition) -> Answer:
    """Where a new checkpoint begins."""
    from spark_eos.ops.answer import Answer

    lines = [
        f"query {position.query}: closed, and micro-batch {position.batch} is its last decision",
        f"startingOffsets: {json.dumps(position.offsets)}",
    ]
    lines += [
        f"  {topic}-{p}: nothing of it was mirrored, it begins at its first offset (-2)" for topic, p in position.unread
    ]
    lines += [
        f"  {topic}-{p}: brokers have lost decided rows, which the new query writes" for topic, p in position.lost
    ]
    lines.append(
        "Begin with a new checkpoint and these offsets. Never start the old checkpoint again, or a copy of it."
    )
    data = {
        "query": position.query,
        "batch": position.batch,
        "starting_offsets": position.offsets,
        "unread": [list(place) for place in position.unread],
        "written_again": [list(place) for place in position.lost],
    }
    return Answer(data, in_lines(lines))


def translation_answer(offsets: Iterable[TranslatedOffset]) -> Answer:
    """Where offsets are in the target."""
    from spark_eos.ops.answer import Answer

    found = list(offsets)
    data = {"offsets": [asdict(one) for one in found]}
    return Answer(data, in_lines(_line(one, "is at") for one in found))


def _line(one: TranslatedOffset, verb: str) -> str:
    target = one.target
    return (
        f"{one.topic}-{one.partition} offset {one.offset}: {verb} offset {target.offset} of "
        f"{target.topic}-{target.partition}"
    )
