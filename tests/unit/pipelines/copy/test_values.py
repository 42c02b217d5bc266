"""Record batches decoded before a function, and encoded behind it."""

from __future__ import annotations

from uuid import UUID

import polars as pl
import pyarrow as pa
import pytest

from spark_eos.errors import EosError
from spark_eos.pipelines.copy.values import SchemaTransform
from spark_eos.pipelines.registry.client import registry_of
from spark_eos.pipelines.registry.decoding import Decoding
from spark_eos.pipelines.registry.encoding import Encoding
from spark_eos.pipelines.registry.schemas import Registered, Schema
from spark_eos.pipelines.registry.settings import registry_settings
from spark_eos.pipelines.registry.wire import KEY_HEADER, VALUE_HEADER
from spark_eos.source.schema import ARROW_HEADERS

FIELDS = '[{"name":"id","type":"int"},{"name":"x","type":["null","int"],"default":null}]'
SCHEMA = f'{{"type":"record","name":"R","fields":{FIELDS}}}'
ENCODING = Encoding(Registered("orders-value", 1, 7, Schema("AVRO", SCHEMA)))
KEY_ENCODING = Encoding(Registered("orders-key", 1, 9, Schema("AVRO", '"bytes"')))
DECODING = Decoding(registry_settings("http://127.0.0.1:1"), ENCODING.registered)
PREFIX = b"\0\0\0\0\7"
BATCH = pa.RecordBatch.from_pydict({"key": [b"k", None], "id": pa.array([1, 2], pa.int32())})


def encoded(function, **columns) -> pa.RecordBatch:
    return SchemaTransform(function, "name", {}, {"value": ENCODING, **columns})(BATCH)


@pytest.mark.parametrize(
    "function",
    [
        lambda batch: batch,
        lambda batch: pa.Table.from_batches([batch]),
        lambda batch: pa.Table.from_batches([batch.slice(0, 1), batch.slice(1)]),
        lambda batch: pl.from_arrow(batch),
        lambda batch: pa.table({"key": batch["key"], "value": batch.select(["id"]).to_struct_array()}),
    ],
    ids=["batch", "table", "chunks", "polars", "value"],
)
def test_columns_that_are_none_of_the_sinks_are_the_fields_of_the_value(function):
    """Or a column ``value`` is; of whatever exports Arrow. A field without a column is null."""
    result = encoded(function)
    assert result.schema.names == ["key", "value"]
    assert result["value"].to_pylist() == [PREFIX + b"\x02\x00", PREFIX + b"\x04\x00"]
    assert result["key"].to_pylist() == [b"k", None]


def test_a_key_is_encoded_in_its_place():
    """And a null one stays null."""
    result = encoded(lambda batch: batch, key=KEY_ENCODING)
    assert result["key"].to_pylist() == [b"\0\0\0\0\x09k", None]


def headers(*lists: list[str] | None) -> pa.Array:
    pairs = [
        None if names is None else [{"key": name, "value": b"\1" + bytes(16)} for name in names] for names in lists
    ]
    return pa.array(pairs, ARROW_HEADERS.type)


def test_headers_that_name_the_schema_of_what_was_read_are_left_out():
    """Of columns that are encoded: who reads them would believe the header. All others stay, and slices are right; also
    of what becomes a list of headers later."""
    given = headers(["a"], ["a", VALUE_HEADER, KEY_HEADER, VALUE_HEADER, "b"], None, [], [VALUE_HEADER], ["c"])
    ids = pa.array(range(6), pa.int32())
    for skipped in range(6):
        table = pa.RecordBatch.from_pydict({"id": ids, "headers": given}).slice(skipped)
        found = encoded(lambda batch, table=table: table)["headers"]
        names = [None if one is None else [each["key"] for each in one] for one in found.to_pylist()]
        assert names == [["a"], ["a", KEY_HEADER, "b"], None, [], [], ["c"]][skipped:]
        found.validate(full=True)
    pairs = [(name, b"x") for name in ("a", VALUE_HEADER, KEY_HEADER, "b")]
    mapped = pa.array([pairs], pa.map_(pa.string(), pa.binary()))
    both = encoded(lambda batch: pa.table({"id": ids[:1], "key": [b"k"], "headers": mapped}), key=KEY_ENCODING)
    assert [each["key"] for each in both["headers"][0].as_py()] == ["a", "b"]


