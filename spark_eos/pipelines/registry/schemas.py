"""Schemas of a registry, with the schemas that they refer to."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Literal, get_args

from spark_eos.errors import EosError, stop

Kind = Literal["AVRO", "PROTOBUF", "JSON"]
KINDS: tuple[Kind, ...] = get_args(Kind)
#: Kinds by the names that users give them.
KIND_NAMES: dict[str, Kind] = {"avro": "AVRO", "protobuf": "PROTOBUF", "json-schema": "JSON"}
#: The most schemas to which one refers, directly or through others, and how many of them may lead to
#: one.
MOST_REFERENCES, LONGEST_WAY = 1_000, 50


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
    """A schema: its text as it was registered, its references, and its rules that are not disabled.

    ``fingerprint``: a hash of kind, text and references, without rules; it does not depend on the registry. Schemas are
    compared by it, as a schema to which others refer may be reached in very many ways.
    """

    kind: Kind = field(compare=False)
    text: str = field(compare=False)
    references: tuple[Reference, ...] = field(default=(), compare=False, repr=False)
    rules: tuple[Rule, ...] = ()
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        parts = [self.kind, self.text, [(each.name, each.schema.fingerprint) for each in self.references]]
        digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        object.__setattr__(self, "fingerprint", digest[:32])

    def all_references(self) -> dict[str, Schema]:
        """Return all schemas to which this one refers, directly or through others, by name. Each comes after the
        schemas to which it refers itself. Raises RegistryError (EOS_REGISTRY_SCHEMA) where a name means two different
        schemas."""
        by_name: dict[str, Schema] = {}
        _add_references(self, by_name, set())
        return by_name


def _add_references(schema: Schema, by_name: dict[str, Schema], seen: set[str]) -> None:
    """Add the schemas to which this one refers. ``seen``: fingerprints of schemas whose references are added
    already."""
    if schema.fingerprint in seen:
        return
    for reference in schema.references:
        _add_references(reference.schema, by_name, seen)
        if by_name.setdefault(reference.name, reference.schema).fingerprint != reference.schema.fingerprint:
            raise stop("EOS_REGISTRY_SCHEMA.two_references", name=reference.name)
    seen.add(schema.fingerprint)


@dataclass(frozen=True)
class Registered:
    """A version of a subject, and its schema's id. ``guid``: empty where the registry has none."""

    subject: str
    version: int
    id: int
    schema: Schema
    guid: str = ""


def kind_of(name: str | None) -> Kind | None:
    """Return the kind with this name in the registry's answers, where no name is Avro; None for an unknown kind."""
    return next((kind for kind in KINDS if kind == (name or "AVRO")), None)


def check_references(kind: Kind, count: int, way: int) -> None:
    """Raise RegistryError (EOS_REGISTRY_SCHEMA) where no further reference may be looked up. ``count``: references so
    far; ``way``: the length of the chain of references that leads to this one."""
    if count >= MOST_REFERENCES:
        raise too_large(kind, MOST_REFERENCES, "references")
    if way >= LONGEST_WAY:
        raise too_large(kind, LONGEST_WAY, "references that lead to one another")


def check_kind(schema: Schema, kind: Kind) -> None:
    """Raise RegistryError (EOS_REGISTRY_SCHEMA) where a writer's schema is of another kind than the reader's."""
    if schema.kind != kind:
        raise stop("EOS_REGISTRY_SCHEMA.other", what="The value", written=schema.kind, expected=kind)


def not_installed(error: ImportError) -> EosError:
    """Return the error of a module of the extra ``registry`` that cannot be imported."""
    return stop("EOS_NOT_INSTALLED.extra", use="The schema registry", modules=error.name, extra="registry")


def too_large(kind: Kind, most: int, what: str) -> EosError:
    """Return the error for a schema with more than ``most`` of ``what``."""
    return stop("EOS_REGISTRY_SCHEMA.large", kind=kind, most=most, what=what)
