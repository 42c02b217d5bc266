"""``spark-eos plot`` and ``spark-eos top``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from spark_eos.cli.options import Format, Output, connection, print_answer, print_error
from spark_eos.errors import EosError

EventSource = Annotated[
    str,
    typer.Argument(metavar="SOURCE", help="a file of events, or the address of a query's metrics: http://HOST:9400"),
]
QueryName = Annotated[
    str | None,
    typer.Option("--query", metavar="NAME", help="its name, or its id (default: the busiest)", show_default=False),
]


def plot(
    source: EventSource,
    to: Annotated[str, typer.Option("--to", metavar="FILE", help="the picture: .png, .svg or .pdf")] = "query.png",
    query: QueryName = None,
    last: Annotated[
        float | None, typer.Option("--last", metavar="S", help="only its last seconds", show_default=False)
    ] = None,
    output: Output = Format.TEXT,
) -> int:
    """Draw a query: steps, kills, lag, throughput.

    A timeline of its micro-batches with prepare, decide and EndTxn, and how its runs ended; its lag to the last stable
    offsets over time; its rows per second. Needs the extra 'plot'. Exit code: 0, or 2 if it cannot be drawn.
    """
    from spark_eos.ops.plot import plot as draw

    return print_answer(output, lambda: draw(source, to, query, last))


def top(
    context: typer.Context,
    source: EventSource,
    query: QueryName = None,
    once: Annotated[bool, typer.Option("--once", help="print it once")] = False,
    every: Annotated[float, typer.Option("--every", min=0.1, metavar="S", help="seconds between two updates")] = 1.0,
    output: Output = Format.TEXT,
) -> int:
    """Watch a query: rate, lag, micro-batches.

    Rows per second, lag, a bar for each micro-batch, and, with --bootstrap-servers, the transactions that hold back a
    last stable offset. With --once or --format json it is printed once. Ctrl-C ends it. Exit code: 0, or 2 if there is
    nothing to watch.
    """
    from spark_eos.ops import top as ops

    try:
        at = connection(context)
        cluster = at.cluster() if at.servers else None
        if once or output is Format.JSON or not sys.stdout.isatty():
            return print_answer(output, lambda: ops.top(source, query, cluster))
        return ops.watch(source, query, cluster, every)
    except EosError as error:
        return print_error(output, error, 2)
