"""``spark-eos mirror``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from spark_eos.base.printable import in_lines
from spark_eos.cli.options import (
    ConnectionOptions,
    Format,
    KeyValue,
    Output,
    Yes,
    argument,
    connection,
    new_app,
    option,
    print_answer,
    setting,
    switch,
)

if TYPE_CHECKING:
    from spark_eos.kafka.net.client import BrokerClient
    from spark_eos.ops.answer import Answer
    from spark_eos.pipelines.mirror.offsets import GroupMove, MirrorPosition, TranslatedOffset

app = new_app("Groups and offsets at the target of a mirror.")

Source = Annotated[str, option("--source", "HOST:PORT[,…]", "brokers of the source")]
SourceKafka = Annotated[
    list[KeyValue] | None, option("--source-kafka", "KEY=VALUE", "client property of the source", parser=setting)
]
SourceKafkaFile = Annotated[str | None, option("--source-kafka-file", "FILE", "the same, one KEY=VALUE a line")]
Map = Annotated[str | None, option("--map", "TOPIC", "the topic of the offset map")]


@app.command("move-group")
def move_group(
    context: typer.Context,
    group: Annotated[str, argument("GROUP", "the consumer group")],
    source: Source,
    source_kafka: SourceKafka = None,
    source_kafka_file: SourceKafkaFile = None,
    map_: Map = None,
    wait_s: Annotated[float, typer.Option("--wait", metavar="S", help="seconds to wait for the mirror")] = 60.0,
    delete: Annotated[bool, switch("--delete", "then delete the moved offsets at the source")] = False,
    overwrite: Annotated[bool, switch("--overwrite", "also replace offsets that the group has at the target")] = False,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> int:
    """Move a consumer group to a mirror's target.

    It continues there where it was at the source. The cluster of --bootstrap-servers is the target. The consumers must
    be stopped on both sides. Exit code: 0 if it was done, or can be; 2 if not, or if only the deletion failed.
    """
    from spark_eos.pipelines.mirror.offset_map import DEFAULT_MAP
    from spark_eos.pipelines.mirror.offsets import GroupMover

    def answer() -> Answer:
        here = _source(source, source_kafka, source_kafka_file)
        mover = GroupMover(group, here, connection(context).client, map_ or DEFAULT_MAP)
        return move_answer(mover.move(apply=yes, delete=delete, overwrite=overwrite, wait_s=wait_s))

    return print_answer(output, answer)


@app.command()
def position(
    context: typer.Context,
    source: Source,
    query: Annotated[str, option("--query", "ID", "the mirror's query")],
    topic: Annotated[list[str] | None, option("--topic", "TOPIC", "only of this source topic (repeat)")] = None,
    source_kafka: SourceKafka = None,
    source_kafka_file: SourceKafkaFile = None,
    map_: Map = None,
    wait_s: Annotated[float, typer.Option("--wait", metavar="S", help="seconds to wait for the map's readers")] = 60.0,
    yes: Annotated[bool, switch("--yes", "first close the query and end its transactions, if needed")] = False,
    output: Output = Format.TEXT,
) -> int:
    """Tell where a new checkpoint of a mirror begins.

    For a mirror whose checkpoint is lost. The cluster of --bootstrap-servers is the target. Exit code: 0, or 2 if that
    is not known, or can still change.
    """
    from spark_eos.ledger.operator import QueryOperator
    from spark_eos.pipelines.mirror.offset_map import DEFAULT_MAP
    from spark_eos.pipelines.mirror.offsets import MirrorQuery

    def answer() -> Answer:
        here = _source(source, source_kafka, source_kafka_file)
        operator = QueryOperator(connection(context).cluster(), query)
        mirror = MirrorQuery(operator, here, map_ or DEFAULT_MAP, tuple(topic or ()))
        return _position_answer(mirror.position(settle=yes, wait_s=wait_s))

    return print_answer(output, answer)


@app.command()
def translate(
    context: typer.Context,
    topic: Annotated[str, argument("TOPIC", "a topic of the source")],
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0, show_default=False)],
    offset: Annotated[
        list[int],
        typer.Argument(metavar="OFFSET", min=0, help="one or more offsets of the partition", show_default=False),
    ],
    source: Source,
    source_kafka: SourceKafka = None,
    source_kafka_file: SourceKafkaFile = None,
    map_: Map = None,
    topic_id: Annotated[
        str | None, option("--topic-id", "ID", "id of the topic, if it was deleted or recreated since")
    ] = None,
    output: Output = Format.TEXT,
) -> int:
    """Tell where offsets of a mirror's source are in its target.

    The cluster of --bootstrap-servers is the target. A reader that has read all before OFFSET in the source goes on
    there. Changes nothing. Exit code: 0; 2 if one of the offsets cannot be translated.
    """
    from spark_eos.pipelines.mirror.offset_map import DEFAULT_MAP
    from spark_eos.pipelines.mirror.offsets import translate as translated

    def answer() -> Answer:
        here = _source(source, source_kafka, source_kafka_file)
        there = connection(context).client
        return _translation_answer(translated(here, there, map_ or DEFAULT_MAP, topic, partition, offset, topic_id))

    return print_answer(output, answer)


def _source(servers: str, kafka: list[KeyValue] | None, file: str | None) -> BrokerClient:
    """Return the client of the mirror's source."""
    return ConnectionOptions(servers, kafka or (), file, file_flag="--source-kafka-file").client


def move_answer(move: GroupMove) -> Answer:
    """Show a group's move, as it was done or would be."""
    from spark_eos.ops.answer import Answer

    lines = [_line(one, "is at" if move.done else "would be at") for one in move.offsets]
    lines += [f"{topic} is not mirrored: its offsets stay as they are" for topic in move.not_mirrored]
    if move.done:
        lines.append(f"{move.group} was moved{', and deleted at the source for these topics' if move.deletes else ''}")
    else:
        lines.append("nothing was changed; --yes does it")
    return Answer(asdict(move), in_lines(lines))


def _position_answer(position: MirrorPosition) -> Answer:
    """Show the offsets at which a new checkpoint begins."""
    from spark_eos.ops.answer import Answer

    lines = [
        f"query {position.query}: closed, and micro-batch {position.batch} is its last decision",
        f"startingOffsets: {json.dumps(position.offsets)}",
        *(f"  {t}-{p}: nothing of it was mirrored, it begins at its first offset (-2)" for t, p in position.unread),
        *(f"  {t}-{p}: brokers have lost decided rows, which the new query writes" for t, p in position.lost),
        "Begin with a new checkpoint and these offsets. Never start the old checkpoint again, or a copy of it.",
    ]
    data = {
        "query": position.query,
        "batch": position.batch,
        "starting_offsets": position.offsets,
        "unread": [list(partition) for partition in position.unread],
        "written_again": [list(partition) for partition in position.lost],
    }
    return Answer(data, in_lines(lines))


def _translation_answer(offsets: Iterable[TranslatedOffset]) -> Answer:
    """Show the offsets of the target that correspond to offsets of the source."""
    from spark_eos.ops.answer import Answer

    offsets = list(offsets)
    return Answer({"offsets": [asdict(one) for one in offsets]}, in_lines(_line(one, "is at") for one in offsets))


def _line(one: TranslatedOffset, verb: str) -> str:
    target = one.target
    return (
        f"{one.topic}-{one.partition} offset {one.offset}: {verb} offset {target.offset} of "
        f"{target.topic}-{target.partition}"
    )
