"""Arrow's types: fields of structs that a cast would lose, and types of which it has several for the same values."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def name_twice(fields: Sequence[pa.Field]) -> str | None:
    """Return a field, by its path, whose name another one beside it has, at any depth; None if there is none. Capital
    letters make no difference. A name ends with NUL where Arrow hands a schema to other libraries."""
    names = [field.name.partition("\0")[0].lower() for field in fields]
    for field, name in zip(fields, names, strict=True):
        if names.count(name) > 1:
            return str(field.name)
        within = name_twice([field.type.field(place) for place in range(field.type.num_fields)])
        if within is not None:
            return f"{field.name}.{within}"
    return None


def lost_field(given: pa.DataType, wanted: pa.DataType) -> str | None:
    """Return the path of a field in ``given`` that a cast to ``wanted`` would leave out; None if there is none. Arrow
    casts structs by the names of their fields, at any depth, and drops other fields without an error."""
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        theirs = {field.name: field.type for field in wanted}
        for field in given:
            if field.name not in theirs:
                return str(field.name)
            inner = lost_field(field.type, theirs[field.name])
            if inner is not None:
                return f"{field.name}.{inner}"
        return None
    if pa.types.is_map(given) and pa.types.is_map(wanted):
        return lost_field(given.item_type, wanted.item_type)
    if is_list(given) and is_list(wanted):
        return lost_field(given.value_type, wanted.value_type)
    return None


def plain_type(type_: pa.DataType) -> pa.DataType:
    """Return the type with large strings and binaries instead of views, and with storage types instead of extension
    types (such as Parquet's JSON), at any depth. polars returns views, for which Arrow has no `filter` and `take`."""
    if isinstance(type_, pa.BaseExtensionType):
        return plain_type(type_.storage_type)
    if pa.types.is_string_view(type_):
        return pa.large_string()
    if pa.types.is_binary_view(type_):
        return pa.large_binary()
    if pa.types.is_dictionary(type_):
        return pa.dictionary(type_.index_type, plain_type(type_.value_type), type_.ordered)
    if pa.types.is_struct(type_):
        return pa.struct([_plain_field(field) for field in type_])
    if pa.types.is_map(type_):
        key, item = _plain_field(type_.key_field), _plain_field(type_.item_field)
        return pa.map_(key, item, type_.keys_sorted)
    if pa.types.is_list(type_):
        return pa.list_(_plain_field(type_.value_field))
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(_plain_field(type_.value_field), type_.list_size)
    return pa.large_list(_plain_field(type_.value_field)) if pa.types.is_large_list(type_) else type_


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain_type(field.type))


def is_list(type_: pa.DataType) -> bool:
    """Return whether this is one of Arrow's list types."""
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_list_view)
    return any(is_one(type_) for is_one in kinds)


def is_text(type_: pa.DataType) -> bool:
    """Return whether this is one of Arrow's string types."""
    return any(is_one(type_) for is_one in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def is_bytes(type_: pa.DataType) -> bool:
    """Return whether this is one of Arrow's binary types of variable length."""
    return any(is_one(type_) for is_one in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view))
