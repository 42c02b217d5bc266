"""Gives a table columns, as the start of a query does, in a process of its own. Arguments: the kind of the table, its
folder, and the new columns as JSON, name → type of Arrow. Prints the columns that it has then, or the error's entry."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa

from spark_eos.errors import EosError
from tests.support.tables.table_kinds import KINDS, TableKind


def evolved(kind: TableKind, new: dict[str, str]) -> str:
    place = kind.place()
    there = place.columns()
    assert there is not None
    given = pa.schema({name: getattr(pa, type_)() for name, type_ in new.items()})
    wide = place.widened(there.schema, pa.unify_schemas([there.schema, given]))
    try:
        return ", ".join(place.target(there.schema, create=False).evolved(wide).layout.schema.names)
    except EosError as error:
        return error.entry


if __name__ == "__main__":
    print(evolved(KINDS[sys.argv[1]](Path(sys.argv[2])), json.loads(sys.argv[3])))
