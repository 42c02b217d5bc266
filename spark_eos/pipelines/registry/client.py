"""A schema registry, by confluent-kafka's client, with a cache of schemas and a limit of time for each request.

A client has sockets and locks, so that each process makes its own with its first request (`registry_of`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from spark_eos.base.caches import process_cache
from spark_eos.errors import EosError, invalid_option, stop
from spark_eos.pipelines.deadline import Overdue, within
from spark_eos.pipelines.registry.answers import bound_answers
from spark_eos.pipelines.registry.schemas import (
    KINDS,
    Reference,
    Registered,
    Rule,
    Schema,
    check_references,
    kind_of,
    not_installed,
)
from spark_eos.pipelines.registry.settings import RegistrySettings

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

T = TypeVar("T")

#: Retries at each address.
_RETRIES = 1
#: Seconds for which an unknown schema is not looked up again.
_UNKNOWN_S = 30.0
#: Confluent's code for a subject that the user may not read.
_DENIED = 40301
#: The most unknown schemas that are noted: bytes that begin with 0 by chance seem to have another one each time.
_MOST_UNKNOWN = 10_000
#: Seconds for which a reader's schema that was there counts as there when another one is unknown.
_CHECKED_S = 1.0
#: Confluent's codes for a missing subject, version or schema, and for a version that cannot be, such as 0. A 404
#: without one of them comes from something else.
_MISSING = {40401: "subject", 40402: "version", 40403: "schema", 42202: "version"}
#: Its codes, with HTTP 422, for a subject that is read-only, or has a name that is not allowed.
_NOT_PERMITTED = (42205, 42208)
_SLOW_DOWN = (408, 429)
#: The highest id. For a higher one, registries answer as if their address were wrong.
_MOST_ID = (1 << 31) - 1
#: Schemas by subject and version.
_Used = dict[tuple[str, int], Schema | None]


class Registry:
    """One process's view of a registry. Methods raise RegistryError; where the registry does not answer within
    ``registry.timeout.ms``, a restart helps (EOS_REGISTRY_UNREACHABLE)."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._client: SchemaRegistryClient | None = None
        self._schemas: dict[int | str, Schema] = {}
        self._unknown: dict[int | str, float] = {}
        self._checked: dict[Registered, float] = {}
        self._versions: dict[tuple[str, int], frozenset[str]] = {}

    def schema(self, name: int | str, reader: Registered | None = None, *, anew: bool = False) -> Schema:
        """Return the schema of this id or GUID. ``anew``: look it up even if it was unknown less than 30 s ago.

        ``reader``: a version that this registry had. If it no longer has it, this is another registry, or an empty one,
        whose ids prove nothing; if it has it, a schema that may not be read, or lacks a reference, is unknown.
        Raises RegistryError: EOS_REGISTRY_NOT_FOUND, and EOS_REGISTRY_CHANGED.
        """
        if name in self._schemas:
            return self._schemas[name]
        missing = stop("EOS_REGISTRY_NOT_FOUND.schema", schema=name, registry=self._settings.name)
        if not anew and self._unknown.get(name, 0.0) > time.monotonic():
            raise missing
        try:
            schema = self._get(name)
        except EosError as error:
            if reader is None or not _is_of_one(error, name):
                raise
            schema = None
            self._checked.clear()
        if reader is not None and (schema is not None or self._checked.get(reader, 0.0) < time.monotonic()):
            self._check_has(reader)
            self._checked[reader] = time.monotonic() + _CHECKED_S
        if schema is None:
            if len(self._unknown) >= _MOST_UNKNOWN:
                self._unknown.clear()
            self._unknown[name] = time.monotonic() + _UNKNOWN_S
            raise missing
        self._schemas[name] = schema
        return schema

    def _get(self, name: int | str) -> Schema | None:
        """Return the schema of this id or GUID, from the registry; None if it does not know it."""
        if isinstance(name, int) and name > _MOST_ID:
            return None
        context = f":.{self._settings.context}:" if self._settings.context else None

        def get(client: SchemaRegistryClient) -> Any:  # noqa: ANN401  # their Schema
            return client.get_schema(name, context) if isinstance(name, int) else client.get_schema_by_guid(name)

        answer = self._find(get)
        return None if answer is None else self._schema_of(answer, {})

    def _check_has(self, reader: Registered) -> None:
        """Raise RegistryError unless the registry has this schema under its id."""
        schema = self._get(reader.id)
        if schema is None or schema.fingerprint != reader.schema.fingerprint:
            raise stop(
                "EOS_REGISTRY_CHANGED.version",
                registry=self._settings.name,
                subject=reader.subject,
                version=reader.version,
                why=f"its id {reader.id} is that of another schema, or of none",
            )

    def version(self, subject: str, version: int | Literal["latest"]) -> Registered:
        """Return a version of the subject, looked up each time. Raises RegistryError (EOS_REGISTRY_NOT_FOUND)."""
        return self._version(subject, version, {})

    def _version(self, subject: str, version: int | Literal["latest"], used: _Used) -> Registered:
        name, registry = self._settings.qualified(subject), self._settings.name
        # Of references, deleted ones, too, as Confluent's client does: other schemas still use them.
        answer = self._find(lambda client: client.get_version(name, version, deleted=bool(used)))
        if answer is None:
            raise stop(
                "EOS_REGISTRY_NOT_FOUND.answer",
                version=version,
                registry=registry,
                what=f"version '{version}' of subject '{name}'",
            )
        registered = self._registered(subject, answer, self._schema_of(answer.schema, used))
        if version not in ("latest", -1, registered.version):  # the second is the latest, too, in references
            raise self._no_answer(f"version {registered.version} of subject '{subject}' instead of version {version}")
        return registered

    def names(self, registered: Registered) -> frozenset[str]:
        """Return the ids and GUIDs, as texts, of this version and all others that the subject has now, or has had."""
        name = self._settings.qualified(registered.subject)
        versions = self._find(lambda client: client.get_versions(name, deleted=True))
        here = frozenset({str(registered.id), registered.guid})
        numbers = versions if isinstance(versions, list) else ()
        return here.union(*(self._names_of(name, number) for number in numbers)) - {""}

    def _names_of(self, subject: str, version: int) -> frozenset[str]:
        if (subject, version) not in self._versions:
            answer = self._find(lambda client: client.get_version(subject, version, deleted=True))
            names = () if answer is None else (str(answer.schema_id), answer.guid or "")
            self._versions[subject, version] = frozenset(names)
        return self._versions[subject, version]

    def register(self, subject: str, schema: Schema) -> Registered:
        """Register the schema unless it is registered. Raises RegistryError (EOS_REGISTRY_INCOMPATIBLE)."""
        name = self._settings.qualified(subject)
        self._ask(lambda client: client.register_schema(name, _as_theirs(schema)), subject=name)
        return self.lookup(subject, schema)

    def lookup(self, subject: str, schema: Schema) -> Registered:
        """Return the version of the subject with exactly this schema. Raises RegistryError (EOS_REGISTRY_NOT_FOUND)."""
        name = self._settings.qualified(subject)
        answer = self._find(lambda client: client.lookup_schema(name, _as_theirs(schema)), subject=name)
        if answer is None:
            raise stop("EOS_REGISTRY_NOT_FOUND.lookup", subject=name, registry=self._settings.name)
        registered = self._registered(subject, answer, schema)
        # The client gives back the schema that it was given, without the rules that the subject has for it.
        there = self._ask(lambda client: client.get_version(name, registered.version), subject=name)
        return replace(registered, schema=replace(schema, rules=_rules_of(there.schema)))

    def _registered(self, subject: str, answer: Any, schema: Schema) -> Registered:  # noqa: ANN401  # RegisteredSchema
        if not _are_numbers(answer.schema_id, answer.version):
            raise self._no_answer(f"no id and version for subject '{subject}'")
        return Registered(subject, answer.version, answer.schema_id, schema, answer.guid or "")

    def _no_answer(self, reason: str) -> EosError:
        return stop("EOS_REGISTRY_ANSWER", registry=self._settings.name, reason=reason)

    def _schema_of(self, answer: Any, used: _Used) -> Schema:  # noqa: ANN401  # their Schema
        """Return the schema of an answer, with its references. ``used``: the references that were looked up so far;
        None for one whose own references are being looked up."""
        kind = kind_of(answer.schema_type)
        if kind is None:
            raise stop("EOS_REGISTRY_SCHEMA.kind", kind=answer.schema_type, kinds=", ".join(KINDS))
        if not isinstance(answer.schema_str, str):
            raise self._no_answer("a schema without its text")
        references = []
        for each in answer.references or ():
            if not (isinstance(each.name, str) and isinstance(each.subject, str) and _are_numbers(each.version)):
                raise self._no_answer("a reference without name, subject and version")
            place = each.subject, each.version
            if place not in used:
                check_references(kind, len(used), list(used.values()).count(None))
                used[place] = None
                used[place] = self._version(*place, used).schema
            schema = used[place]
            if schema is None:
                raise stop("EOS_REGISTRY_SCHEMA.circle", subject=each.subject, version=each.version)
            references.append(Reference(each.name, each.subject, each.version, schema))
        return Schema(kind, answer.schema_str, tuple(references), _rules_of(answer))

    def _find(self, question: Callable[[SchemaRegistryClient], T], *, subject: str = "") -> T | None:
        """Return the answer; None where the registry has no such subject, version or schema."""
        try:
            return self._ask(question, subject=subject)
        except EosError as error:
            if error.entry != "EOS_REGISTRY_NOT_FOUND.answer":
                raise
            return None

    def _ask(self, question: Callable[[SchemaRegistryClient], T], *, subject: str = "") -> T:
        """Return the answer to a request. It is sent by a thread, to limit its time: the client's own limits only hold
        for single reads of a socket."""

        def ask() -> T:
            client: Any = self._client or _new_client(self._settings)
            self._client = client
            client.clear_caches()  # a registry that was recreated has other ids
            return question(client)

        try:
            return within(self._settings.timeout_s, ask, "spark-eos-registry")
        except Overdue as error:
            self._client = None  # the thread still uses it
            raise stop("EOS_REGISTRY_UNREACHABLE", registry=self._settings.name, reason=str(error)) from None
        except BaseException as error:
            # Without its cause, whose text and variables may have secrets.
            raise _error_of(error, self._settings, subject) from None


