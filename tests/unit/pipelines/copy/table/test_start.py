"""The start of a query that may give its table columns: what it adds, and that it adds nothing before all else is
checked."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from spark_eos.errors import EosError
from spark_eos.pipelines.copy.plan import Function, RowTransform
from spark_eos.pipelines.copy.sql import SqlTransform
from spark_eos.pipelines.copy.table.options import table_options
from spark_eos.pipelines.copy.table.plan import TablePlan
from spark_eos.pipelines.copy.table.start import check, planned
from spark_eos.pipelines.copy.values import SchemaTransform
from spark_eos.pipelines.registry.decoding import Decoding
from spark_eos.pipelines.registry.schemas import Registered, Schema
from spark_eos.pipelines.registry.settings import registry_settings
from spark_eos.source.schema import ARROW_HEADERS, arrow_schema
from tests.support.tables.table_kinds import KINDS, TableKind

pytestmark = pytest.mark.usefixtures("topic")

READS = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "startingOffsets": "earliest"}
COLUMNS = arrow_schema(include_headers=False)
BEFORE = pa.schema({"partition": pa.int32(), "offset": pa.int64()})


@pytest.fixture(params=KINDS)
def kind(request, tmp_path) -> TableKind:
    return KINDS[request.param](tmp_path / "of_this_kind")


def plan(kind: TableKind, transform: Function | str | None, schema: str = "evolve", **reads: str) -> TablePlan:
    """Of a query that starts."""
    function = SqlTransform(transform) if isinstance(transform, str) else transform
    options = table_options(kind.sink() | {"schema": schema}, {})
    row = None if function is None else RowTransform(function, "f")
    return planned(READS | reads, options, str(kind.folder / "c"), row)


def refused(kind: TableKind, transform: Function | str | None, schema: str = "evolve", **reads: str) -> EosError:
    """Why it does not start. The table keeps its columns."""
    before = columns(kind)
    with pytest.raises(EosError) as error:
        plan(kind, transform, schema, **reads)
    assert columns(kind) == before
    return error.value


def columns(kind: TableKind) -> dict[str, pa.DataType]:
    """Those that the table has now."""
    there = kind.place().columns()
    assert there is not None
    return {field.name: field.type for field in there.schema}


def create(kind: TableKind, schema: pa.Schema = BEFORE) -> None:
    kind.place().target(schema, create=True)


COPIED = '{"#copy": {}, "t": {"0": 5}}'


def checkpoint(kind: TableKind, batch: int, line: str = COPIED) -> None:
    """Of a query that has finished this micro-batch. ``line``: that of its source."""
    folder = kind.folder / "c"
    for log in ("offsets", "commits"):
        Path(folder, log).mkdir(parents=True)
        Path(folder, log, str(batch)).write_text(f"v1\n{{}}\n{line}")
    Path(folder, "metadata").write_text(json.dumps({"id": "q"}))


OLD = """SELECT "partition", "offset" FROM input"""
NEW = """SELECT "offset", decode(value)::INT AS n, {'a': 1::UTINYINT} AS s FROM input"""


def test_columns_are_added_where_the_option_says_so(kind) -> None:
    """With the types that a table has which is created; the plan has the table's columns, in its order."""
    create(kind)
    assert refused(kind, NEW, "fail").entry == "EOS_TABLE_COLUMNS.unknown"
    found = plan(kind, NEW)
    assert found.transform is not None and found.transform.schema == found.table.layout.schema
    small = pa.int16() if kind.name == "delta" else pa.int32()
    new = {"n": pa.int32(), "s": pa.struct([("a", small)])}
    assert columns(kind) == {"partition": pa.int32(), "offset": pa.int64(), **new}
    assert plan(kind, NEW).table.layout == found.table.layout
    assert plan(kind, """SELECT "offset" FROM input""").table.layout == found.table.layout


def test_headers_are_added_where_records_are_copied_as_they_are(kind) -> None:
    """When the source is told to read them."""
    plan(kind, None)
    assert refused(kind, None, "fail", includeHeaders="true").entry == "EOS_TABLE_DIFFERS"
    found = plan(kind, None, includeHeaders="true")
    assert columns(kind)["headers"].equals(pa.list_(pa.field("element", ARROW_HEADERS.type.value_type)))
    assert found.table.layout.schema.names == [*COLUMNS.names, "headers"]
    assert refused(kind, None).entry == "EOS_TABLE_DIFFERS"  # nobody would write them


@pytest.mark.parametrize("line", [COPIED, '{"#copy": {}, "t": {"0"'])
def test_a_table_of_another_checkpoint_is_given_nothing(kind, line) -> None:
    """It does not have what the query has finished. That a line is damaged, its source says."""
    create(kind)
    checkpoint(kind, 3, line)
    assert refused(kind, NEW).entry == "EOS_OTHER_TABLE.behind"


@pytest.mark.parametrize("line", ['{"#ids": {"t": "id"}, "t": {"0": 5}}', '{"t": {"0": 5}}', "-"])
def test_a_checkpoint_of_rows_through_spark_is_refused(kind, line) -> None:
    """Of this source or of Spark's own, however little it has: the table may have the last micro-batch, and does not
    say which rows that has."""
    create(kind)
    checkpoint(kind, 3, line)
    error = refused(kind, NEW)
    assert error.entry == "EOS_OTHER_TABLE.through_spark" and "new checkpoint" in error.hint
    with pytest.raises(EosError) as before_spark:
        check(READS, table_options(kind.sink(), {}), str(kind.folder / "c"), RowTransform(SqlTransform(OLD), "f"))
    assert before_spark.value.entry == error.entry


def schema(*fields: str) -> dict[str, Decoding]:
    """Of records and of their tags, which have these fields besides."""
    tag = {"type": "record", "name": "T", "fields": [{"name": name, "type": "string"} for name in ("t", *fields)]}
    own = [{"name": "id", "type": "int"}, {"name": "tags", "type": {"type": "array", "items": tag}}]
    more = [{"name": name, "type": ["null", "string"], "default": None} for name in fields]
    text = json.dumps({"type": "record", "name": "R", "fields": [*own, *more]})
    registered = Registered("t-value", 1, 7, Schema("AVRO", text))
    return {"value": Decoding(registry_settings("http://127.0.0.1:1"), registered)}


@pytest.mark.parametrize("sql", [None, 'SELECT "offset", value.* FROM input'], ids=["struct", "columns"])
def test_a_readers_schema_with_more_fields_becomes_more_columns(kind, sql) -> None:
    """Fields of the struct, and of those in its lists; or columns, where SQL names all of them by a star."""
    function = None if sql is None else SqlTransform(sql)
    plan(kind, SchemaTransform(function, "f", schema(), to_table=True))
    found = plan(kind, SchemaTransform(function, "f", schema("more"), to_table=True))
    assert found.transform is not None and found.transform.schema == found.table.layout.schema
    inner = {"t": pa.string(), "more": pa.string()}
    fields = {"id": pa.int32(), "tags": pa.list_(pa.field("element", pa.struct(inner))), "more": pa.string()}
    expected = {"offset": pa.int64()} | fields if sql else pa.struct(fields)
    assert (columns(kind) if sql else columns(kind)["value"]) == expected
    again = plan(kind, SchemaTransform(function, "f", schema(), to_table=True))
    assert again.table.layout == found.table.layout  # an earlier version of the schema leaves the rest null
