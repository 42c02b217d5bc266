"""Records with the schema of a registry, for queries that tests kill: some whose id it knows, some whose id it does not
know yet, and some whose id it never will. All are UTF-8, and say which row they are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_eos.pipelines.registry.decoding import Decoding

SUBJECT = "rows-value"
SCHEMA = '{"type": "object", "properties": {"row": {"type": "string"}}, "required": ["row"]}'
#: Written after the others: with one property more.
LATER_SCHEMA = SCHEMA.replace('"string"}}', '"string"}, "more": {"type": "string"}}')
KNOWN, LATER, NEVER = 7, 8, 9


def record(id_: int, row: str) -> str:
    """The value of a record."""
    return f"\0\0\0\0{chr(id_)}" + json.dumps({"row": row})


def of_record(value: str) -> tuple[int, str]:
    """The inverse of `record`."""
    return ord(value[4]), json.loads(value[5:])["row"]


def decoding(url: str, **settings: str) -> Decoding:
    """How such values are read, from a registry that nobody asks for it: so that tasks are the first to need it."""
    from spark_eos.pipelines.registry.decoding import Decoding
    from spark_eos.pipelines.registry.schemas import Registered, Schema
    from spark_eos.pipelines.registry.settings import registry_settings

    return Decoding(registry_settings({"url": url, **settings}), Registered(SUBJECT, 1, KNOWN, Schema("JSON", SCHEMA)))
