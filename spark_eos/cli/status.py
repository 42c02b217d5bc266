"""``spark-eos status`` and ``spark-eos recover``: the state of queries, and the first steps of their next start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from spark_eos.cli.options import Format, MaybeLocation, Output, Yes, connection, option, print_answer, switch

if TYPE_CHECKING:
    from spark_eos.ops.answer import Answer

Queries = Annotated[list[str] | None, option("--query", "ID", "id of the query, instead of a checkpoint (repeat)")]
Quiet = Annotated[
    float, typer.Option("--quiet", min=0, metavar="S", help="a sign of a run counts if it is younger than S seconds")
]
_WATCH_S = 3.0
_WATCH = "seconds between two looks, for signs of a run"
_ABORT_BROKEN = (
    "abort a decided micro-batch that has lost rows in one partition (EOS_DECISION_BROKEN), so that the query writes "
    "all of it again"
)
_DROP_PLANNED = (
    "instead: drop the planned micro-batch, if it is not decided, because it is too large; the next start plans it anew"
)


def status(
    context: typer.Context,
    checkpoint: MaybeLocation = None,
    query: Queries = None,
    open_for: Annotated[
        float | None, option("--open-for", "S", "only transactions open for at least S seconds", min=0)
    ] = None,
    watch: Annotated[
        float | None, option("--watch", "S", f"{_WATCH} (default: {_WATCH_S:g}, or 0 for all queries)", min=0)
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

    def answer() -> Answer:
        named = at.checkpoint(checkpoint) if checkpoint else None
        return ops.status(at.cluster(), named, query or [], watch_s=watch_s, quiet_s=quiet, open_for_s=open_for)

    return print_answer(output, answer)


def recover(
    context: typer.Context,
    checkpoint: MaybeLocation = None,
    query: Queries = None,
    yes: Yes = False,
    abort_only: Annotated[
        bool, switch("--abort-only", "only close the query and abort undecided transactions")
    ] = False,
    settle_only: Annotated[bool, switch("--settle-only", "only commit decided transactions")] = False,
    abort_broken: Annotated[bool, switch("--abort-broken", _ABORT_BROKEN)] = False,
    drop_planned: Annotated[bool, switch("--drop-planned", _DROP_PLANNED)] = False,
    even_if_running: Annotated[
        bool, switch("--even-if-running", "also if the query seems to be running; its run then stops")
    ] = False,
    watch: Annotated[float, typer.Option("--watch", min=0, metavar="S", help=_WATCH)] = _WATCH_S,
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
    steps = ops.Steps.ABORT if abort_only else ops.Steps.SETTLE if settle_only else ops.Steps.ALL
    wanted = ops.Wanted(steps, yes, even_if_running, abort_broken, watch_s=watch, quiet_s=quiet)

    def answer() -> Answer:
        named = at.checkpoint(checkpoint) if checkpoint else None
        return ops.recover(at.cluster(), named, query or [], wanted)

    return print_answer(output, answer)


def _check_one(checkpoint: str | None, queries: list[str] | None) -> None:
    if checkpoint and queries:
        raise typer.BadParameter("name either a CHECKPOINT or queries by --query ID")
