"""Adds the columns that a table lacks for the rows of a query: behind its own, and nullable.

Fields of structs are added, too, also of structs in lists, but not in the values of maps, as delta-rs cannot read older
files of such a table. Existing columns keep their type, position and nullability.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa
import pyarrow.types as types

from spark_eos.errors import stop
from spark_eos.pipelines.arrow_fields import is_list


def widened(there: pa.Schema, given: pa.Schema) -> pa.Schema:
    """Return the table's columns ``there``, followed by the other columns of ``given``. Raises SchemaError for a name
    that differs from another one in capital letters only."""
    return pa.schema(_fields(list(there), list(given), ""))


def _fields(there: Sequence[pa.Field], given: Iterable[pa.Field], above: str) -> list[pa.Field]:
    new = {field.name: field for field in given}
    kept = [
        field.with_type(_type(field.type, new.pop(field.name).type, f"{above}{field.name}."))
        if field.name in new
        else field
        for field in there
    ]
    fields = [*kept, *new.values()]
    names = [field.name.lower() for field in fields]
    for name in new:
        if names.count(name.lower()) > 1:
            raise stop("EOS_TABLE_COLUMNS.twice", column=above + name)
    return fields


def _type(there: pa.DataType, given: pa.DataType, above: str) -> pa.DataType:
    if types.is_struct(there) and types.is_struct(given):
        return pa.struct(_fields(there.fields, given.fields, above))
    if types.is_list(there) and is_list(given):
        return pa.list_(there.value_field.with_type(_type(there.value_type, given.value_type, f"{above}element.")))
    return there


def added(there: pa.Schema, wide: pa.Schema) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    """Yield the path and the type of each column and field that `widened` has added."""
    yield from _added(list(there), list(wide), ())


def _added(
    there: Sequence[pa.Field], wide: Iterable[pa.Field], above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    before = {field.name: field.type for field in there}
    for field in wide:
        path = (*above, field.name)
        if field.name not in before:
            yield path, field.type
        else:
            yield from _within(before[field.name], field.type, path)


def _within(
    there: pa.DataType, wide: pa.DataType, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    if types.is_struct(there):
        yield from _added(there.fields, wide.fields, path)
    elif types.is_list(there):
        yield from _within(there.value_type, wide.value_type, (*path, "element"))


#: A column of a table, as its library has it.
C = TypeVar("C")


def differences(written: Mapping[str, C], there: Mapping[str, C], in_words: Callable[[C], str]) -> list[str]:
    """Describe differences between written columns and a table's, by name. ``in_words``: describes a column's type."""
    unlike = [f"the table has no {name}" for name in written if name not in there]
    unlike += [f"{name} is not written" for name in there if name not in written]
    for name, column in written.items():
        if name in there and column != there[name]:
            unlike.append(f"{name} is {in_words(there[name])} in the table, and written as {in_words(column)}")
    return unlike


def in_words(paths: Iterable[Sequence[str]]) -> str:
    """Return the paths as text, for messages and the log."""
    return ", ".join(".".join(path) for path in paths)
