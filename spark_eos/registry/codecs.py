"""The reader and the writer of a schema; their modules are imported when they are used."""

from __future__ import annotations

from spark_eos.registry.formats import Reader, Writer
from spark_eos.registry.schemas import Schema


def reader_of(schema: Schema, message: str | None = None) -> Reader:
    """Reads values as this schema has them. ``message``: the full name of Protobuf's; by default the file's first.

    Raises EosError for a schema whose values no column can hold.
    """
    if schema.kind == "PROTOBUF":
        from spark_eos.registry.protobuf_values import ProtobufReader

        return ProtobufReader(schema, message)
    if schema.kind == "JSON":
        from spark_eos.registry.json_values import JsonReader

        return JsonReader(schema)
    from spark_eos.registry.avro_values import AvroReader

    return AvroReader(schema)


def writer_of(schema: Schema, message: str | None = None) -> Writer:
    """Writes rows by this schema; see `reader_of`."""
    if schema.kind == "PROTOBUF":
        from spark_eos.registry.protobuf_values import ProtobufWriter

        return ProtobufWriter(schema, message)
    if schema.kind == "JSON":
        from spark_eos.registry.json_values import JsonWriter

        return JsonWriter(schema)
    from spark_eos.registry.avro_values import AvroWriter

    return AvroWriter(schema)