@pytest.mark.parametrize("said", [False, True])
def test_a_key_is_read_with_the_schema_that_the_header_of_keys_names(said):
    """And a value with that of values, whatever was said when their readers were chosen."""
    fields = [[f'{{"name":"{name}","type":"string"}}' for name in names] for names in ("ab", "ba")]
    schemas = [Schema("AVRO", f'{{"type":"record","name":"R","fields":[{",".join(each)}]}}') for each in fields]
    settings = registry_settings("http://127.0.0.1:1")
    for number, schema in enumerate(schemas):
        registry_of(settings)._schemas[str(UUID(int=number))] = schema
    named = [
        {"key": KEY_HEADER, "value": b"\1" + UUID(int=0).bytes},
        {"key": VALUE_HEADER, "value": b"\1" + UUID(int=1).bytes},
    ]
    columns = {"key": [b"\x02A\x02B"], "value": [b"\x02B\x02A"], "headers": pa.array([named], ARROW_HEADERS.type)}
    decode = {name: Decoding(settings, Registered("s", 1, 1, schemas[0]), key=said) for name in ("key", "value")}
    found = SchemaTransform(None, "name", decode, to_table=True)(pa.RecordBatch.from_pydict(columns))
    assert found["key"].to_pylist() == found["value"].to_pylist() == [{"a": "A", "b": "B"}]
    registry_of.cache_clear()


def test_what_cannot_be_encoded_is_refused():
    """A row that does not fit and whose record nobody knows, a column that is not there, and what is no Arrow."""
    with pytest.raises(EosError, match="EOS_VALUE_MALFORMED"):
        encoded(lambda batch: pa.table({"id": pa.array([None], pa.int32())}))
    with pytest.raises(EosError, match="no column 'key'"):
        encoded(lambda batch: batch.select(["id"]), key=ENCODING)
    with pytest.raises(EosError, match="NoneType, not Arrow"):
        encoded(lambda batch: None)


def test_rows_that_the_schema_cannot_hold_are_rejected_by_their_offsets():
    """Where the result has them; a row that the function rejects itself need not fit."""
    batch = pa.RecordBatch.from_pydict({"offset": pa.array([5, 6, 8], pa.int64()), "topic": ["t"] * 3})

    def function(given: pa.RecordBatch) -> pa.RecordBatch:
        errors = pa.array([None, None, "no"], pa.string())
        columns = {"id": pa.array([1, None, None], pa.int32()), "offset": given.column("offset"), "error": errors}
        return pa.RecordBatch.from_pydict(columns)

    rows, rejected = SchemaTransform(function, "name", {}, {"value": ENCODING}).rejecting(batch)
    assert list(rejected) == [1]
    assert rejected[1].startswith("the value: ")
    assert rows.column("offset").to_pylist() == [5, 8]
    assert rows.column("value")[0].as_py() == PREFIX + b"\x02\x00"


def test_a_row_that_does_not_fit_and_names_another_record_is_refused():
    """It would be left out without a word."""
    batch = pa.RecordBatch.from_pydict({"offset": pa.array([5], pa.int64()), "topic": ["t"]})
    for offset in (99, None):
        result = pa.RecordBatch.from_pydict(
            {"id": pa.array([None], pa.int32()), "offset": pa.array([offset], pa.int64())}
        )
        with pytest.raises(EosError, match="which it was not given"):
            SchemaTransform(lambda _, rows=result: rows, "name", {}, {"value": ENCODING}).rejecting(batch)


def test_a_transform_with_other_schemas_has_another_name():
    """By which a decision knows it."""
    other = Encoding(
        Registered("orders-value", 2, 8, Schema("AVRO", SCHEMA.replace("orders", "o").replace('"x"', '"y"')))
    )
    names = {SchemaTransform(len, "len", {}, {"value": one}).name for one in (ENCODING, other)}
    assert len(names) == 2
    assert all(name.startswith("len+") for name in names)


def test_what_is_unknown_is_noted_by_column_and_comes_back_for_the_same_range():
    """Ids and GUIDs; a range that nobody has read has no note."""
    given = SchemaTransform(None, "name", {"key": DECODING, "value": DECODING})
    assert given.unknown == ()
    first = given.for_range(None)
    first.unknown_ids["value"].note_unknown("17", "here")
    first.unknown_ids["value"].note_unknown("9", "here")
    first.unknown_ids["key"].note_unknown("89791762-2336-4186-9674-299b90a802e2", "here")
    noted = ("key 89791762-2336-4186-9674-299b90a802e2", "value 9..17")
    assert first.unknown == noted
    assert (given.unknown, given.for_range(None).unknown) == ((), ())
    again = given.for_range(noted)
    assert again.unknown == noted and again == given
    assert again.unknown_ids["value"].names == ("9..17",)
    with pytest.raises(EosError, match=r"EOS_REGISTRY_CHANGED.*schema 17 "):
        again.unknown_ids["key"].note_unknown("17", "here")
