"""Avro's schema resolution: which readers read datums of a writer's schema as values of a reader's. No I/O.

Fields are found by name or alias, in any order; a missing field has the reader's default. Numbers are promoted, string
and bytes are interchangeable, a symbol that the reader lacks becomes its default. Named types match by name without
namespace, or by an alias. Where the specification leaves a choice:

- A value is read as the first branch of the reader's union with its own type and name, as in Java, else as the first
  branch to which it can be promoted.
- Times are converted to the reader's unit. Logical types of different meanings do not match; if the reader has none,
  it gets the number, the bytes or the string.
- Decimals match if they have the same scale and the reader has at least as many digits.
- If the reader cannot hold a branch or a symbol, only the rows that have it are bad.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

from spark_eos.errors import EosError, stop
from spark_eos.pipelines.registry.avro.arrow import arrow_type
from spark_eos.pipelines.registry.avro.cursor import Cursor, DatumBytes, Verdicts
from spark_eos.pipelines.registry.avro.defaults import default_bytes
from spark_eos.pipelines.registry.avro.items import List, Pairs
from spark_eos.pipelines.registry.avro.readers import (
    Binary,
    Boolean,
    Branches,
    Bundle,
    Constant,
    Decimals,
    Integer,
    Member,
    Null,
    Real,
    Struct,
    Symbols,
    Text,
    ValueReader,
)
from spark_eos.pipelines.registry.avro.schema import (
    NULL,
    Array,
    Decimal,
    Enum,
    Field,
    Fixed,
    Map,
    Primitive,
    RecordType,
    Schema,
    Union,
    described,
    least_bytes,
    name_of,
)
from spark_eos.pipelines.registry.avro.units import (
    DAY_S,
    INT_LEAST,
    INT_MOST,
    LONG_LEAST,
    LONG_MOST,
    UNITS,
    kind_and_unit,
)

#: Errors of two valid schemas that do not match.
_NO_MATCH = ("EOS_AVRO_SCHEMA.mismatch", "EOS_AVRO_SCHEMA.missing")
#: Pairs of schemas whose readers are cached.
_PAIRS = 256

#: The types as which each type can be read, besides itself.
_PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_STORED = {"float": "<f4", "double": "<f8"}
#: Numpy types of the numbers in a column.
_NUMBERS = {"int": "<i4", "long": "<i8", "float": "<f4", "double": "<f8"}


@lru_cache(_PAIRS)
def resolve(writer: Schema, reader: Schema) -> ValueReader:
    """Return the reader of a writer's datums as values of a reader's schema. Raises SchemaError where the two do not
    match."""
    return _reader(writer, reader, name_of(reader).rpartition(".")[2])


def _reader(writer: Schema, reader: Schema, path: str) -> ValueReader:
    match writer, reader:
        case Union(), _:
            return _written_union(writer, reader, path)
        case _, Union():
            return _into_union(writer, reader, path)
        case RecordType(), RecordType() if _same_name(writer, reader):
            return _record(writer, reader, path)
        case Enum(), Enum() if _same_name(writer, reader):
            return _enum(writer, reader, path)
        case Array(), Array():
            item = _reader(writer.items, reader.items, f"{path}[]")
            return List(path, arrow_type(reader), item, least_bytes(writer.items))
        case Map(), Map():
            return _map(writer, reader, path)
        case Fixed(), Fixed() if _same_name(writer, reader) and writer.size == reader.size:
            return _fixed(writer, reader, path)
        case Primitive(), Primitive() if reader.type in (writer.type, *_PROMOTED.get(writer.type, ())):
            return _primitive(writer, reader, path)
    raise _mismatch(writer, reader, path)


def _mismatch(writer: Schema, reader: Schema, path: str) -> EosError:
    return stop("EOS_AVRO_SCHEMA.mismatch", path=path, writer=described(writer), reader=described(reader))


def _same_name(writer: RecordType | Enum | Fixed, reader: RecordType | Enum | Fixed) -> bool:
    """Tell whether the names match without namespace, or the writer's name is an alias of the reader's type."""
    short = writer.name.rpartition(".")[2]
    aliases = {name for alias in reader.aliases for name in (alias, alias.rpartition(".")[2])}
    return short == reader.name.rpartition(".")[2] or bool(aliases & {writer.name, short})


def _record(writer: RecordType, reader: RecordType, path: str) -> Struct:
    type_, sources = arrow_type(reader), _sources(writer, reader)
    numbers = {source.name: number for number, source in enumerate(sources) if source is not None}
    steps: list[tuple[ValueReader, int | None]] = []
    for field in writer.fields:
        number = numbers.get(field.name)
        wanted = field if number is None else reader.fields[number]
        steps.append((_reader(field.schema, wanted.schema, f"{path}.{wanted.name}"), number))
    for number, (wanted, source) in enumerate(zip(reader.fields, sources, strict=True)):
        if source is None:
            steps.append((_default(wanted, f"{path}.{wanted.name}"), number))
    return Struct(type_, tuple(steps))


def _sources(writer: RecordType, reader: RecordType) -> list[Field | None]:
    """Return for each of the reader's fields the writer's field with its name, or else with one of its aliases. None of
    the writer's fields is used twice."""
    written = {field.name: field for field in writer.fields}
    taken = {field.name for field in reader.fields} & written.keys()
    sources: list[Field | None] = []
    for field in reader.fields:
        name = field.name
        if name not in written:
            name = next((alias for alias in field.aliases if alias in written and alias not in taken), name)
            taken.add(name)
        sources.append(written.get(name))
    return sources


