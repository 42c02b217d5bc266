"""``spark-eos verify``."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spark_eos.base.printable import json_text
from spark_eos.cli.options import Format, Output, connection, option, print_answer, switch

if TYPE_CHECKING:
    from spark_eos.ops.answer import Answer
    from spark_eos.tools.verify import Comparison


class OrderChoice(StrEnum):
    """The rows that have to keep their order: of an input partition, of a key, or none."""

    INPUT_PARTITION = "input-partition"
    KEY = "key"
    NONE = "none"


_ID = "key, value, header:NAME or json:FIELD; of a table also column:NAME or place"
_QUERY = "the same, by the end offsets that the table has of this query"


def verify(
    context: typer.Context,
    inputs: Annotated[list[str], option("--input", "TOPIC", "input topic (repeat), or a table, delta:PATH")],
    outputs: Annotated[
        list[str],
        option("--output", "TOPIC", "output topic (repeat), or a table, delta:PATH or iceberg:NAMESPACE.NAME"),
    ],
    id_: Annotated[str, option("--id", "WHERE", _ID)],
    output_id: Annotated[
        str | None, option("--output-id", "WHERE", "the same for the output (default: like --id)")
    ] = None,
    group: Annotated[
        str | None, option("--group", "GROUP", "only rows below its offsets must be in the output (default: all)")
    ] = None,
    query: Annotated[str | None, option("--query", "ID", _QUERY)] = None,
    order: Annotated[
        OrderChoice | None,
        typer.Option(help="which rows keep their order (default: input-partition; tables: none)", show_default=False),
    ] = None,
    allow_missing: Annotated[bool, switch("--allow-missing", "rows may be missing, as the job filters them")] = False,
    same_value: Annotated[bool, switch("--same-value", "a changed value is a fault (torn)")] = False,
    json_: Annotated[str | None, option("--json", "FILE", "also write the report to this file")] = None,
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

    def answer() -> Answer:
        at = connection(context)
        settings = at.hadoop().on_this_machine()
        (input_topics, input_table), (output_topics, output_table) = (
            ops.side(names, settings) for names in (inputs, outputs)
        )
        of_topics = input_table is None and output_table is None
        comparison = ops.Comparison(
            kafka=at.properties,
            inputs=input_topics,
            outputs=output_topics,
            input_table=input_table,
            output_table=output_table,
            id=ops.IdPlace.parse(id_),
            output_id=ops.IdPlace.parse(output_id or id_),
            group=group,
            query=query,
            order=(order or (OrderChoice.INPUT_PARTITION if of_topics else OrderChoice.NONE)).value,
            allow_missing=allow_missing,
            same_value=same_value,
            limit=limit,
            timeout_s=timeout_s,
        )
        return _compared(comparison, json_)

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it removes the rows on disk, as Ctrl-C does
    return print_answer(output, answer)


def _compared(comparison: Comparison, file: str | None) -> Answer:
    """Show the report, which is also written to ``file``."""
    from spark_eos.ops.answer import Answer
    from spark_eos.tools import verify as ops

    with _progress_line() as progress:
        report = ops.verify(comparison, progress)
    data, code = ops.as_json(comparison, report), 0 if report.ok else 1 if report.faults else 2
    if file:
        try:
            Path(file).write_text(json_text(data) + "\n", encoding="utf-8")
        except OSError as error:
            print(f"spark-eos: {file} cannot be written: {error.strerror}", file=sys.stderr)
            code = 2
    return Answer(data, ops.as_text(comparison, report), code)


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
