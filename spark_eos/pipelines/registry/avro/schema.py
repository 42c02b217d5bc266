"""Avro schemas as trees of frozen values. No I/O.

`parse` refuses schemas that the specification forbids, and types that an Arrow column cannot hold: recursive types,
decimals with more than 38 digits behind the point. It also refuses arrays whose items take no bytes. Errors name the
path in the schema, such as ``Order.lines[].price``: fields are joined by dots, ``[]`` are the items of an array, ``{}``
the values of a map, and ``|2`` is the third branch of a union.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeGuard

from spark_eos.errors import EosError, stop

#: A value of JSON.
Json: TypeAlias = Any

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
#: The deepest nesting of types.
MOST_LEVELS = 32
#: The most types in a schema, each counted as often as it is used: a short text, in which each type uses the one before
#: it twice, would be a huge tree.
MOST_NODES = 20_000
#: Digits of a decimal, in Spark and in Arrow's decimal128.
MOST_DIGITS = 38
DURATION_BYTES, UUID_BYTES = 12, 16

#: The supported logical types by base type. Any other logical type is ignored.
_LOGICAL = {
    "int": ("date", "time-millis"),
    "long": (
        "time-micros",
        "timestamp-millis",
        "timestamp-micros",
        "timestamp-nanos",
        "local-timestamp-millis",
        "local-timestamp-micros",
        "local-timestamp-nanos",
    ),
    "string": ("uuid",),
}


@dataclass(frozen=True, slots=True)
class Decimal:
    """The logical type of a decimal, of bytes or fixed."""

    precision: int
    scale: int

    @property
    def digits(self) -> int:
        """The most digits that a column has of it. Kafka Connect gives decimals a precision of 64 by default."""
        return min(self.precision, MOST_DIGITS)


@dataclass(frozen=True, slots=True)
class Primitive:
    """A primitive type. ``type``: one of PRIMITIVES. ``logical``: its logical type, if that is supported."""

    type: str
    logical: str | Decimal | None = None


@dataclass(frozen=True, slots=True)
class Fixed:
    """A fixed type. ``size``: in bytes. ``name`` and ``aliases`` are full names, as in all named types."""

    name: str
    size: int
    aliases: tuple[str, ...] = ()
    logical: str | Decimal | None = None


@dataclass(frozen=True, slots=True)
class Enum:
    """An enum. ``default``: the symbol as which a reader reads symbols that it does not have."""

    name: str
    symbols: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Array:
    """A list of ``items``."""

    items: Schema


@dataclass(frozen=True, slots=True)
class Map:
    """A map from strings to ``values``."""

    values: Schema


@dataclass(frozen=True, slots=True)
class Union:
    """One of ``branches``, none of which is a union."""

    branches: tuple[Schema, ...]

    @property
    def null(self) -> int | None:
        """The index of the branch null; None without one."""
        return next((n for n, branch in enumerate(self.branches) if branch == NULL), None)

    @property
    def members(self) -> tuple[Schema, ...]:
        """The branches other than null."""
        return tuple(branch for branch in self.branches if branch != NULL)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record. ``default``: in JSON; None for a field without a default."""

    name: str
    schema: Schema
    aliases: tuple[str, ...] = ()
    default: str | None = None


@dataclass(frozen=True, slots=True)
class RecordType:
    """A record. ``fields`` are in the order of the datum."""

    name: str
    fields: tuple[Field, ...]
    aliases: tuple[str, ...] = ()


Schema: TypeAlias = Primitive | Fixed | Enum | Array | Map | Union | RecordType

NULL = Primitive("null")


def parse(text: str, references: Sequence[str] = ()) -> Schema:
    """Return the schema of a JSON text.

    ``references``: the schemas of named types that ``text`` uses and does not define; each after the schemas that it
    uses itself. Raises SchemaError, with the path in the schema.
    """
    parser = _Parser()
    for reference in references:
        parser.parse(reference)
    return parser.parse(text)


def name_of(schema: Schema) -> str:
    """Return the name of a type in messages: its full name, or its kind."""
    if isinstance(schema, Primitive):
        return schema.type
    if isinstance(schema, Fixed | Enum | RecordType):
        return schema.name
    return type(schema).__name__.lower()


def described(schema: Schema) -> str:
    """Describe a type in messages: its name, and its size, logical type or branches."""
    if isinstance(schema, Union):
        return f"union of {', '.join(map(described, schema.branches))}"
    logical = schema.logical if isinstance(schema, Primitive | Fixed) else None
    if isinstance(logical, Decimal):
        logical = f"decimal({logical.precision}, {logical.scale})"
    size = f" of {schema.size} bytes" if isinstance(schema, Fixed) else ""
    return f"{name_of(schema)}{size}{f' ({logical})' if logical else ''}"


def least_bytes(schema: Schema) -> int:
    """Return the fewest bytes that a value takes."""
    match schema:
        case Primitive(type="null"):
            return 0
        case Primitive(type=type_):
            return {"float": 4, "double": 8}.get(type_, 1)
        case Fixed(size=size):
            return size
        case RecordType(fields=fields):
            return sum(least_bytes(one.schema) for one in fields)
        case Union(branches=branches):
            return 1 + min(least_bytes(branch) for branch in branches)
    return 1


