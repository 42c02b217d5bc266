"""Protobuf values, by ptars, which reads and writes whole columns.

Protobuf does not fail on a wrong schema: where a number should be, a string counts as a missing field. So a writer's
message is compared with the reader's, field by field, before any of its values is read. Values are then read by the
reader's message, as in every Protobuf program: unknown fields are left out, and missing fields have their defaults.
ptars fails for a whole column if one value is damaged, and does not tell which, so that it is found by bisection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_eos.base.printable import printable
from spark_eos.errors import stop
from spark_eos.pipelines.arrow_fields import lost_field
from spark_eos.pipelines.registry.avro.texts import twice
from spark_eos.pipelines.registry.formats import (
    MOST_LEVELS,
    Decode,
    DecodedValues,
    EncodedValues,
    Size,
    cast,
    casts,
    damaged,
    kept,
    own_bytes,
)
from spark_eos.pipelines.registry.schemas import Schema, not_installed, too_large

try:
    import ptars
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    from spark_eos.pipelines.registry.protobuf_files import message_at, message_named, path_of
    from spark_eos.pipelines.registry.protobuf_known import RANGES, is_malformed, known_fields
except ImportError as missing:
    raise not_installed(missing) from None

_DAMAGED = "it is not a message of Protobuf"
_OUT_OF_RANGE = "a number out of its range"
_RULES = "it has values for several fields of a oneof, or lacks a required field"
_LOST = "null or -0.0 without presence, or no value of the enum"
#: The types as which a field may be read: their bytes are the same, and no value is truncated.
_WIDER = {
    FieldDescriptor.TYPE_INT32: {FieldDescriptor.TYPE_INT64},
    FieldDescriptor.TYPE_UINT32: {FieldDescriptor.TYPE_UINT64},
    FieldDescriptor.TYPE_SINT32: {FieldDescriptor.TYPE_SINT64},
    FieldDescriptor.TYPE_STRING: {FieldDescriptor.TYPE_BYTES},
}
#: They may lack a year, month or day, and have 24 hours. For these, ptars gives the first of January 1970, or 0:00.
_PARTIAL = ("google.type.Date", "google.type.TimeOfDay")
_CONFIG = ptars.PtarsConfig(timestamp_unit="us", duration_unit="us", time_unit="us", enum_repr="string")
_UINT64 = pa.decimal128(20, 0)


class _Message:
    """A message type, whose fields are columns of ``type``."""

    def __init__(self, schema: Schema, message: str | None = None) -> None:
        self._message = message_named(schema, message)
        _size_of(self._message, {})
        self._handler = _handler(self._message)
        self._has_rules = _has_rules(self._message)
        self.type: pa.DataType = _of_spark(pa.struct(list(self._handler.schema())))


class ProtobufReader(_Message):
    """Reads values as messages of one type."""

    def __init__(self, schema: Schema, message: str | None = None) -> None:
        super().__init__(schema, message)
        known = known_fields(self._message, pa.struct(list(self._handler.schema())))
        self._known = None if known is None else _handler(known)
        self._class = GetMessageClass(self._message)

    def of_writer(self, schema: Schema, message: tuple[int, ...]) -> Decode:
        """Return the decoder of this writer's values. Raises RegistryError (EOS_REGISTRY_SCHEMA) where the writer's
        message has another name, or a field of another type."""
        written = message_at(schema, message)
        if written.full_name != self._message.full_name:
            raise stop("EOS_REGISTRY_SCHEMA.other_message", written=written.full_name, expected=self._message.full_name)
        _compare(written, self._message)
        return self._decode

    def _decode(self, values: pa.Array, begin: np.ndarray) -> DecodedValues:
        messages = own_bytes(values, begin)
        good = np.ones(len(messages), bool)
        batch = self._parsed(messages)
        if batch is None:
            good[list(damaged(messages, lambda piece: self._parsed(piece) is not None))] = False
            batch = self._handler.array_to_record_batch(kept(messages, good))
        # ptars reads a null as a message without fields, which is made null again.
        rows = kept(batch.to_struct_array().cast(self.type), good)
        return DecodedValues(rows, {row: self._why(messages[row].as_py()) for row in np.flatnonzero(~good).tolist()})

    def _official(self, message: bytes) -> Any:  # noqa: ANN401  # a message of Google's runtime
        """Return the message as read by Google's runtime; None where it is damaged."""
        try:
            return self._class.FromString(message)
        except DecodeError:
            return None

    def _why(self, message: bytes) -> str:
        """Return why a message is malformed."""
        official = self._official(message)
        missing = [] if official is None else official.FindInitializationErrors()
        return f"it lacks the required field '{missing[0]}'" if missing else _DAMAGED

    def _parsed(self, messages: pa.Array) -> pa.RecordBatch | None:
        """Return the fields of the messages; None where one message is damaged, lacks a required field, has several
        fields of a oneof, `is_malformed`, or has a map with a key twice, of which ptars reads all entries instead of
        the last."""
        # Concatenated messages are one message, which Google's runtime reads at once. It has a limit of levels, without
        # which ptars would overflow the stack, and ptars reads no message behind a damaged one.
        if self._official(b"".join(messages.to_pylist())) is None:
            return None
        try:
            batch = self._handler.array_to_record_batch(messages)
            if self._known is not None and is_malformed(self._known.array_to_record_batch(messages).to_struct_array()):
                return None
        except ValueError:
            return None
        except BaseException as error:
            if not _is_panic(error):  # a map's entry without a value causes one
                raise
            return None
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        wrong = any(map(_has_a_key_twice, batch.columns)) or (self._has_rules and _breaks_rule(columns, self._message))
        return None if wrong else batch


