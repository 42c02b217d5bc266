"""Questions to a schema registry, by confluent-kafka's client, with answers that are kept and time that is bounded.

A client has sockets and locks, so each process makes its own when it first asks, by the settings that came with the
work (`registry_of`).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from spark_eos.caches import process_cache
from spark_eos.errors import EosError, stop
from spark_eos.registry.schemas import KINDS, Reference, Registered, Schema, kind_of
from spark_eos.registry.settings import RegistrySettings

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

T = TypeVar("T")

#: How often one address is tried again.
_RETRIES = 1
#: Seconds for which nobody asks again for a schema that the registry did not have.
_UNKNOWN_S = 30.0
#: Such schemas that are noted at a time: bytes that begin with 0 by chance always name new ones.
_MOST_UNKNOWN = 10_000
#: Confluent's codes where a subject, a version or a schema is missing. A 404 without one comes from something else.
_MISSING = {40401: "subject", 40402: "version", 40403: "schema"}
_SLOW_DOWN = (408, 429)
#: Registries give ids of 31 bits. For any other one they answer as if their address were wrong.
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

    def schema(self, name: int | str, reader: Registered | None = None, *, anew: bool = False) -> Schema:
        """The schema of this id or GUID. ``reader``: a version that the registry has given before: what a registry does
        not know says something only while it has that one. ``anew``: asked also where it was unknown a moment ago.

        Raises RegistryError: EOS_REGISTRY_NOT_FOUND, and EOS_REGISTRY_CHANGED if this is not the reader's registry.
        """
        if name in self._schemas:
            return self._schemas[name]
        missing = stop("EOS_REGISTRY_NOT_FOUND.schema", schema=name, registry=self._settings.name)
        if not anew and self._unknown.get(name, 0.0) > time.monotonic():
            raise missing
        found = self._now(name)
        if found is None:
            if reader is not None:
                self._check_has(reader)
            if len(self._unknown) >= _MOST_UNKNOWN:
                self._unknown.clear()
            self._unknown[name] = time.monotonic() + _UNKNOWN_S
            raise missing
        self._schemas[name] = found
        return found

    def _now(self, name: int | str) -> Schema | None:
        """What the registry says of this id or GUID now; None if it does not know it."""
        if isinstance(name, int) and name > _MOST_ID:
            return None
        context = f":.{self._settings.context}:" if self._settings.context else None

        def ask(client: SchemaRegistryClient) -> Any:  # noqa: ANN401  # their Schema
            return client.get_schema(name, context) if isinstance(name, int) else client.get_schema_by_guid(name)

        try:
            return self._schema_of(self._ask(ask), {})
        except EosError as error:
            if error.entry != "EOS_REGISTRY_NOT_FOUND.answer":
                raise
            return None

    def _check_has(self, reader: Registered) -> None:
        """Raise RegistryError unless the registry has this schema under its id."""
        found = self._now(reader.id)
        if found is None or found.fingerprint != reader.schema.fingerprint:
            raise stop(
                "EOS_REGISTRY_CHANGED.reader",
                registry=self._settings.name,
                id=reader.id,
                subject=reader.subject,
                version=reader.version,
            )

    def version(self, subject: str, version: int | Literal["latest"]) -> Registered:
        """A version of the subject; asked each time. Raises RegistryError (EOS_REGISTRY_NOT_FOUND)."""
        return self._version(subject, version, {})

    def _version(self, subject: str, version: int | Literal["latest"], used: _Used) -> Registered:
        name = self._settings.qualified(subject)
        try:
            answer = self._ask(lambda client: client.get_version(name, version))
        except EosError as error:
            if error.entry != "EOS_REGISTRY_NOT_FOUND.answer":
                raise
            raise stop(
                "EOS_REGISTRY_NOT_FOUND.version", subject=name, version=version, registry=self._settings.name
            ) from None
        return self._registered(subject, answer, self._schema_of(answer.schema, used))

    def register(self, subject: str, schema: Schema) -> Registered:
        """Register the schema, or find it where it is registered. Raises RegistryError (EOS_REGISTRY_INCOMPATIBLE)."""
        name = self._settings.qualified(subject)
        self._ask(lambda client: client.register_schema(name, _as_theirs(schema)), subject=name)
        return self.lookup(subject, schema)

    def lookup(self, subject: str, schema: Schema) -> Registered:
        """The version of the subject that has just this schema. Raises RegistryError (EOS_REGISTRY_NOT_FOUND)."""
        name = self._settings.qualified(subject)
        try:
            found = self._ask(lambda client: client.lookup_schema(name, _as_theirs(schema)), subject=name)
        except EosError as error:
            if error.entry == "EOS_REGISTRY_NOT_FOUND.answer":
                raise stop("EOS_REGISTRY_NOT_FOUND.lookup", subject=name, registry=self._settings.name) from None
            raise
        return self._registered(subject, found, schema)

    def _registered(self, subject: str, answer: Any, schema: Schema) -> Registered:  # noqa: ANN401  # RegisteredSchema
        if answer.schema_id is None or answer.version is None:
            reason = f"no id and version for subject '{subject}'"
            raise stop("EOS_REGISTRY_ANSWER", registry=self._settings.name, reason=reason)
        return Registered(subject, answer.version, answer.schema_id, schema, answer.guid or "")

    def _schema_of(self, answer: Any, used: _Used) -> Schema:  # noqa: ANN401  # their Schema
        """With the schemas that it refers to. ``used``: those that were asked for on the way; None while they are."""
        kind = kind_of(answer.schema_type)
        if kind is None:
            raise stop("EOS_REGISTRY_SCHEMA.kind", kind=answer.schema_type, kinds=", ".join(KINDS))
        references = []
        for each in answer.references or ():
            place = each.subject, each.version
            if place not in used:
                used[place] = None
                used[place] = self._version(*place, used).schema
            schema = used[place]
            if schema is None:
                raise stop("EOS_REGISTRY_SCHEMA.circle", subject=each.subject, version=each.version)
            references.append(Reference(each.name, each.subject, each.version, schema))
        return Schema(kind, answer.schema_str, tuple(references))

    def _ask(self, question: Callable[[SchemaRegistryClient], T], *, subject: str = "") -> T:
        """The answer, within the time. A thread asks, as the client's own limits are for each read of a socket."""
        answers: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

        def ask() -> None:
            try:
                client: Any = self._client or _new_client(self._settings)
                self._client = client
                client.clear_caches()  # they would outlive a registry that is made anew, with other ids
                answers.put((question(client), None))
            except BaseException as error:
                answers.put((None, error))

        threading.Thread(target=ask, name="spark-eos-registry", daemon=True).start()
        try:
            answer, error = answers.get(timeout=self._settings.timeout_s)
        except queue.Empty:
            self._client = None  # the thread has it, until the registry lets go of it
            reason = f"no answer within {self._settings.timeout_s:g} s"
            raise stop("EOS_REGISTRY_UNREACHABLE", registry=self._settings.name, reason=reason) from None
        if error is not None:
            # Without its cause, whose texts and variables are not ours.
            raise _error_of(error, self._settings, subject) from None
        return answer  # type: ignore[return-value]  # an answer, as there is no error


