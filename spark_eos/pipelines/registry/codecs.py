"""Choose the reader or the writer of a schema by its kind, and import its module then."""

from __future__ import annotations

from collections.abc import Callable

from spark_eos.errors import stop
from spark_eos.pipelines.registry.formats import Reader, Writer
from spark_eos.pipelines.registry.schemas import Kind, Rule, Schema

#: Modes of rules that are for one direction alone; a rule of any other mode is for both.
_WHEN_READ = ("READ", "UPGRADE", "DOWNGRADE", "UPDOWN")
_WHEN_WRITTEN = ("WRITE",)


def reader_of(schema: Schema, message: str | None = None) -> Reader:
    """Return a reader of values as this schema's type. ``message``: the full name of a Protobuf message, by default the
    first in the file. Raises EosError for a schema whose values no column can hold, or have to be changed when read."""
    check_rules_of_reading(schema)
    reader, _ = _codec(schema.kind)
    return reader(schema, message)


def writer_of(schema: Schema, message: str | None = None) -> Writer:
    """Return a writer of rows by this schema. ``message``: the full name of a Protobuf message, by default the first in
    the file. Raises EosError for a schema that cannot be written by."""
    _check_rules(schema, "write", [rule for rule in schema.rules if rule.mode not in _WHEN_READ])
    _, writer = _codec(schema.kind)
    return writer(schema, message)


def _codec(kind: Kind) -> tuple[Callable[[Schema, str | None], Reader], Callable[[Schema, str | None], Writer]]:
    """Import the reader and the writer of a kind; each is made of a schema and the name of a message."""
    if kind == "PROTOBUF":
        from spark_eos.pipelines.registry.protobuf_values import ProtobufReader, ProtobufWriter

        return ProtobufReader, ProtobufWriter
    if kind == "JSON":
        from spark_eos.pipelines.registry.json_values import JsonReader, JsonWriter

        return JsonReader, JsonWriter
    from spark_eos.pipelines.registry.avro_values import AvroReader, AvroWriter

    return AvroReader, AvroWriter


def check_rules_of_reading(schema: Schema) -> None:
    """Raise RegistryError (EOS_REGISTRY_SCHEMA) for a schema whose rules Confluent's clients apply when they read."""
    _check_rules(schema, "read", [rule for rule in schema.rules if rule.mode not in _WHEN_WRITTEN])


def _check_rules(schema: Schema, when: str, rules: list[Rule]) -> None:
    if rules:
        raise stop("EOS_REGISTRY_SCHEMA.rules", kind=schema.kind, rule=rules[0].name, mode=rules[0].mode, when=when)