class ProtobufWriter(_Message):
    """Writes rows as messages of one type."""

    def __init__(self, schema: Schema, message: str | None = None) -> None:
        super().__init__(schema, message)
        self.message: tuple[int, ...] = path_of(schema, self._message)

    @property
    def record(self) -> str:
        """The full name of the message."""
        name: str = self._message.full_name
        return name

    def encode(self, rows: pa.Array, prefix: bytes) -> EncodedValues:
        """Return the message of each row, after the prefix. Messages are read again and compared: a field without
        presence has no null, and ptars leaves out unknown enum values, and -0.0 where there is no presence. Raises
        RegistryError (EOS_REGISTRY_SCHEMA) for a column that is not a field, or has another type."""
        columns: list[tuple[pa.Array, pa.Field]] = []
        unfit: dict[int, str] = {}
        given = {field.name: pa.nulls(len(rows), _nullable(field.type)) for field in self._handler.schema()}
        for (column, out_of_range), field in self._columns(rows):
            reasons = dict.fromkeys(out_of_range, _OUT_OF_RANGE) | _unfit(column, _nullable(field.type))
            unfit |= {row: f"field '{field.name}' has {what}" for row, what in reasons.items() if row not in unfit}
            fits = np.ones(len(rows), bool)
            fits[list(reasons)] = False
            columns.append((kept(column, fits), field))
            given[field.name] = columns[-1][0].cast(_nullable(field.type))
        if self._has_rules:
            unfit = dict.fromkeys(self._rule_breakers(given), _RULES) | unfit
        batch = pa.RecordBatch.from_pydict(given)  # without rows where the message has no fields
        messages = (
            self._handler.record_batch_to_array(batch).cast(pa.binary())
            if given
            else pa.array([b""] * len(rows), pa.binary())
        )
        back = self._handler.array_to_record_batch(messages)
        there = np.asarray(pc.is_valid(rows))
        bad: dict[int, str] = {}
        for column, field in columns:
            reason = f"field '{field.name}' cannot hold its value: {_LOST}"
            read = back.column(field.name).cast(column.type)
            bad |= dict.fromkeys((row for row in _changed(column, read) if there[row]), reason)
        bad |= {row: why for row, why in unfit.items() if there[row]}
        keep = there.copy()
        keep[list(bad)] = False
        # The last argument is the separator.
        values = pc.binary_join_element_wise(pa.scalar(prefix, pa.binary()), messages, pa.scalar(b"", pa.binary()))
        return EncodedValues(kept(values, keep), bad)

    def _rule_breakers(self, columns: Mapping[str, pa.Array]) -> Iterator[int]:
        """Return the rows with values for several fields of a oneof, of which readers would keep the last one, or
        without a required field, which readers would refuse."""
        rows = pa.StructArray.from_arrays(list(columns.values()), list(columns))
        return damaged(rows, lambda piece: not _breaks_rule(_children(piece), self._message))

    def _columns(self, rows: pa.Array) -> Iterator[tuple[tuple[pa.Array, list[int]], pa.Field]]:
        """Yield each column of the rows, cast to the type that its field has in Spark, with the indexes of values that
        do not fit, and the field as ptars has it."""
        fields = {field.name: field for field in self._handler.schema()}
        if not pa.types.is_struct(rows.type):
            raise stop("EOS_REGISTRY_SCHEMA.type", column="value", type=rows.type, wanted=self.type)
        for column in rows.type:
            if column.name not in fields:
                known = ", ".join(fields)
                raise stop("EOS_REGISTRY_SCHEMA.column", column=column.name, record=self.record, fields=known)
            wanted = self.type.field(column.name).type
            if rows.type.get_field_index(column.name) < 0:  # the name occurs twice
                raise stop("EOS_REGISTRY_SCHEMA.type", column=column.name, type=rows.type, wanted=wanted)
            lost = lost_field(column.type, wanted)
            if lost is not None:
                path = f"{column.name}.{lost}"
                raise stop("EOS_REGISTRY_SCHEMA.column", column=path, record=self.record, fields=wanted)
            yield cast(pc.struct_field(rows, column.name), wanted, column.name), fields[column.name]


