"""What is compared: topics, and where their rows have their ids."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from confluent_kafka import Message

from spark_eos.errors import stop
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.messages import headers_of

Order = Literal["input-partition", "key", "none"]

#: Seconds until a silent cluster is an error.
_TIMEOUT_S = 12.0


@dataclass(frozen=True)
class IdPlace:
    """Where a row has its id. ``kind``: key, value, header or json; ``name``: of the header, or the field's path."""

    kind: str
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> IdPlace:
        """``key``, ``value``, ``header:NAME`` or ``json:FIELD``. Raises CommandError (EOS_VERIFY_IMPOSSIBLE)."""
        kind, _, name = text.partition(":")
        if (kind in ("key", "value") and text == kind) or (kind in ("header", "json") and name):
            return cls(kind, name)
        raise stop("EOS_VERIFY_IMPOSSIBLE.id_place", value=text)

    def ids(self, messages: list[Message]) -> list[bytes | None]:
        """The id of each message; None if it cannot be read."""
        if self.kind == "key":
            return list(map(Message.key, messages))
        if self.kind == "value":
            return list(map(Message.value, messages))
        if self.kind == "header":
            return [dict(headers_of(message)).get(self.name) for message in messages]
        path = tuple(self.name.split("."))
        return [_json_id(message.value(), path) for message in messages]

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind


#: The core of `json.loads`, which takes a third of the time.
_decode = json.JSONDecoder().raw_decode


def parse_json(value: bytes) -> object:
    """Like `json.loads`, for UTF-8. Raises ValueError, RecursionError."""
    text = value.decode()
    try:
        found, end = _decode(text)
    except json.JSONDecodeError:  # it may just begin with a space
        found, end = None, -1
    return found if end == len(text) else json.loads(value)


def _json_id(value: bytes | None, path: tuple[str, ...]) -> bytes | None:
    """Strings unchanged, numbers and booleans as in the JSON: so 7 and "7" are the same id."""
    try:
        found = parse_json(value) if value is not None else None
    except (ValueError, RecursionError):
        return None
    for field in path:
        if not isinstance(found, dict):
            return None
        found = found.get(field)
    if isinstance(found, str):
        return found.encode(errors="surrogatepass")
    return json.dumps(found).encode() if isinstance(found, int | float) else None


@dataclass(frozen=True)
class Comparison:
    """The topics to compare and what counts as a fault.

    ``group``: rows below its committed offsets are due, others must not be in the output yet. ``allow_missing``: rows
    may be left out. ``same_value``: values must not change. ``limit``: examples of each fault. ``timeout_s``: how long
    to wait for a silent cluster.
    """

    kafka: KafkaProperties
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    id: IdPlace
    output_id: IdPlace
    group: str | None = None
    order: Order = "input-partition"
    allow_missing: bool = False
    same_value: bool = False
    limit: int = 5
    timeout_s: float = _TIMEOUT_S
