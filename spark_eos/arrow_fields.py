"""Fields of Arrow's structs that a cast would lose."""

from __future__ import annotations

import pyarrow as pa


def lost_field(given: pa.DataType, wanted: pa.DataType) -> str | None:
    """A field in ``given`` that a cast to ``wanted`` would leave out, by its path; None if there is none. Arrow casts
    structs by the names of their fields, at any depth: those that are not wanted are left out, without an error."""
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
    if _is_list(given) and _is_list(wanted):
        return lost_field(given.value_type, wanted.value_type)
    return None


def _is_list(type_: pa.DataType) -> bool:
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_list_view)
    return any(is_one(type_) for is_one in kinds)