@process_cache(maxsize=16)
def registry_of(settings: RegistrySettings) -> Registry:
    """This process's registry by these settings."""
    return Registry(settings)


def _new_client(settings: RegistrySettings) -> SchemaRegistryClient:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise stop("EOS_NOT_INSTALLED.registry", module=error.name) from None
    try:
        return SchemaRegistryClient(settings.client_conf(_RETRIES))
    except (
        OSError,
        ValueError,
    ) as error:  # files of certificates (ssl.SSLError is an OSError), settings that are missing
        raise stop("EOS_OPTION_INVALID.registry", reason=_hidden(error, settings)) from None


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
        return stop("EOS_REGISTRY_UNAUTHORIZED.token", registry=registry, reason=_hidden(error, settings))
    if isinstance(error, OAuthTokenError | httpx.TransportError):
        return stop("EOS_REGISTRY_UNREACHABLE", registry=registry, reason=_hidden(error, settings))
    reason = f"{type(error).__name__}: {_hidden(error, settings)}"
    return stop("EOS_REGISTRY_ANSWER", registry=registry, reason=reason)


def _refusal(status: int, code: int | None, reason: str, registry: str, subject: str) -> EosError:
    """The error of an answer that is not a success."""
    if status in (401, 403):
        return stop("EOS_REGISTRY_UNAUTHORIZED.answer", registry=registry, status=status)
    if status >= 500 or status in _SLOW_DOWN:
        return stop("EOS_REGISTRY_UNREACHABLE", registry=registry, reason=reason)
    if status == 404 and code in _MISSING:
        return stop("EOS_REGISTRY_NOT_FOUND.answer", what=_MISSING[code], registry=registry)
    if status == 409:
        return stop("EOS_REGISTRY_INCOMPATIBLE.answer", subject=subject, registry=registry, reason=reason)
    if status == 422:
        return stop("EOS_REGISTRY_INCOMPATIBLE.invalid", subject=subject, registry=registry, reason=reason)
    return stop("EOS_REGISTRY_ANSWER", registry=registry, reason=reason)


def _hidden(error: BaseException, settings: RegistrySettings) -> str:
    """The error's text without secrets, which some servers repeat, and no longer than a line."""
    text = str(error) or type(error).__name__
    for secret in settings.secrets:
        text = text.replace(secret, "***")
    return text[:300].rstrip(".")
