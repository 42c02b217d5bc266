"""``spark-eos dead-letters``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from spark_eos.cli.options import Format, Output, Yes, connection, new_app, print_answer, topic_option

if TYPE_CHECKING:
    from spark_eos.ops.dead_letters import Letters

app = new_app("See the letters of a dead-letter topic, and send them again.")

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="the dead-letter topic", show_default=False)]
Reason = Annotated[
    str | None,
    typer.Option(
        "--reason", metavar="NAME", help="only letters with this reason, as `list` has it", show_default=False
    ),
]
To = Annotated[str | None, topic_option("--to", "topic for all of them (default: the one where each belongs)")]


@app.command("list")
def list_(context: typer.Context, topic: Topic, reason: Reason = None, output: Output = Format.TEXT) -> int:
    """Count letters by reason and topic, and those that were sent again."""
    from spark_eos.ops.dead_letters import list_letters

    return print_answer(output, lambda: list_letters(_letters(context, topic, reason)))


@app.command("show")
def show(
    context: typer.Context,
    topic: Topic,
    reason: Reason = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="how many")] = 10,
    output: Output = Format.TEXT,
) -> int:
    """Print letters that were not sent again, oldest first."""
    from spark_eos.ops.dead_letters import show_letters

    return print_answer(output, lambda: show_letters(_letters(context, topic, reason), limit))


@app.command("resend")
def resend(
    context: typer.Context,
    topic: Topic,
    reason: Reason = None,
    to: To = None,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> int:
    """Send letters to where they belong, each once.

    A row that brokers refused goes to its topic and partition, and a record that did not parse or was rejected to those
    that it was read from, without the headers of a letter. Nothing is removed from the dead-letter topic.
    """
    from spark_eos.ops.dead_letters import resend_letters

    return print_answer(output, lambda: resend_letters(_letters(context, topic, reason), to, yes=yes))


def _letters(context: typer.Context, topic: str, reason: str | None) -> Letters:
    from spark_eos.ops.dead_letters import Letters

    return Letters(connection(context).client(), topic, reason)
