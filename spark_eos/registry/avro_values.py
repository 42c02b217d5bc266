"""Avro by the codec of `spark_eos.registry.avro`."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

from spark_eos.errors import stop
from spark_eos.registry.avro import Decoder, Encoder, arrow_type, parse
from spark_eos.registry.avro import Schema as AvroSchema
from spark_eos.registry.avro.schema import Enum, Fixed, Record
from spark_eos.registry.formats import Decode, Decoded, Encoded
from spark_eos.registry.schemas import Schema


class AvroReader:
    """Reads values as one schema has them, by Avro's rules of evolution."""

    def __init__(self, schema: Schema) -> None:
        self._schema = _parsed(schema)
        self.type: pa.DataType = arrow_type(self._schema)

    def of_writer(self, schema: Schema, message: tuple[int, ...]) -> Decode:
        """Raises SchemaError where the writer's values cannot be read as the reader's."""
        if schema.kind != "AVRO":
            raise stop("EOS_REGISTRY_SCHEMA.other_kind", kind=schema.kind, expected="AVRO")
        decoder = Decoder(_parsed(schema), self._schema)

        def decode(values: pa.Array, begin: np.ndarray) -> Decoded:
            found = decoder.decode(values, begin=begin)
            return Decoded(found.rows, found.bad)

        return decode


class AvroWriter:
    """Writes rows by one schema."""

    message: tuple[int, ...] = ()

    def __init__(self, schema: Schema) -> None:
        self._schema = _parsed(schema)

    @property
    def record(self) -> str | None:
        """None for a schema without a name, such as that of a text."""
        return self._schema.name if isinstance(self._schema, Record | Enum | Fixed) else None

    def encode(self, rows: pa.Array, prefix: bytes) -> Encoded:
        """Raises SchemaError for rows of another type."""
        found = _encoder(self._schema, rows.type).encode(rows, prefix=prefix)
        return Encoded(found.values, found.bad)


@lru_cache(maxsize=64)
def _encoder(schema: AvroSchema, type_: pa.DataType) -> Encoder:
    return Encoder(schema, type_)


@lru_cache(maxsize=256)
def _parsed(schema: Schema) -> AvroSchema:
    """Raises SchemaError."""
    return parse(schema.text, [each.text for each in schema.all_references().values()])
