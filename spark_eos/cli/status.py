"""``spark-eos status`` and ``spark-eos recover``: the state of queries, and what their next start would do first."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_eos.cli.options import Format, Output, Yes, connection, print_answer

MaybeLocation = Annotated[
    str | None, typer.Argument(metavar="CHECKPOINT", help="checkpointLocation, as Spark has it", show_default=False)
]
Queries = Annotated[
    list[str] | None,
    typer.Option("--query", metavar="ID", help="id of the query, instead of a checkpoint (repeat)", show_default=False),
]
Quiet = Annotated[
    float, typer.Option("--quiet", min=0, metavar="S", help="count signs of a run that are younger than S seconds")
]
_WATCH_S = 3.0


def status(
    context: typer.Context,
    checkpoint: MaybeLocation = None,
    query: Queries = None,
    open_for: Annotated[
        float | None,
        typer.Option(
            "--open-for", min=0, metavar="S", help="only transactions open for at least S seconds", show_default=False
        ),
    ] = None,
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch",
            min=0,
            metavar="S",
            help=f"seconds between two looks, for signs of a run (default: {_WATCH_S:g}, or 0 for all queries)",
            show_default=False,
        ),
    ] = None,
    quiet: Quiet = 60.0,
    output: Output = Format.TEXT,
) -> int:
    """Show the state of a query, or of all queries.

    Its checkpoint, decisions, open transactions and lag, whether it is running, and what its next start does. Exit
    code: 0 if nothing needs attention, 1 if something does, 2 if that is not known. With --open-for: 1 if there is such
    a transaction.
    """
    from spark_eos.ops import status as ops

    _check_one(checkpoint, query)
    at = connection(context)
    watch_s = watch if watch is not None else _WATCH_S if checkpoint or query else 0.0

    return print_answer(
        output,
        lambda: ops.status(
            at.cluster(),
            at.checkpoint(checkpoint) if checkpoint else None,
            query or [],
            watch_s=watch_s,
            quiet_s=quiet,
            open_for_s=open_for,
        ),
    )


def recover(
    context: typer.Context,
    checkpoint: MaybeLocation = None,
    query: Queries = None,
    yes: Yes = False,
    abort_only: Annotated[
        bool, typer.Option("--abort-only", help="only close the query and abort undecided transactions")
    ] = False,
    settle_only: Annotated[bool, typer.Option("--settle-only", help="only commit decided transactions")] = False,
    abort_broken: Annotated[
        bool,
        typer.Option(
            "--abort-broken",
            help="abort a decided micro-batch that has lost rows in one partition (EOS_DECISION_BROKEN), so that the "
            "query writes all of it again",
        ),
    ] = False,
    drop_planned: Annotated[
        bool,
        typer.Option(
            "--drop-planned",
            help="instead: drop the planned micro-batch if it is not decided, as it is too large; the next start "
            "plans it anew",
        ),
    ] = False,
    even_if_running: Annotated[
        bool, typer.Option("--even-if-running", help="also if the query seems to be running; its run then stops")
    ] = False,
    watch: Annotated[
        float, typer.Option("--watch", min=0, metavar="S", help="seconds between two looks, for signs of a run")
    ] = _WATCH_S,
    quiet: Quiet = 60.0,
    output: Output = Format.TEXT,
) -> int:
    """Do what the next start of a query would do first.

    Without Spark, it commits decided transactions and aborts the others, so that they no longer hold back
    read_committed consumers. Exit code: 0 if it is done, or can be with --yes, 1 if something is left that it cannot
    do, 2 if that is not known, or the query seems to be running. A run that waits for rows gives no sign, so make sure
    yourself that there is none.
    """
    from spark_eos.ops import recover as ops
    from spark_eos.ops.drop_planned import drop_planned as drop

    _check_one(checkpoint, query)
    if not checkpoint and not query:
        raise typer.BadParameter("name a CHECKPOINT, or a query by --query ID")
    if abort_only and (settle_only or abort_broken):
        raise typer.BadParameter("--abort-only settles nothing: leave out --settle-only and --abort-broken")
    at = connection(context)
    if drop_planned:
        if not checkpoint or abort_only or settle_only or abort_broken:
            raise typer.BadParameter("--drop-planned takes a CHECKPOINT, and none of the other parts")
        return print_answer(output, lambda: drop(checkpoint, at.hadoop(), at.cluster(), yes=yes))
    part = ops.Part.ABORT if abort_only else ops.Part.SETTLE if settle_only else ops.Part.ALL
    wanted = ops.Wanted(part, yes, even_if_running, abort_broken, watch_s=watch, quiet_s=quiet)
    return print_answer(
        output,
        lambda: ops.recover(at.cluster(), at.checkpoint(checkpoint) if checkpoint else None, query or [], wanted),
    )


def _check_one(checkpoint: str | None, queries: list[str] | None) -> None:
    if checkpoint and queries:
        raise typer.BadParameter("name either a CHECKPOINT or queries by --query ID")
