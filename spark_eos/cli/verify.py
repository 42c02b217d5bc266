"""``spark-eos verify``."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from spark_eos.base.printable import json_text, printable_lines
from spark_eos.cli.options import Format, Output, connection, print_error
from spark_eos.errors import EosError

if TYPE_CHECKING:
    from spark_eos.tools.verify import Comparison


class OrderChoice(StrEnum):
    """The rows that have to keep their order: those of one input partition, those of one key, or none."""

    INPUT_PARTITION = "input-partition"
    KEY = "key"
    NONE = "none"


def verify(
    context: typer.Context,
    inputs: Annotated[
        list[str], typer.Option("--input", metavar="TOPIC", help="input topic (repeat), or a table, delta:PATH")
    ],
    outputs: Annotated[
        list[str],
        typer.Option(
            "--output", metavar="TOPIC", help="output topic (repeat), or a table, delta:PATH or iceberg:NAMESPACE.NAME"
        ),
    ],
    id_: Annotated[
        str,
        typer.Option(
            "--id", metavar="WHERE", help="key, value, header:NAME or json:FIELD; of a table also column:NAME or place"
        ),
    ],
    output_id: Annotated[
        str | None,
        typer.Option(metavar="WHERE", help="the same for the output (default: like --id)", show_default=False),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(metavar="GROUP", help="only rows below its offsets are due (default: all)", show_default=False),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="only rows below the end offsets that the table has of it are due",
            show_default=False,
        ),
    ] = None,
    order: Annotated[
        OrderChoice | None,
        typer.Option(help="which rows keep their order (default: input-partition; tables: none)", show_default=False),
    ] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="rows may be missing, as the job filters them")
    ] = False,
    same_value: Annotated[bool, typer.Option("--same-value", help="a changed value is a fault (torn)")] = False,
    json_: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="also write the report to this file", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="examples of each fault")] = 5,
    timeout_s: Annotated[float, typer.Option("--timeout", metavar="S", help="seconds to wait for the cluster")] = 12.0,
    output: Output = Format.TEXT,
) -> int:
    """Check that rows were copied exactly once.

    Reads topics and tables as any consumer or reader does, and reports rows that were lost, doubled or reordered, or
    should not be there.
    Exit code: 0 if nothing is wrong, 1 if something is, 2 if the check was not possible, or there was nothing to
    compare.
    """

    from spark_eos.tools import verify as ops

    try:
        found = connection(context)
        settings = found.hadoop().on_this_machine()
        (input_topics, input_table), (output_topics, output_table) = (
            ops.side(names, settings) for names in (inputs, outputs)
        )
        if order is None:
            order = OrderChoice.INPUT_PARTITION if input_table is output_table is None else OrderChoice.NONE
        comparison = ops.Comparison(
            kafka=found.client(),
            inputs=input_topics,
            outputs=output_topics,
            input_table=input_table,
            output_table=output_table,
            id=ops.IdPlace.parse(id_),
            output_id=ops.IdPlace.parse(output_id or id_),
            group=group,
            query=query,
            order=order.value,
            allow_missing=allow_missing,
            same_value=same_value,
            limit=limit,
            timeout_s=timeout_s,
        )
        return _answer(comparison, json_, output)
    except EosError as error:
        return print_error(output, error, 2)


def _answer(comparison: Comparison, file: str | None, output: Format) -> int:
    from pathlib import Path

    from spark_eos.tools import verify as ops

    with _progress_line() as progress:
        report = ops.verify(comparison, progress)
    text = json_text(ops.as_json(comparison, report))
    print(text if output is Format.JSON else printable_lines(ops.as_text(comparison, report)))
    if file:
        try:
            Path(file).write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            print(f"spark-eos: {file} cannot be written: {error.strerror}", file=sys.stderr)
            return 2
    return 0 if report.ok else 1 if report.faults else 2


@contextlib.contextmanager
def _progress_line() -> Iterator[Callable[[str], None]]:
    """Prints a progress line that overwrites itself, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    try:
        yield lambda text: print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