def _default(field: Field, path: str) -> Constant:
    if field.default is None:
        raise stop("EOS_AVRO_SCHEMA.missing", path=path)
    datum = np.frombuffer(default_bytes(field.schema, field.default, path), np.uint8)
    verdicts = Verdicts(np.zeros(1, np.int32))
    cursor = Cursor(DatumBytes(datum), np.zeros(1, np.int64), np.array([len(datum)]), np.zeros(1, np.int64), verdicts)
    value = _reader(field.schema, field.schema, path).read(cursor)
    if verdicts.reasons:
        raise stop("EOS_AVRO_SCHEMA.default", path=path, default=field.default, type=described(field.schema))
    return Constant(value)


def _enum(writer: Enum, reader: Enum, path: str) -> Symbols:
    places = {symbol: number for number, symbol in enumerate(reader.symbols)}
    other = -1 if reader.default is None else places[reader.default]
    return Symbols(path, tuple(places.get(symbol, other) for symbol in writer.symbols), reader.symbols)


def _map(writer: Map, reader: Map, path: str) -> Pairs:
    type_ = arrow_type(reader)
    steps = (Text(f"{path}{{}}", None), 0), (_reader(writer.values, reader.values, f"{path}{{}}"), 1)
    entry = Struct(pa.struct([type_.key_field, type_.item_field]), steps)
    return Pairs(path, type_, entry, 1 + least_bytes(writer.values))


def _written_union(writer: Union, reader: Schema, path: str) -> ValueReader:
    type_, readers = arrow_type(reader), list[ValueReader | str]()
    for branch in writer.branches:
        try:
            # A branch of the same union is read as that branch, not as an earlier one that would fit.
            one = _reader(branch, reader, path) if writer != reader else _member(branch, branch, writer, path)
            readers.append(one)
        except EosError as e:
            if e.entry not in _NO_MATCH:
                raise
            readers.append(f"the reader's schema has no place for a {described(branch)}")
    if all(isinstance(one, str) for one in readers):
        raise _mismatch(writer, reader, path)
    return Branches(path, type_, tuple(readers))


def _into_union(writer: Schema, reader: Union, path: str) -> ValueReader:
    """Return the reader of values that are written without a union, as values of a union."""
    for exact in (True, False):
        for branch in reader.branches:
            if exact != _is_same(writer, branch):
                continue
            try:
                return _member(writer, branch, reader, path)
            except EosError as e:
                if e.entry not in _NO_MATCH:
                    raise
    raise _mismatch(writer, reader, path)


