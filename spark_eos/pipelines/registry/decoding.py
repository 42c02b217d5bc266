"""Decodes a column of values of several writers into rows of one type.

The driver chooses the reader's schema (`reading`); workers look up the writers' schemas by id, once each. Values are
grouped by their writer's schema, each group is decoded as a whole, and one `take` restores the order. A null stays
null, and a bad value becomes null, with a reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa

from spark_eos.base.caches import process_cache
from spark_eos.errors import EosError
from spark_eos.pipelines.registry.client import Registry, registry_of
from spark_eos.pipelines.registry.codecs import check_rules_of_reading, reader_of
from spark_eos.pipelines.registry.formats import Decode, DecodedValues, Reader
from spark_eos.pipelines.registry.schemas import Registered
from spark_eos.pipelines.registry.settings import RegistrySettings
from spark_eos.pipelines.registry.unknown_ids import UnknownIds
from spark_eos.pipelines.registry.wire import WriterKey, split

#: The most writers whose decoders, or the reasons why there are none, are kept: a message of Protobuf is a writer.
_MOST_WRITERS = 10_000
#: Errors of one writer's schema, which do not affect the values of other writers.
_OF_THE_SCHEMA = ("EOS_REGISTRY_SCHEMA", "EOS_AVRO_SCHEMA")


@dataclass(frozen=True)
class Decoding:
    """How a column is decoded, as it is sent to workers. ``registered``: the reader's schema; ``message``: the full
    name of its Protobuf message; ``key``: whether these are keys, whose schema another header names."""

    settings: RegistrySettings
    registered: Registered
    message: str | None = None
    key: bool = False

    @cached_property
    def type(self) -> pa.DataType:
        """The type of the rows. Raises EosError for a schema whose values no column can hold."""
        return reader_of(self.registered.schema, self.message).type

    def decode(
        self, values: pa.Array, headers: pa.Array | None = None, unknown: UnknownIds | None = None
    ) -> DecodedValues:
        """Return the values as rows of the type. ``values``: binary; ``headers``: a column like the source's. An id in
        ``unknown`` stays unknown, and other ids that the registry does not know are added there.

        Raises RegistryError where the registry does not answer, or is not the same any more.
        """
        return _of_process(self).decode(values, headers, UnknownIds() if unknown is None else unknown)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "type"}


def reading(
    settings: RegistrySettings,
    subject: str,
    version: int | Literal["latest"] = "latest",
    *,
    message: str | None = None,
    key: bool = False,
) -> Decoding:
    """Look up the version of the subject, as which values are read; "latest" is the latest now.

    Raises RegistryError, and SchemaError for a schema whose values no column can hold.
    """
    decoding = Decoding(settings, registry_of(settings).version(subject, version), message, key)
    _ = decoding.type  # raises for a schema that cannot be read as
    return decoding


@process_cache(maxsize=64)
def _of_process(decoding: Decoding) -> _Decoders:
    reader = reader_of(decoding.registered.schema, decoding.message)
    return _Decoders(reader, registry_of(decoding.settings), decoding.registered, decoding.key)


class _Decoders:
    """The decoders of a column in one process, by writer."""

    def __init__(self, reader: Reader, registry: Registry, registered: Registered, key: bool) -> None:
        self._reader, self._registry, self._registered, self._key = reader, registry, registered, key
        self._messages = registered.schema.kind == "PROTOBUF"
        self._by_writer: dict[WriterKey, Decode | str] = {}

    def decode(self, values: pa.Array, headers: pa.Array | None, ids: UnknownIds) -> DecodedValues:
        named = split(values, headers, key=self._key, messages=self._messages)
        bad, pieces, places = dict(named.bad), [], []
        for number, rows in _groups(named.writer):
            decode = self._of_writer(named.keys[number], ids)
            if isinstance(decode, str):
                bad |= dict.fromkeys(rows.tolist(), decode)
                continue
            part = decode(values if len(rows) == len(values) else values.take(pa.array(rows)), named.begin[rows])
            pieces.append(part.rows)
            places.append(rows)
            bad |= {int(rows[place]): reason for place, reason in part.bad.items()}
        return DecodedValues(_in_order(pieces, places, len(values), self._reader.type), bad)

    def _of_writer(self, key: WriterKey, ids: UnknownIds) -> Decode | str:
        """Return the decoder of a writer's values, or why they cannot be decoded."""
        if ids.counts(key.name):
            return f"{_UNKNOWN} {key}"
        if key not in self._by_writer:
            if len(self._by_writer) >= _MOST_WRITERS:
                self._by_writer.clear()
            try:
                schema = self._registry.schema(key.guid or key.id, self._registered, anew=ids.are_noted)
                check_rules_of_reading(schema)
                self._by_writer[key] = self._reader.of_writer(schema, key.message)
            except EosError as error:
                if error.entry == "EOS_REGISTRY_NOT_FOUND.schema":
                    ids.note_unknown(key.name, str(error.parameters["registry"]))
                    if ids.is_full:
                        ids.ask_only(self._registry.names(self._registered))
                    return f"{_UNKNOWN} {key}"
                if error.condition not in _OF_THE_SCHEMA:
                    raise
                self._by_writer[key] = f"it was written with {key}, which does not fit: {error.message.rstrip('.')}"
        ids.note_known(key.name)
        return self._by_writer[key]


_UNKNOWN = "the registry does not show"


def _groups(writer: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each writer's number and its rows in order; rows without a writer are left out."""
    if not len(writer):
        return
    if writer[0] >= 0 and (writer == writer[0]).all():
        yield int(writer[0]), np.arange(len(writer))
        return
    order = np.argsort(writer, kind="stable")
    numbers, begins = np.unique(writer[order], return_index=True)
    for number, rows in zip(numbers.tolist(), np.split(order, begins[1:]), strict=True):
        if number >= 0:
            yield number, rows


def _in_order(pieces: list[pa.Array], places: list[np.ndarray], count: int, type_: pa.DataType) -> pa.Array:
    """Put the rows of each piece at its row numbers, and null at all others. ``count``: rows of the result."""
    if not pieces:
        return pa.nulls(count, type_)
    if len(pieces) == 1 and len(places[0]) == count:
        return pieces[0]
    where = np.full(count, -1, np.int64)
    where[np.concatenate(places)] = np.arange(sum(map(len, places)))
    rows = pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
    return rows.take(pa.array(where, mask=where < 0))
