"""Record batches decoded before a function, and encoded behind it."""

from __future__ import annotations

import pickle

import polars as pl
import pyarrow as pa
import pytest

from spark_eos.errors import EosError
from spark_eos.registry.batches import RegistryTransform
from spark_eos.registry.encoding import Encoding
from spark_eos.registry.schemas import Registered, Schema

FIELDS = '[{"name":"id","type":"int"},{"name":"x","type":["null","int"],"default":null}]'
SCHEMA = f'{{"type":"record","name":"R","fields":{FIELDS}}}'
ENCODING = Encoding(Registered("orders-value", 1, 7, Schema("AVRO", SCHEMA)))
PREFIX = b"\0\0\0\0\7"
BATCH = pa.RecordBatch.from_pydict({"key": [b"k", None], "id": pa.array([1, 2], pa.int32())})


def encoded(function, **columns) -> object:
    return RegistryTransform(function, "name", **{"value_out": ENCODING, **columns})(BATCH)


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
    assert result.column_names == ["key", "value"]
    assert result["value"].to_pylist() == [PREFIX + b"\x02\x00", PREFIX + b"\x04\x00"]
    assert result["key"].to_pylist() == [b"k", None]


def test_a_key_is_encoded_in_its_place():
    """And a null one stays null."""
    key = Encoding(Registered("orders-key", 1, 9, Schema("AVRO", '"bytes"')))
    result = encoded(lambda batch: batch, key_out=key)
    assert result["key"].to_pylist() == [b"\0\0\0\0\x09\x02k", None]


def test_what_cannot_be_encoded_is_refused():
    """A row that the schema cannot hold, a column that is not there; what is no Arrow is left to the copy."""
    with pytest.raises(EosError, match="EOS_VALUE_MALFORMED"):
        encoded(lambda batch: pa.table({"id": pa.array([None], pa.int32())}))
    with pytest.raises(EosError, match="gives no column 'key'"):
        encoded(lambda batch: batch.select(["id"]), key_out=ENCODING)
    assert encoded(lambda batch: None) is None


def test_nothing_is_done_without_a_schema():
    """The function's result is the copy's."""
    assert RegistryTransform(id, "name")(BATCH) == id(BATCH)


def test_it_travels_to_workers():
    """With what the driver has fixed."""
    transform = RegistryTransform(len, "name", value_out=ENCODING, drops=True)
    assert pickle.loads(pickle.dumps(transform)) == transform