def _is_same(writer: Schema, reader: Schema) -> bool:
    """Tell whether both have the same type, and the same full name if they have one."""
    return type(writer) is type(reader) and name_of(writer) == name_of(reader)


def _member(writer: Schema, branch: Schema, union: Union, path: str) -> ValueReader:
    """Return the reader of a value as this branch of the reader's union."""
    type_ = arrow_type(union)
    inner = _reader(writer, branch, path)
    if branch == NULL:
        return Null(type_)
    members = union.members
    return inner if len(members) == 1 else Member(type_, members.index(branch), inner)


def _fixed(writer: Fixed, reader: Fixed, path: str) -> ValueReader:
    match writer.logical, reader.logical:
        case _, None:
            return Binary(path, writer.size)
        case ((None | Decimal()), Decimal()):
            return _decimals(writer, reader, writer.size, path)
        case written, wanted if written in (None, wanted):
            return Bundle(path, arrow_type(reader))
    raise _mismatch(writer, reader, path)


def _decimals(writer: Primitive | Fixed, reader: Primitive | Fixed, size: int | None, path: str) -> ValueReader:
    written, wanted = writer.logical, reader.logical
    assert isinstance(wanted, Decimal)
    written = written if isinstance(written, Decimal) else wanted
    if written.scale != wanted.scale or written.precision > wanted.precision:
        raise _mismatch(writer, reader, path)
    return Decimals(path, size, arrow_type(reader), written.digits)


def _primitive(writer: Primitive, reader: Primitive, path: str) -> ValueReader:
    type_ = arrow_type(reader)
    match writer.type, reader.type:
        case "null", _:
            return Null(type_)
        case "boolean", _:
            return Boolean(path)
        case (("int" | "long"), ("int" | "long")):
            return _integer(writer, reader, path)
        case (("int" | "long"), _):
            return Integer(path, type_, _NUMBERS[reader.type], *_range(writer.type))
        case (("float" | "double"), _):
            return Real(path, type_, _STORED[writer.type], _NUMBERS[reader.type])
    if isinstance(reader.logical, Decimal):
        return _decimals(writer, reader, None, path)
    return Text(path, None, reader.logical == "uuid") if reader.type == "string" else Binary(path, None)


def _range(type_: str) -> tuple[int, int, int, str]:
    """Return `Integer.least`, ``most``, ``factor`` and ``what`` for the range of an int or a long."""
    if type_ == "int":
        return INT_LEAST, INT_MOST, 1, "an int of 32 bits"
    return LONG_LEAST, LONG_MOST, 1, ""


def _integer(writer: Primitive, reader: Primitive, path: str) -> Integer:
    """Return the reader of ints and longs, which may be dates and times."""
    type_, numbers = arrow_type(reader), _NUMBERS[reader.type]
    least, most, factor, what = _range(writer.type)
    if reader.logical is None:
        return Integer(path, type_, numbers, least, most, factor, what)
    kind, unit = kind_and_unit(reader.logical)
    written_kind, written_unit = kind_and_unit(writer.logical or reader.logical)
    if kind != written_kind or (written_unit == "nanos") > (unit == "nanos"):
        raise _mismatch(writer, reader, path)
    if kind == "time":
        # The column has microseconds, even if the reader's schema has milliseconds.
        least, most, what = 0, DAY_S * UNITS[written_unit] - 1, "a time of day"
        return Integer(path, type_, "<i8", least, most, UNITS["micros"] // UNITS[written_unit], what)
    if kind.endswith("timestamp"):
        factor = UNITS["nanos" if unit == "nanos" else "micros"] // UNITS[written_unit]
        if factor > 1:
            least, most = max(least, -(LONG_MOST // factor)), min(most, LONG_MOST // factor)
            what = f"a timestamp that 64 bits can hold in {unit if unit == 'nanos' else 'micros'}"
    return Integer(path, type_, numbers, least, most, factor, what)