def _handler(message: Descriptor) -> Any:  # noqa: ANN401  # ptars has no types
    """Make the library's handler, which reads and writes such messages. Raises RegistryError (EOS_REGISTRY_SCHEMA) for
    a schema that ptars does not take though protoc does, such as one with an edition instead of a syntax."""
    try:
        return ptars.HandlerPool([message.file], config=_CONFIG).get_for_message(message)
    except BaseException as error:
        if not _is_panic(error):
            raise
        raise stop("EOS_REGISTRY_SCHEMA.by_columns", message=message.full_name, error=printable(str(error))) from None


def _is_panic(error: BaseException) -> bool:
    """Tell a panic of Rust, which is no Exception, from other errors."""
    return type(error).__module__ == "pyo3_runtime"


def _size_of(message: Descriptor, sizes: dict[str, Size], within: tuple[str, ...] = ()) -> Size:
    """Return the size of a message's type; sizes of all messages are kept in ``sizes``. Raises RegistryError
    (EOS_REGISTRY_SCHEMA) for a type that is too large, for a message that contains itself, for a group, which ptars
    reads as a field without a value, and for Google's dates and times of day, which ptars reads as a valid day or time,
    even if they are none."""
    if message.full_name in within:
        raise stop("EOS_REGISTRY_SCHEMA.recursive", message=message.full_name, within=within[0])
    if message.full_name not in sizes:
        if len(within) > MOST_LEVELS:
            raise too_large("PROTOBUF", MOST_LEVELS, "levels of types within one another")
        inner = [_size_of_field(message, field, sizes, (*within, message.full_name)) for field in message.fields]
        sizes[message.full_name] = Size.around(inner, "PROTOBUF")
    return sizes[message.full_name]


