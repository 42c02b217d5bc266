"""Avro values of a registry, by the codec in `spark_eos.pipelines.registry.avro`.

A whole value whose schema is ``bytes`` is no datum of Avro's: Confluent's clients write the bytes without their size.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from spark_eos.pipelines.registry.avro import DatumEncoder, Decoder, arrow_type, parse
from spark_eos.pipelines.registry.avro import Schema as AvroSchema
from spark_eos.pipelines.registry.avro.schema import Enum, Fixed, Primitive, RecordType
from spark_eos.pipelines.registry.formats import Decode, EncodedValues
from spark_eos.pipelines.registry.schemas import Schema, check_kind


class AvroReader:
    """Reads values of any writer's schema as values of one schema, by Avro's schema resolution."""

    def __init__(self, schema: Schema, message: str | None = None) -> None:
        self._schema = _parsed(schema)
        self.type: pa.DataType = arrow_type(self._schema)

    def of_writer(self, schema: Schema, message: tuple[int, ...]) -> Decode:
        """Return the decoder of this writer's values. Raises SchemaError where they cannot be read as the reader's."""
        check_kind(schema, "AVRO")
        writer = _parsed(schema)
        return Decoder(writer, self._schema, sized=not _is_bytes(writer)).decode


class AvroWriter:
    """Writes rows as values of one schema."""

    message: tuple[int, ...] = ()

    def __init__(self, schema: Schema, message: str | None = None) -> None:
        self._schema = _parsed(schema)

    @property
    def record(self) -> str | None:
        """The full name of the schema; None for one without a name, such as ``string``."""
        return self._schema.name if isinstance(self._schema, RecordType | Enum | Fixed) else None

    def encode(self, rows: pa.Array, prefix: bytes) -> EncodedValues:
        """Return the datum of each row, after the prefix. Raises SchemaError for rows of another type."""
        return _encoder(self._schema, rows.type).encode(rows, prefix)


@lru_cache(maxsize=64)
def _encoder(schema: AvroSchema, type_: pa.DataType) -> DatumEncoder:
    return DatumEncoder(schema, type_, sized=not _is_bytes(schema))


def _is_bytes(schema: AvroSchema) -> bool:
    """Tell whether the schema is ``bytes``, with or without a logical type."""
    return isinstance(schema, Primitive) and schema.type == "bytes"


@lru_cache(maxsize=256)
def _parsed(schema: Schema) -> AvroSchema:
    """Return the schema as a tree. Raises SchemaError."""
    return parse(schema.text, [each.text for each in schema.all_references().values()])
