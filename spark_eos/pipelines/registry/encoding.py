"""Encodes rows as bytes, each after its schema's id.

The driver registers or looks up the schema (`writing`); workers do not need the registry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from spark_eos.errors import invalid_option, stop
from spark_eos.pipelines.registry.client import registry_of
from spark_eos.pipelines.registry.codecs import writer_of
from spark_eos.pipelines.registry.formats import EncodedValues, Writer
from spark_eos.pipelines.registry.schemas import Kind, Reference, Registered, Schema
from spark_eos.pipelines.registry.settings import RegistrySettings
from spark_eos.pipelines.registry.subjects import Strategy, subject_name
from spark_eos.pipelines.registry.wire import prefix


@dataclass(frozen=True)
class Encoding:
    """How a column is encoded, as it is sent to workers. ``message``: the full name of a Protobuf message."""

    registered: Registered
    message: str | None = None

    def encode(self, rows: pa.Array) -> EncodedValues:
        """Return the bytes of each row, after the schema's id. Raises EosError where no row of this type could be
        written."""
        writer, before = _of_process(self)
        return writer.encode(rows, before)

    def encode_all(self, rows: pa.Array) -> pa.Array:
        """Return the bytes of each row, after the schema's id. Raises RowError (EOS_VALUE_MALFORMED) for the first row
        that the schema cannot hold."""
        result = self.encode(rows)
        if result.bad:
            reason = result.bad[min(result.bad)]
            raise stop("EOS_VALUE_MALFORMED.write", subject=self.registered.subject, reason=reason)
        return result.values


def writing(
    settings: RegistrySettings,
    schema: Schema | None,
    *,
    subject: str | None = None,
    topic: str | None = None,
    strategy: Strategy = "topic",
    key: bool = False,
    message: str | None = None,
    auto_register: bool = True,
) -> Encoding:
    """Choose the schema that rows are written with: ``schema``, which is registered if it is not, or without
    ``auto_register`` has to be; or without a ``schema``, the latest version of the subject.

    Raises OptionError, RegistryError (EOS_REGISTRY_INCOMPATIBLE where the registry refuses the schema), and SchemaError
    for a schema that no column can be written with.
    """
    registry = registry_of(settings)
    record = None if schema is None else writer_of(schema, message).record  # raises before anything is registered
    name = subject_name(subject, topic, strategy, record=record, key=key)
    if schema is None:
        registered = registry.version(name, "latest")
    else:
        registered = registry.register(name, schema) if auto_register else registry.lookup(name, schema)
    writer_of(registered.schema, message)  # with the rules that the subject gives it
    return Encoding(registered, message)


def schema_given(
    settings: RegistrySettings, kind: Kind, text: str, references: Sequence[Mapping[str, object]] = ()
) -> Schema:
    """Return a schema by its text. ``references``: each with ``name``, ``subject`` and ``version``. Raises OptionError
    and RegistryError."""
    registry = registry_of(settings)
    try:
        named = [(str(each["name"]), str(each["subject"]), int(str(each["version"]))) for each in references]
    except (KeyError, TypeError, ValueError):
        given = "without a name, a subject or a whole number as version in one of its entries"
        raise invalid_option("references", given, "'name', 'subject' and 'version' in each") from None
    resolved = [
        Reference(name, used.subject, used.version, used.schema)
        for name, subject, version in named
        for used in [registry.version(subject, version)]
    ]
    return Schema(kind, text, tuple(resolved))


@lru_cache(maxsize=64)
def _of_process(encoding: Encoding) -> tuple[Writer, bytes]:
    writer = writer_of(encoding.registered.schema, encoding.message)
    return writer, prefix(encoding.registered.id, writer.message)