@dataclass
class _Named:
    """A named type, with the number of its nodes and levels."""

    schema: Schema
    nodes: int
    levels: int


@dataclass
class _Parser:
    """Reads schemas that share their named types. ``_open``: the named types that are being defined."""

    _named: dict[str, _Named] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)
    _nodes: int = 0
    _level: int = 0
    _deepest: int = 0

    def parse(self, text: str) -> Schema:
        """Return the schema of a JSON text. Raises SchemaError."""
        try:
            tree = json.loads(text, parse_constant=_no_constant)
        except RecursionError:
            raise _too_large("the schema", MOST_LEVELS, "levels of types within one another") from None
        except ValueError as e:
            raise _invalid("", f"it is not JSON: {e}") from None
        self._nodes = self._level = self._deepest = 0
        return self._schema(tree, "", "")

    def _schema(self, tree: Json, namespace: str, path: str) -> Schema:
        with self._within(path):
            if isinstance(tree, str):
                return Primitive(tree) if tree in PRIMITIVES else self._reference(tree, namespace, path)
            if isinstance(tree, list):
                return self._union(tree, namespace, path)
            if not isinstance(tree, dict) or "type" not in tree:
                raise _invalid(path, "a type is a name, a list, or an object with 'type'")
            type_ = tree["type"]
            if isinstance(type_, dict | list):
                return self._schema(type_, namespace, path)
            return self._object(tree, type_, namespace, path)

    def _object(self, tree: dict[str, Json], type_: Json, namespace: str, path: str) -> Schema:
        match type_:
            case "record" | "error":
                return self._record(tree, namespace, path)
            case "enum":
                return self._enum(tree, namespace, path)
            case "fixed":
                return self._fixed(tree, namespace, path)
            case "array":
                items = self._schema(_needed(tree, "items", path), namespace, f"{path}[]")
                if least_bytes(items) == 0:
                    raise stop("EOS_AVRO_SCHEMA.empty_items", path=path or "the schema")
                return Array(items)
            case "map":
                return Map(self._schema(_needed(tree, "values", path), namespace, f"{path}{{}}"))
            case str() if type_ in PRIMITIVES:
                return Primitive(type_, _logical(tree, type_, path))
            case str():
                return self._reference(type_, namespace, path)
        raise _invalid(path, f"{type_!r} is no type")

    @contextmanager
    def _within(self, path: str) -> Iterator[None]:
        """Count the type at this path, and its level. Raises SchemaError for too many."""
        self._count(path, 1, 1)
        self._level += 1
        yield
        self._level -= 1

    def _count(self, path: str, nodes: int, levels: int) -> None:
        self._nodes += nodes
        self._deepest = max(self._deepest, self._level + levels)
        if self._level + levels > MOST_LEVELS:
            raise _too_large(path, MOST_LEVELS, "levels of types within one another")
        if self._nodes > MOST_NODES:
            raise _too_large(path, MOST_NODES, "types, counting each as often as it is used")

    def _reference(self, name: str, namespace: str, path: str) -> Schema:
        for full in dict.fromkeys((_full(name, namespace), name)):
            if full in self._open:
                raise stop("EOS_AVRO_SCHEMA.recursive", path=path or "the schema", name=full)
            if full in self._named:
                named = self._named[full]
                self._count(path, named.nodes, named.levels)
                return named.schema
        raise _invalid(path, f"there is no type '{name}'")

    @contextmanager
    def _defined(self, name: str, path: str) -> Iterator[list[Schema]]:
        """Define a named type: the block appends it to the list."""
        if name in self._named or name in self._open:
            raise _invalid(path, f"'{name}' is defined twice")
        made: list[Schema] = []
        nodes, deepest, self._deepest = self._nodes, self._deepest, self._level
        self._open.append(name)
        yield made
        self._open.pop()
        self._named[name] = _Named(made[0], self._nodes - nodes, self._deepest - self._level)
        self._deepest = max(deepest, self._deepest)

    def _record(self, tree: dict[str, Json], namespace: str, path: str) -> Schema:
        name = _own_name(tree, namespace, path)
        inner, path = _namespace(name), path or name.rpartition(".")[2]
        with self._defined(name, path) as made:
            given = _needed(tree, "fields", path)
            if not isinstance(given, list):
                raise _invalid(path, "'fields' is no list")
            fields = tuple(self._field(one, inner, path) for one in given)
            _no_twins(path, "field", [one.name for one in fields])
            made.append(RecordType(name, fields, _aliases(tree, inner, path)))
        return made[0]

    def _field(self, tree: Json, namespace: str, path: str) -> Field:
        name = tree.get("name") if isinstance(tree, dict) else None
        if not _is_name(name):
            raise _invalid(path, f"{name!r} is no name of a field")
        path = f"{path}.{name}"
        aliases = tree.get("aliases", [])
        if not isinstance(aliases, list) or not all(isinstance(one, str) for one in aliases):
            raise _invalid(path, "'aliases' is no list of names")
        schema = self._schema(_needed(tree, "type", path), namespace, path)
        return Field(name, schema, tuple(aliases), json.dumps(tree["default"]) if "default" in tree else None)

    def _enum(self, tree: dict[str, Json], namespace: str, path: str) -> Schema:
        name = _own_name(tree, namespace, path)
        with self._defined(name, path) as made:
            symbols, default = _needed(tree, "symbols", path), tree.get("default")
            if not isinstance(symbols, list) or not symbols:
                raise _invalid(path, "'symbols' is no list of names")
            for symbol in symbols:
                if not _is_name(symbol):
                    raise _invalid(path, f"{symbol!r} is no name of a symbol")
            _no_twins(path, "symbol", symbols)
            if default is not None and default not in symbols:
                raise _invalid(path, f"the default {default!r} is not among the symbols")
            made.append(Enum(name, tuple(symbols), _aliases(tree, _namespace(name), path), default))
        return made[0]

    def _fixed(self, tree: dict[str, Json], namespace: str, path: str) -> Schema:
        name = _own_name(tree, namespace, path)
        with self._defined(name, path) as made:
            size = _needed(tree, "size", path)
            if type(size) is not int or not 0 <= size < 1 << 31:
                raise _invalid(path, f"{size!r} is no size")
            logical = _logical(tree, "fixed", path)
            made.append(Fixed(name, size, _aliases(tree, _namespace(name), path), logical))
        return made[0]

    def _union(self, tree: list[Json], namespace: str, path: str) -> Schema:
        branches = tuple(self._schema(one, namespace, f"{path}|{n}") for n, one in enumerate(tree))
        if not branches:
            raise _invalid(path, "a union has no branch")
        if any(isinstance(branch, Union) for branch in branches):
            raise _invalid(path, "a branch of a union is a union")
        _no_twins(path, "branch", [name_of(branch) for branch in branches])
        return Union(branches)


