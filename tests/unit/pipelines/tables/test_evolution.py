"""Which columns a table is given for rows that have more than it: without a table."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.pipelines.tables.evolution import added, widened
from tests.support.judges.conditions import raises

NAMES = st.sampled_from("abcd")
TYPES = st.recursive(
    st.sampled_from([pa.int32(), pa.int64(), pa.string()]),
    lambda inner: st.one_of(
        st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(lambda fields: pa.struct(list(fields.items()))),
        inner.map(lambda type_: pa.list_(pa.field("element", type_))),
        inner.map(lambda type_: pa.map_(pa.string(), type_)),
    ),
    max_leaves=6,
)
SCHEMAS = st.dictionaries(NAMES, TYPES, min_size=1, max_size=4).map(pa.schema)


def paths(schema: pa.Schema) -> dict[tuple[str, ...], pa.DataType]:
    """Each column and field by its path, with its type; those of structs and lists without what is in them."""
    return {path: type_ for field in schema for path, type_ in _paths(field, ())}


def _paths(field: pa.Field, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    path = (*above, field.name)
    if pa.types.is_struct(field.type):
        yield path, "struct"
        for one in field.type.fields:
            yield from _paths(one, path)
    elif pa.types.is_list(field.type):
        yield path, "list"
        yield from _paths(field.type.value_field, path)
    else:
        yield path, field.type


@given(there=SCHEMAS, more=SCHEMAS)
def test_what_the_table_has_stays_and_what_it_lacks_comes_behind_it(there: pa.Schema, more: pa.Schema) -> None:
    """At any depth of structs and lists; a path whose type is another one in the table gets nothing."""
    wide = widened(there, more)
    before, wanted, after = paths(there), paths(more), paths(wide)
    assert {path: after[path] for path in before} == before
    assert [path for path in after if path in before] == list(before)

    def can_be(path: tuple[str, ...]) -> bool:
        """Each container above it that the table has is of the same kind there."""
        above = [path[:length] for length in range(1, len(path))]
        return path not in before and all(before[each] == wanted[each] for each in above if each in before)

    new = {path: type_ for path, type_ in wanted.items() if can_be(path)}
    assert after == before | new
    first = {path for path in new if path[:-1] not in new}
    assert {path for path, _ in added(there, wide)} == first
    assert wide.names[: len(there.names)] == there.names
    assert widened(wide, more) == wide and not list(added(wide, wide))


def test_columns_keep_what_only_the_table_knows_of_them() -> None:
    """Whether they may be null, and their metadata, also within structs."""
    inner = pa.field("a", pa.int32(), nullable=False, metadata={"id": "2"})
    there = pa.schema([pa.field("s", pa.struct([inner]), nullable=False, metadata={"id": "1"})])
    wide = widened(there, pa.schema({"s": pa.struct([("a", pa.int64()), ("b", pa.string())]), "c": pa.int8()}))
    wanted = pa.schema(
        [
            pa.field("s", pa.struct([inner, ("b", pa.string())]), nullable=False, metadata={"id": "1"}),
            pa.field("c", pa.int8()),
        ]
    )
    assert wide.equals(wanted, check_metadata=True)


@pytest.mark.parametrize(
    ("more", "column"),
    [({"S": pa.int32()}, "S"), ({"s": pa.struct([("A", pa.int32())])}, "s.A"), ({"c": pa.int8(), "C": pa.int8()}, "c")],
)
def test_names_that_differ_in_capital_letters_only_are_refused(more, column) -> None:
    """Readers take them for one column, or for none."""
    with raises("EOS_TABLE_COLUMNS.twice", f"name {column};"):
        widened(pa.schema({"s": pa.struct([("a", pa.int32())])}), pa.schema(more))