@process_cache(maxsize=16)
def registry_of(settings: RegistrySettings) -> Registry:
    """Return the registry with these settings, one object for each process."""
    return Registry(settings)


def _new_client(settings: RegistrySettings) -> SchemaRegistryClient:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise not_installed(error) from None
    try:
        client = SchemaRegistryClient(settings.client_conf(_RETRIES))
    except (OSError, ValueError) as error:  # certificate files (ssl.SSLError is an OSError), missing settings
        raise invalid_option(
            "registry.*",
            f"refused by the client of the schema registry: {_hidden(error, settings)}",
            "settings that it takes; files of certificates have to be on this machine and on every executor",
        ) from None
    bound_answers(client)
    return client


def _is_of_one(error: EosError, name: int | str) -> bool:
    """Tell whether an error may be about this schema alone: something that it refers to is gone, the user may not see
    it, by Confluent's code, or the registry has no GUIDs, so that their address is wrong."""
    if error.condition == "EOS_REGISTRY_ANSWER":
        return isinstance(name, str) and error.parameters.get("status") in (404, 405)
    return error.condition == "EOS_REGISTRY_NOT_FOUND" or error.parameters.get("code") == _DENIED


def _are_numbers(*values: object) -> bool:
    return all(isinstance(value, int) and not isinstance(value, bool) for value in values)


