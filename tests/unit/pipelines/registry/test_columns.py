"""Types of Spark's columns, as they are written by a schema."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from spark_eos.errors import EosError
from spark_eos.pipelines.registry.columns import check_type
from spark_eos.pipelines.registry.encoding import Encoding
from spark_eos.pipelines.registry.schemas import Registered, Schema

TIME = '{"name":"t","type":{"type":"long","logicalType":"timestamp-micros"}}'


def test_a_type_that_the_schema_does_not_have_is_refused():
    """Before any row is written. Spark's timestamps are moments of any zone."""
    text = f'{{"type":"record","name":"R","fields":[{TIME}]}}'
    encoding = Encoding(Registered("orders-value", 1, 7, Schema("AVRO", text)))
    check_type(encoding, StructType().add("t", "timestamp"))
    with pytest.raises(EosError, match="EOS_AVRO_COLUMN"):
        check_type(encoding, StructType().add("t", "string"))
