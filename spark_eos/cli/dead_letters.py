"""``spark-eos dead-letters``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from spark_eos.cli.options import Format, Output, Yes, argument, connection, new_app, option, print_answer

if TYPE_CHECKING:
    from spark_eos.ops.dead_letters import DeadLetters

app = new_app("See the records of a dead-letter topic, and send them again.")

Topic = Annotated[str, argument("TOPIC", "the dead-letter topic")]
Reason = Annotated[str | None, option("--reason", "NAME", "only dead letters with this reason, as `list` has it")]


@app.command("list")
def list_(context: typer.Context, topic: Topic, reason: Reason = None, output: Output = Format.TEXT) -> int:
    """Count dead letters by reason and topic, and those that were sent again."""
    return print_answer(output, lambda: _dead_letters(context, topic, reason).count())


@app.command("show")
def show(
    context: typer.Context,
    topic: Topic,
    reason: Reason = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="how many")] = 10,
    output: Output = Format.TEXT,
) -> int:
    """Print dead letters that were not sent again, oldest first."""
    return print_answer(output, lambda: _dead_letters(context, topic, reason).show(limit))


@app.command("resend")
def resend(
    context: typer.Context,
    topic: Topic,
    reason: Reason = None,
    to: Annotated[
        str | None, option("--to", "TOPIC", "topic for all of them (default: the one where each belongs)")
    ] = None,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> int:
    """Send dead letters to where they belong, each once.

    A row that brokers refused goes to its topic and partition, and a record that did not parse or was rejected to those
    that it was read from, without the headers of a dead letter. Nothing is removed from the dead-letter topic.
    """
    return print_answer(output, lambda: _dead_letters(context, topic, reason).resend(to, yes=yes))


def _dead_letters(context: typer.Context, topic: str, reason: str | None) -> DeadLetters:
    from spark_eos.ops.dead_letters import DeadLetters

    return DeadLetters(connection(context).client, topic, reason)
