"""Schemas of a registry, with the schemas that they refer to."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from spark_eos.errors import stop

Kind = Literal["AVRO", "PROTOBUF", "JSON"]
KINDS: tuple[Kind, ...] = get_args(Kind)
#: Kinds by the names that users give them.
KIND_NAMES: dict[str, Kind] = {"avro": "AVRO", "protobuf": "PROTOBUF", "json-schema": "JSON"}


@dataclass(frozen=True)
class Reference:
    """A schema to which another one refers. ``name``: its name there, such as a record's full name or a file to import;
    ``subject`` and ``version``: where it is registered."""

    name: str
    subject: str
    version: int
    schema: Schema


@dataclass(frozen=True)
class Rule:
    """A rule by which Confluent's clients check or change values. ``mode``: when, such as WRITE or WRITEREAD."""

    name: str
    mode: str


@dataclass(frozen=True)
class Schema:
    """A schema: its text as it was registered, its references, and its rules that are not disabled."""

    kind: Kind
    text: str
    references: tuple[Reference, ...] = ()
    rules: tuple[Rule, ...] = ()

    @cached_property
    def fingerprint(self) -> str:
        """A hash of kind, text and references, without rules; it does not depend on the registry."""
        parts = [self.kind, self.text, [(each.name, each.schema.fingerprint) for each in self.references]]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    def all_references(self) -> dict[str, Schema]:
        """All schemas to which this one refers, directly or through others, by name. Each comes after those to which it
        refers itself. Raises RegistryError (EOS_REGISTRY_SCHEMA) where a name means two different schemas."""
        found: dict[str, Schema] = {}
        for reference in self.references:
            for name, schema in [*reference.schema.all_references().items(), (reference.name, reference.schema)]:
                if found.setdefault(name, schema).fingerprint != schema.fingerprint:
                    raise stop("EOS_REGISTRY_SCHEMA.two_references", name=name)
        return found


@dataclass(frozen=True)
class Registered:
    """A version of a subject, and its schema's id. ``guid``: empty where the registry has none."""

    subject: str
    version: int
    id: int
    schema: Schema
    guid: str = ""


def kind_of(name: str | None) -> Kind | None:
    """The kind with this name in the registry's answers, where no name is Avro; None for an unknown kind."""
    return next((kind for kind in KINDS if kind == (name or "AVRO")), None)