def _logical(tree: dict[str, Json], base: str, path: str) -> str | Decimal | None:
    """Return the logical type; None where it is unknown, or invalid for its base, so that the specification has it
    ignored."""
    name = tree.get("logicalType")
    if name == "decimal" and base in ("bytes", "fixed"):
        return _decimal(tree, base, path)
    if base == "fixed":
        fits = (name, tree["size"]) in (("duration", DURATION_BYTES), ("uuid", UUID_BYTES))
        return str(name) if fits else None
    return str(name) if name in _LOGICAL.get(base, ()) else None


def _decimal(tree: dict[str, Json], base: str, path: str) -> Decimal | None:
    precision, scale = tree.get("precision"), tree.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or precision < 1 or not 0 <= scale <= precision:
        return None
    if base == "fixed" and precision > math.floor((8 * tree["size"] - 1) * math.log10(2)):
        return None  # ``size`` bytes cannot hold as many digits
    if scale > MOST_DIGITS:
        raise stop("EOS_AVRO_SCHEMA.digits", path=path or "the schema", scale=scale, most=MOST_DIGITS)
    return Decimal(precision, scale)


def _own_name(tree: dict[str, Json], namespace: str, path: str) -> str:
    """Return the full name of a type that is defined here."""
    name, given = tree.get("name"), tree.get("namespace")
    given = namespace if given is None else given
    if not _is_name(name) or not isinstance(given, str):
        raise _invalid(path, f"{name!r} is no name of a type")
    full = _full(name, given)
    if not _is_name(full) or not full.rpartition(".")[2] or full in PRIMITIVES:
        raise _invalid(path, f"{full!r} is no name of a type")
    return full


def _is_name(name: Json) -> TypeGuard[str]:
    """Return whether this is a name. The specification allows letters, digits and underscores, but Confluent's clients
    and Debezium also read and write other characters, such as a hyphen or ``größe``; only unprintable ones are
    refused."""
    return isinstance(name, str) and name != "" and name.isprintable()


def _aliases(tree: dict[str, Json], namespace: str, path: str) -> tuple[str, ...]:
    aliases = tree.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(one, str) for one in aliases):
        raise _invalid(path, "'aliases' is no list of names")
    return tuple(_full(alias, namespace) for alias in aliases)


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _namespace(name: str) -> str:
    return name.rpartition(".")[0]


def _needed(tree: dict[str, Json], key: str, path: str) -> Json:
    if key not in tree:
        raise _invalid(path, f"'{key}' is missing")
    return tree[key]


def _no_twins(path: str, what: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise _invalid(path, f"the {what} '{name}' is there twice")
        seen.add(name)


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no value of JSON")


def _too_large(path: str, most: int, what: str) -> EosError:
    return stop("EOS_AVRO_SCHEMA.large", path=path or "the schema", most=most, what=what)


def _invalid(path: str, reason: str) -> EosError:
    return stop("EOS_AVRO_SCHEMA.invalid", path=path or "the schema", reason=reason)
