"""Choose the reader or the writer of a schema by its kind, and import its module then."""

from __future__ import annotations

from spark_eos.registry.formats import Reader, Writer
from spark_eos.registry.schemas import Schema


def reader_of(schema: Schema, message: str | None = None) -> Reader:
    """A reader of values as this schema's type. ``message``: the full name of a Protobuf message, by default the first
    in the file. Raises EosError for a schema whose values no column can hold."""
    if schema.kind == "PROTOBUF":
        from spark_eos.registry.protobuf_values import ProtobufReader

        return ProtobufReader(schema, message)
    if schema.kind == "JSON":
        from spark_eos.registry.json_values import JsonReader

        return JsonReader(schema)
    from spark_eos.registry.avro_values import AvroReader

    return AvroReader(schema)


def writer_of(schema: Schema, message: str | None = None) -> Writer:
    """A writer of rows by this schema. ``message``: the full name of a Protobuf message, by default the first in the
    file. Raises EosError for a schema that cannot be written by."""
    if schema.kind == "PROTOBUF":
        from spark_eos.registry.protobuf_values import ProtobufWriter

        return ProtobufWriter(schema, message)
    if schema.kind == "JSON":
        from spark_eos.registry.json_values import JsonWriter

        return JsonWriter(schema)
    from spark_eos.registry.avro_values import AvroWriter

    return AvroWriter(schema)
