"""Fields of messages that ptars knows, such as Timestamp, which a message has twice.

Protobuf merges a message that is there twice field by field, and so does ptars, except for those that it reads as one
value: of these it keeps the last. They are found by reading the same bytes a second time, by a message that has no
other fields than these, each as a list of bytes; all other fields are skipped, which takes little time.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

_FILE = "spark_eos.repeats.proto"


def counting(message: Descriptor, type_: pa.DataType) -> Descriptor | None:
    """The message that has ``message``'s fields of messages that ptars knows, as lists; None if there are none.
    ``type_``: the struct that ptars has for ``message``; what it knows is no struct in it."""
    file = FileDescriptorProto(name=_FILE, syntax="proto3")
    name = _Lists(file, {}).of(message, type_)
    if name is None:
        return None
    pool = DescriptorPool()
    pool.Add(file)
    return pool.FindMessageTypeByName(name)


def is_twice(column: pa.Array) -> bool:
    """Whether a list of bytes in a column of `counting`'s messages has more than one item."""
    if pa.types.is_struct(column.type):
        return any(map(is_twice, column.flatten()))
    if pa.types.is_struct(column.type.value_type):
        return is_twice(column.flatten())
    return (pc.max(pc.list_value_length(column)).as_py() or 0) > 1


class _Lists:
    """Makes such messages in a file. ``made``: their names, by those of the messages for which they are made."""

    def __init__(self, file: FileDescriptorProto, made: dict[str, str | None]) -> None:
        self._file, self._made = file, made

    def of(self, message: Descriptor, type_: pa.DataType) -> str | None:
        """The name of the message that is made; None where it would have no fields."""
        if message.full_name not in self._made:
            fields = [self._field(field, type_.field(field.name).type) for field in message.fields]
            self._made[message.full_name] = self._add([field for field in fields if field is not None])
        return self._made[message.full_name]

    def _add(self, fields: list[FieldDescriptorProto]) -> str | None:
        if not fields:
            return None
        name = f"M{len(self._file.message_type)}"
        self._file.message_type.append(DescriptorProto(name=name, field=fields))
        return name

    def _field(self, field: FieldDescriptor, type_: pa.DataType) -> FieldDescriptorProto | None:
        if field.message_type is None:
            return None
        if pa.types.is_map(type_):  # a list of entries, of which the value is a field
            value = self._field(field.message_type.fields_by_name["value"], type_.item_type)
            return _list(field.number, None if value is None else self._add([value]))
        if field.is_repeated:
            inner = type_.value_type
            return _list(field.number, self.of(field.message_type, inner)) if pa.types.is_struct(inner) else None
        if not pa.types.is_struct(type_):
            return _made(field.number, FieldDescriptorProto.LABEL_REPEATED, type=FieldDescriptorProto.TYPE_BYTES)
        name = self.of(field.message_type, type_)
        return None if name is None else _made(field.number, FieldDescriptorProto.LABEL_OPTIONAL, type_name=name)


def _list(number: int, name: str | None) -> FieldDescriptorProto | None:
    return None if name is None else _made(number, FieldDescriptorProto.LABEL_REPEATED, type_name=name)


def _made(number: int, label: FieldDescriptorProto.Label.ValueType, **more: Any) -> FieldDescriptorProto:  # noqa: ANN401  # as it has them
    more.setdefault("type", FieldDescriptorProto.TYPE_MESSAGE)
    return FieldDescriptorProto(name=f"f{number}", number=number, label=label, **more)