def _rules_of(answer: Any) -> tuple[Rule, ...]:  # noqa: ANN401  # their Schema
    """Return all rules that are not disabled: of values' fields, of their bytes, and between versions."""
    given = answer.rule_set
    if given is None:
        return ()
    rules = [*(given.domain_rules or ()), *(given.encoding_rules or ()), *(given.migration_rules or ())]
    return tuple(Rule(str(rule.name), str(rule.mode)) for rule in rules if not rule.disabled)


def _as_theirs(schema: Schema) -> Any:  # noqa: ANN401  # their Schema
    from confluent_kafka.schema_registry import Schema as Theirs
    from confluent_kafka.schema_registry import SchemaReference

    references = [SchemaReference(each.name, each.subject, each.version) for each in schema.references]
    return Theirs(schema.text, schema.kind, references)


def _error_of(error: BaseException, settings: RegistrySettings, subject: str) -> BaseException:
    if isinstance(error, EosError) or not isinstance(error, Exception):
        return error
    from confluent_kafka.schema_registry.common._httpx_compat import httpx
    from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

    registry = settings.name
    if isinstance(error, SchemaRegistryError):
        return _refusal(error.http_status_code, error.error_code, _hidden(error, settings), registry, subject)
    if isinstance(error, OAuthTokenError) and not isinstance(error.__context__, httpx.TransportError):
        why = f"no token could be fetched: {_hidden(error, settings)}"
        return stop("EOS_REGISTRY_UNAUTHORIZED", registry=registry, why=why)
    if isinstance(error, OAuthTokenError | httpx.TransportError):
        return stop("EOS_REGISTRY_UNREACHABLE", registry=registry, reason=_hidden(error, settings))
    reason = f"{type(error).__name__}: {_hidden(error, settings)}"
    return stop("EOS_REGISTRY_ANSWER", registry=registry, reason=reason)


def _refusal(status: int, code: int | None, reason: str, registry: str, subject: str) -> EosError:
    """Return the error for an HTTP status that is not a success, with Confluent's ``code`` if there is one."""
    if status in (401, 403):
        return stop("EOS_REGISTRY_UNAUTHORIZED", registry=registry, why=f"HTTP {status}", code=code)
    if status >= 500 or status in _SLOW_DOWN:
        return stop("EOS_REGISTRY_UNREACHABLE", registry=registry, reason=reason)
    if status in (404, 422) and code in _MISSING:
        return stop("EOS_REGISTRY_NOT_FOUND.answer", registry=registry, what=f"such {_MISSING[code]}")
    if status == 409:
        return stop("EOS_REGISTRY_INCOMPATIBLE", subject=subject, registry=registry, reason=reason, what="compatible")
    if status == 422 and subject:
        lacks = "permitted" if code in _NOT_PERMITTED else "valid"
        return stop("EOS_REGISTRY_INCOMPATIBLE", subject=subject, registry=registry, reason=reason, what=lacks)
    return stop("EOS_REGISTRY_ANSWER", registry=registry, reason=reason, status=status)


def _hidden(error: BaseException, settings: RegistrySettings) -> str:
    """Return the error's text, cut to 300 characters, without secrets and tokens, which some servers repeat."""
    text = re.sub(r"(?i)(bearer\s+)[\w.~+/=-]+", r"\1***", str(error) or type(error).__name__)
    for secret in settings.secrets:
        text = text.replace(secret, "***")
    return text[:300].rstrip(".")
