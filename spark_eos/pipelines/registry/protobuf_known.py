"""Check messages that ptars reads as one value, such as Timestamp: none is there twice, and no time is out of range.

Protobuf merges a message that is there twice field by field; of these, ptars keeps the last one. It also takes any
number of seconds and nanoseconds. So the same bytes are read a second time, by a message that has no other fields than
these, as lists: of seconds and nanoseconds for times, of bytes for others. All other fields are skipped, which takes
little time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

_FILE = "spark_eos.known.proto"
#: A field with this prefix must not be there twice.
_ONCE = "once"
#: Times, with the name that their first field gets: seconds since 1970, and seconds.
_TIMES = {"google.protobuf.Timestamp": "since", "google.protobuf.Duration": "seconds"}
#: The range of seconds: the years 1 to 9999, and 10,000 years.
RANGES = {"since": (-62_135_596_800, 253_402_300_799), "seconds": (-315_576_000_000, 315_576_000_000)}
_NANOS = 999_999_999


def known_fields(message: Descriptor, type_: pa.DataType) -> Descriptor | None:
    """Return a message with ``message``'s fields of messages that ptars knows, as lists; None if there are none.
    ``type_``: the struct that ptars has for ``message``, in which they are no structs."""
    file = FileDescriptorProto(name=_FILE, syntax="proto3")
    for name, first in _TIMES.items():
        fields = [
            _field(1, first, type=FieldDescriptorProto.TYPE_INT64),
            _field(2, "nanos", type=FieldDescriptorProto.TYPE_INT32),
        ]
        file.message_type.append(DescriptorProto(name=name.rpartition(".")[2], field=fields))
    made = _Lists(file, {}).name_of(message, type_)
    if made is None:
        return None
    pool = DescriptorPool()
    pool.Add(file)
    return pool.FindMessageTypeByName(made)


def is_malformed(column: pa.Array, *, once: bool = False) -> bool:
    """Tell whether a column of `known_fields`' messages has a message twice, or a time out of range."""
    if pa.types.is_struct(column.type):
        fields = [field.name for field in column.type]
        children = column.drop_null().flatten()
        if fields[0] in RANGES:
            time_s, nanos = (child.to_numpy() for child in children)
            return _is_out_of_range(time_s, nanos, *RANGES[fields[0]])
        return any(
            is_malformed(child, once=name.startswith(_ONCE)) for name, child in zip(fields, children, strict=True)
        )
    if once and (pc.max(pc.list_value_length(column)).as_py() or 0) > 1:
        return True
    return pa.types.is_struct(column.type.value_type) and is_malformed(column.flatten())


def _is_out_of_range(time_s: np.ndarray, nanos: np.ndarray, least: int, most: int) -> bool:
    """Tell whether a time is no Timestamp or Duration; nanoseconds of a Duration have the sign of its seconds."""
    lowest = np.where(time_s > 0, 0, -_NANOS) if least == -most else 0
    highest = np.where(time_s < 0, 0, _NANOS) if least == -most else _NANOS
    return bool(((time_s < least) | (time_s > most) | (nanos < lowest) | (nanos > highest)).any())


class _Lists:
    """Adds such messages to a file. ``made``: their names, by the name of the message that each replaces."""

    def __init__(self, file: FileDescriptorProto, made: dict[str, str | None]) -> None:
        self._file, self._made = file, made

    def name_of(self, message: Descriptor, type_: pa.DataType) -> str | None:
        """Return the name of the message that is made; None where it would have no fields."""
        if message.full_name not in self._made:
            fields = [self._of_field(field, type_.field(field.name).type) for field in message.fields]
            self._made[message.full_name] = self._add([field for field in fields if field is not None])
        return self._made[message.full_name]

    def _add(self, fields: list[FieldDescriptorProto]) -> str | None:
        if not fields:
            return None
        name = f"M{len(self._file.message_type)}"
        self._file.message_type.append(DescriptorProto(name=name, field=fields))
        return name

    def _of_field(self, field: FieldDescriptor, type_: pa.DataType) -> FieldDescriptorProto | None:
        if field.message_type is None:
            return None
        if pa.types.is_map(type_):  # a list of entries, of which the value is a field
            value = self._of_field(field.message_type.fields_by_name["value"], type_.item_type)
            return _list(field.number, None if value is None else self._add([value]))
        inner = type_.value_type if field.is_repeated else type_
        if pa.types.is_struct(inner):
            name = self.name_of(field.message_type, inner)
            return _list(field.number, name) if field.is_repeated else _one(field.number, name)
        time = field.message_type.name if field.message_type.full_name in _TIMES else None
        if field.is_repeated:
            return _list(field.number, time)
        more = {"type": FieldDescriptorProto.TYPE_BYTES} if time is None else {"type_name": time}
        return _field(field.number, f"{_ONCE}{field.number}", FieldDescriptorProto.LABEL_REPEATED, **more)


def _list(number: int, name: str | None) -> FieldDescriptorProto | None:
    return None if name is None else _field(number, f"f{number}", FieldDescriptorProto.LABEL_REPEATED, type_name=name)


def _one(number: int, name: str | None) -> FieldDescriptorProto | None:
    return None if name is None else _field(number, f"f{number}", type_name=name)


def _field(
    number: int,
    name: str,
    label: FieldDescriptorProto.Label.ValueType = FieldDescriptorProto.LABEL_OPTIONAL,
    **more: Any,  # noqa: ANN401  # as it has them
) -> FieldDescriptorProto:
    more.setdefault("type", FieldDescriptorProto.TYPE_MESSAGE)
    return FieldDescriptorProto(name=name, number=number, label=label, **more)
