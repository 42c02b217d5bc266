"""Schemas as the registry has them, with whatever they refer to."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

Kind = Literal["AVRO", "PROTOBUF", "JSON"]
KINDS: tuple[Kind, ...] = get_args(Kind)
#: What users call them.
KIND_NAMES: dict[str, Kind] = {"avro": "AVRO", "protobuf": "PROTOBUF", "json-schema": "JSON"}


@dataclass(frozen=True)
class Reference:
    """A schema that another one uses. ``name``: how that one calls it, such as a record's full name or a file to
    import; ``subject`` and ``version``: where the registry has it."""

    name: str
    subject: str
    version: int
    schema: Schema


@dataclass(frozen=True)
class Schema:
    """``text``: as it was registered."""

    kind: Kind
    text: str
    references: tuple[Reference, ...] = ()

    @cached_property
    def fingerprint(self) -> str:
        """The same for the same text and references, in any registry."""
        parts = [self.kind, self.text, [(each.name, each.schema.fingerprint) for each in self.references]]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    def all_references(self) -> dict[str, Schema]:
        """Whatever this schema uses, by its name, also through others; what is used comes before what uses it."""
        found: dict[str, Schema] = {}
        for reference in self.references:
            found |= reference.schema.all_references()
            found[reference.name] = reference.schema
        return found


@dataclass(frozen=True)
class Registered:
    """A version of a subject. ``guid``: empty where the registry has none."""

    subject: str
    version: int
    id: int
    schema: Schema
    guid: str = ""


def kind_of(name: str | None) -> Kind | None:
    """The kind by the registry's name, which leaves Avro out; None for others."""
    return next((kind for kind in KINDS if kind == (name or "AVRO")), None)