def _size_of_field(
    message: Descriptor, field: FieldDescriptor, sizes: dict[str, Size], within: tuple[str, ...]
) -> Size:
    if field.type == FieldDescriptor.TYPE_GROUP:
        raise stop("EOS_REGISTRY_SCHEMA.group", message=message.full_name, field=field.name)
    size = Size()
    if field.message_type is not None:
        if field.message_type.full_name in _PARTIAL:
            raise stop("EOS_REGISTRY_SCHEMA.partial", message=field.message_type.full_name, field=field.name)
        size = _size_of(field.message_type, sizes, within)
    return Size.around([size], "PROTOBUF") if field.is_repeated else size


def _compare(written: Descriptor, read: Descriptor, path: str = "") -> None:
    """Raise RegistryError (EOS_REGISTRY_SCHEMA) where a field's bytes would be read as another type. ``path``: names of
    the fields around the two messages, with a dot at its end."""
    for number, field in read.fields_by_number.items():
        other = written.fields_by_number.get(number)
        if other is None:
            continue
        place = path + field.name
        fits = field.type == other.type or field.type in _WIDER.get(other.type, ())
        if not fits or field.is_repeated != other.is_repeated or _is_map(field) != _is_map(other):
            what = f"Field {place} (number {number})"
            raise stop("EOS_REGISTRY_SCHEMA.other", what=what, written=_type_of(other), expected=_type_of(field))
        if field.message_type is not None:
            _compare(other.message_type, field.message_type, f"{place}.")


def _is_map(field: FieldDescriptor) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def _type_of(field: FieldDescriptor) -> str:
    kind = next(
        name.removeprefix("TYPE_").lower()
        for name in vars(FieldDescriptor)
        if name.startswith("TYPE_") and getattr(FieldDescriptor, name) == field.type
    )
    return f"repeated {kind}" if field.is_repeated else kind


def _has_no_time(column: pa.Array) -> bool:
    """Tell whether a time is out of the range of Timestamp or Duration, which ptars does not check."""
    type_ = column.type
    if pa.types.is_struct(type_):
        return any(map(_has_no_time, column.flatten()))
    if pa.types.is_map(type_):
        return _has_no_time(_entries(column).items)
    if pa.types.is_list(type_):
        return _has_no_time(column.flatten())
    if not (pa.types.is_timestamp(type_) or pa.types.is_duration(type_)):
        return False
    is_timestamp = pa.types.is_timestamp(type_)
    least, most = (seconds * 1_000_000 for seconds in RANGES["since" if is_timestamp else "seconds"])
    ends = pc.min_max(column.cast(pa.int64())).as_py()
    return ends["min"] is not None and not least <= ends["min"] <= ends["max"] <= most + 999_999 * is_timestamp


def _has_a_key_twice(column: pa.Array) -> bool:
    """Tell whether a map in a column has a key more than once."""
    if pa.types.is_struct(column.type):
        return any(map(_has_a_key_twice, column.flatten()))
    if pa.types.is_list(column.type):
        return _has_a_key_twice(column.flatten())
    if not pa.types.is_map(column.type):
        return False
    column = _entries(column)
    lane = np.repeat(np.arange(len(column)), np.diff(column.offsets.to_numpy()))
    return bool(len(twice(lane, column.keys))) or _has_a_key_twice(column.items)


def _entries(column: pa.MapArray) -> pa.MapArray:
    """Return the maps that are not null, without entries that belong to none of them."""
    return column.drop_null().take(pa.array(np.arange(len(column) - column.null_count)))


def _unfit(column: pa.Array, type_: pa.DataType) -> dict[int, str]:
    """Return index → reason for the values that no message can hold. ``type_``: the field's type in ptars."""
    numbers = dict.fromkeys(damaged(column, lambda piece: casts(piece, type_)), _OUT_OF_RANGE)
    times = dict.fromkeys(damaged(column, lambda piece: not _has_no_time(piece)), "a time out of its range")
    keys = dict.fromkeys(damaged(column, lambda piece: not _has_a_key_twice(piece)), "a key twice")
    return numbers | times | keys


