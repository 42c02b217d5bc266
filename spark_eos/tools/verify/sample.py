"""Describes rows without an id: whether they have keys, and the names of fields and headers, but never values."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from confluent_kafka import Message

from spark_eos.errors import EosError
from spark_eos.kafka.messages import headers_of
from spark_eos.tools.verify.comparison import parse_json

#: Rows of each partition that are examined.
SAMPLE_ROWS = 100
#: Maximum number of names of fields and of headers.
MOST_NAMES = 20
#: A name in a smaller share of the rows may be a value, for example the key of a map.
_COMMON = 0.1
_LONGEST_NAME = 40
_DEEPEST = 5
_PLAIN = re.compile(r"[^\s.,'\"()]+")

#: The kind of a field or header; "" if it may be an id.
_AN_ID = ""
_OBJECTS = "JSON objects"


class Sample:
    """Some rows without an id; as text, a description of them."""

    def __init__(self) -> None:
        self._rows: Counter[int] = Counter()  # by partition
        self._keys = 0
        self._values: Counter[str] = Counter()
        self._fields: dict[str, Counter[str]] = {}  # how often each has which kind
        self._headers: dict[str, Counter[str]] = {}

    def add(self, partition: int, messages: Sequence[Message]) -> None:
        """Add rows of one partition, by its number; rows beyond `SAMPLE_ROWS` are ignored."""
        for message in messages[: SAMPLE_ROWS - self._rows[partition]]:
            self._rows[partition] += 1
            self._keys += message.key() is not None
            self._add_value(message.value())
            with contextlib.suppress(EosError):  # for a name that is not UTF-8
                for name, value in dict(headers_of(message)).items():
                    self._headers.setdefault(name, Counter())["null" if value is None else _AN_ID] += 1

    def _add_value(self, value: bytes | None) -> None:
        try:
            parsed = parse_json(value) if value is not None else None
        except (ValueError, RecursionError):
            self._values["not JSON"] += 1
            return
        if value is None:
            self._values["null"] += 1
        elif not isinstance(parsed, dict):
            self._values["JSON, but not objects"] += 1
        else:
            self._values[_OBJECTS] += 1
            for name, holds in dict(_fields(parsed)).items():
                self._fields.setdefault(name, Counter())[holds] += 1

    def __str__(self) -> str:
        rows = self._rows.total()
        keys = {0: "keys are null", rows: "keys are there"}.get(self._keys, f"{self._keys} have a key")
        return f"Of the {rows:,} looked at, {keys}, values are {self._values_text()}, and {self._headers_text(rows)}"

    def _values_text(self) -> str:
        parts = []
        for kind, count in self._values.items():
            part = f"{kind} ({count})" if len(self._values) > 1 else kind
            if kind == _OBJECTS:
                part += self._fields_text(count)
            parts.append(part)
        return _joined(parts)

    def _fields_text(self, objects: int) -> str:
        if not self._fields:
            return " without fields"
        common = _listed(self._fields, objects)
        return f" with the fields {common}" if common else " whose fields differ"

    def _headers_text(self, rows: int) -> str:
        if not self._headers:
            return "there are no headers"
        common = _listed(self._headers, rows)
        return f"headers are {common}" if common else "headers differ"


def _fields(value: dict[str, Any], path: str = "", depth: int = 1) -> Iterator[tuple[str, str]]:
    """Yield the paths of all fields, and the kinds of their values. The fields of an object are listed in its stead,
    unless it has none or lies deep."""
    for name, inner in value.items():
        if isinstance(inner, dict) and inner and depth < _DEEPEST:
            yield from _fields(inner, f"{path}{_shown(name)}.", depth + 1)
        else:
            kind = {dict: "object", list: "array", type(None): "null"}.get(type(inner), _AN_ID)
            yield path + _shown(name), kind


def _shown(name: str) -> str:
    """Return a name, short and in one line; quoted if it could be mistaken for more than a name."""
    name = name if len(name) < _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
    return name if _PLAIN.fullmatch(name) and name.isprintable() else repr(name)


def _listed(names: dict[str, Counter[str]], rows: int) -> str:
    """Return the common fields, most common first, each with its kind if that cannot be an id."""
    least = min(rows, max(2, _COMMON * rows))
    common = [name for name, holds in names.items() if holds.total() >= least]
    common.sort(key=lambda name: -names[name].total())
    shown = []
    for name in common[:MOST_NAMES]:
        holds = names[name]
        shown.append(name if holds[_AN_ID] else f"{name} ({holds.most_common(1)[0][0]})")
    if len(common) > MOST_NAMES:
        shown.append(f"{len(common) - MOST_NAMES} more")
    return _joined(shown)


def _joined(parts: Sequence[str]) -> str:
    """Return "a, b and c"."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)
