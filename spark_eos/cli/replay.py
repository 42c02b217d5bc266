"""``spark-eos replay``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from spark_eos.cli.options import Format, Location, Output, Yes, connection, option, print_answer, switch

if TYPE_CHECKING:
    from spark_eos.ops.answer import Answer

_TIMESTAMP = "back to the first rows of this time: milliseconds, or ISO 8601"
_OFFSETS = 'back to {"topic": {"0": 23}}; other partitions stay where they are'


def replay(
    context: typer.Context,
    checkpoint: Location,
    new: Annotated[str, option("--new", "LOCATION", "location of the new checkpoint")],
    to_batch: Annotated[int | None, option("--to-batch", "N", "back to the end of micro-batch N", min=0)] = None,
    to_timestamp: Annotated[str | None, option("--to-timestamp", "T", _TIMESTAMP)] = None,
    to_offsets: Annotated[str | None, option("--to-offsets", "JSON", _OFFSETS)] = None,
    again: Annotated[bool, switch("--again", "write to the same topics, and retire the old query")] = False,
    topic: Annotated[
        str | None, option("--topic", "TOPIC", "write to this topic; the old query stays as it is")
    ] = None,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> int:
    """Let a query read and write rows again.

    Prints which offsets would be read again, and with --yes makes a checkpoint that begins there. With --new alone, it
    finishes a replay that was interrupted. Exit code: 0 if it is done, or can be with --yes, 1 if it is done and
    transactions of the old query are still open, 2 if the query cannot be replayed, or not in this way.
    """
    from spark_eos.checkpoint.stores import absolute
    from spark_eos.ops.replay import replay as run
    from spark_eos.ops.replay_plan import ReplayRequest

    def answer() -> Answer:
        at = connection(context)
        request = ReplayRequest(absolute(new), to_batch, to_timestamp, to_offsets, again, topic)
        return run(checkpoint, request, at.cluster(), at.hadoop(), yes=yes)

    return print_answer(output, answer)