def _breaks_rule(columns: Mapping[str, pa.Array], message: Descriptor) -> bool:
    """Tell whether a message, at any depth, has values for several fields of a oneof, or lacks a
    required field. ``columns``: the messages' fields, by name."""
    for oneof in message.oneofs:
        if len(oneof.fields) > 1:
            there = [pc.is_valid(columns[field.name]).cast(pa.int32()) for field in oneof.fields]
            if (pc.max(reduce(pc.add, there)).as_py() or 0) > 1:
                return True
    for field in message.fields:
        column, inner = columns[field.name], field.message_type
        if field.is_required and column.null_count:
            return True
        if _is_map(field):
            inner = inner.fields_by_name["value"].message_type
            column = column if inner is None else _entries(column).items
        elif inner is not None and field.is_repeated:
            column = column.flatten()
        # ptars has no structs for messages that it knows, such as Timestamp.
        if inner is not None and pa.types.is_struct(column.type) and _breaks_rule(_children(column), inner):
            return True
    return False


def _has_rules(message: Descriptor) -> bool:
    """Tell whether the message, or one within it, has a oneof of several fields or a required field."""
    own = any(len(oneof.fields) > 1 for oneof in message.oneofs) or any(field.is_required for field in message.fields)
    return own or any(_has_rules(field.message_type) for field in message.fields if field.message_type is not None)


def _children(column: pa.Array) -> dict[str, pa.Array]:
    """Return the fields of a column of structs that are not null, by name."""
    return dict(zip((field.name for field in column.type), column.drop_null().flatten(), strict=True))


def _changed(given: pa.Array, read: pa.Array) -> Iterator[int]:
    """Yield the indexes at which two columns differ; NaN equals NaN, and -0.0 is not 0.0. Whole columns are compared
    first, which is faster, and where -0.0 equals 0.0."""
    if given.equals(read) and _negative_zeros(given) == _negative_zeros(read):
        return
    for row, (one, other) in enumerate(zip(given.to_pylist(), read.to_pylist(), strict=True)):
        if repr(one) != repr(other):
            yield row


def _negative_zeros(column: pa.Array) -> int:
    """Return how many -0.0 a column has, at any depth."""
    if not _has_floats(column.type):
        return 0
    if pa.types.is_floating(column.type):
        numbers = column.drop_null().to_numpy()
        return int(np.count_nonzero((numbers == 0) & np.signbit(numbers)))
    if pa.types.is_map(column.type):
        return _negative_zeros(_entries(column).items)
    inner = column.flatten()
    return sum(map(_negative_zeros, inner)) if pa.types.is_struct(column.type) else _negative_zeros(inner)


def _has_floats(type_: pa.DataType) -> bool:
    """Tell whether a type is one of floats, or has one within it."""
    return bool(pa.types.is_floating(type_)) or any(
        _has_floats(type_.field(number).type) for number in range(type_.num_fields)
    )


def _of_spark(type_: pa.DataType) -> pa.DataType:
    """Return the type as Spark has it, which has no unsigned integers."""
    if type_ == pa.uint32():
        return pa.int64()
    return _UINT64 if type_ == pa.uint64() else _mapped(type_, _of_spark)


def _nullable(type_: pa.DataType) -> pa.DataType:
    """Return the type with nullable fields, at any depth."""
    return _mapped(type_, _nullable)


def _mapped(type_: pa.DataType, inner: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return the type with ``inner`` applied to the types within it, which become nullable."""
    if pa.types.is_map(type_):
        return pa.map_(inner(type_.key_type), inner(type_.item_type))
    if pa.types.is_list(type_):
        return pa.list_(inner(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(field.name, inner(field.type)) for field in type_])
    return type_
