"""Types of Spark's columns, as they are written by a schema."""

from __future__ import annotations

import pytest
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructType

from spark_eos.errors import EosError
from spark_eos.pipelines.registry.codecs import reader_of
from spark_eos.pipelines.registry.columns import check_type
from spark_eos.pipelines.registry.encoding import Encoding
from spark_eos.pipelines.registry.schemas import Registered, Schema

LOGICAL = {
    "date": "int",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "local-timestamp-micros": "long",
    "uuid": "string",
}


def encoding(*fields: str) -> Encoding:
    text = f'{{"type":"record","name":"R","fields":[{",".join(fields)}]}}'
    return Encoding(Registered("orders-value", 1, 7, Schema("AVRO", text)))


def logical(name: str) -> str:
    """A field of this logical type, called so."""
    type_ = f'{{"type":"{LOGICAL[name]}","logicalType":"{name}"}}'
    return f'{{"name":"{name.replace("-", "_")}","type":{type_}}}'


DECIMAL = '{"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}}'
NESTED = '{"name":"n","type":{"type":"array","items":{"type":"map","values":["null","long"]}}}'


@pytest.mark.parametrize("field", [*map(logical, LOGICAL), DECIMAL, NESTED])
def test_what_is_read_can_be_written(field):
    """Every type that a column gets by a schema is one that the schema takes, by way of Spark's own types."""
    made = encoding(field)
    check_type(made, from_arrow_type(reader_of(made.registered.schema).type))


def test_a_type_that_the_schema_does_not_have_is_refused():
    """Before any row is written."""
    with pytest.raises(EosError, match="EOS_AVRO_COLUMN"):
        check_type(encoding(logical("date")), StructType().add("date", "string"))
