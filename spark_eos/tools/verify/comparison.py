"""A comparison: topics, or topics and a table, and where their rows have their ids."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from confluent_kafka import Message

from spark_eos.errors import stop
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.messages import headers_of, offset_of
from spark_eos.tools.verify.tables import TableAddress

Order = Literal["input-partition", "key", "none"]

#: Seconds until a silent cluster is an error.
_TIMEOUT_S = 12.0


@dataclass(frozen=True)
class IdPlace:
    """Where a row has its id. ``kind``: key, value, header, json, column or place (topic, partition and offset);
    ``name``: of the header or the column, the field's path, or the columns with topic, partition and offset."""

    kind: str
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> IdPlace:
        """Parse ``key``, ``value``, ``header:NAME``, ``json:FIELD``, ``column:NAME``, ``place`` or
        ``place:TOPIC,PARTITION,OFFSET``. Raises CommandError (EOS_VERIFY_IMPOSSIBLE)."""
        kind, _, name = text.partition(":")
        if kind in ("key", "value", "place") and text == kind:
            return cls(kind)
        if (kind in ("header", "json", "column") and name) or (kind == "place" and name.count(",") in (1, 2)):
            return cls(kind, name)
        raise stop("EOS_VERIFY_IMPOSSIBLE.id_place", value=text)

    def ids(self, messages: list[Message]) -> list[bytes | None]:
        """Return the id of each message of one partition; None if it cannot be read."""
        if self.kind == "key":
            return list(map(Message.key, messages))
        if self.kind == "value":
            return list(map(Message.value, messages))
        if self.kind == "place":
            before = f"{messages[0].topic()}-{messages[0].partition()}@".encode() if messages else b""
            return [b"%b%d" % (before, offset_of(message)) for message in messages]
        if self.kind == "header":
            return [dict(headers_of(message)).get(self.name) for message in messages]
        return self.in_json([message.value() for message in messages])

    def in_json(self, values: list[bytes | None]) -> list[bytes | None]:
        """Return the id in each value, for ``json``."""
        path = tuple(self.name.split("."))
        return [_json_id(value, path) for value in values]

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind


#: Numbers stay as they are in JSON, as several of them equal the same double.
_AS_TEXT: Mapping[str, Any] = {"parse_float": str, "parse_int": str, "parse_constant": str}
#: The core of `json.loads`, which takes a third of the time.
_decode = json.JSONDecoder(**_AS_TEXT).raw_decode


def parse_json(value: bytes) -> object:
    """Parse like `json.loads`, from UTF-8, with numbers as texts. Raises ValueError, RecursionError."""
    text = value.decode()
    try:
        parsed, end = _decode(text)
    except json.JSONDecodeError:  # it may just begin with a space
        parsed, end = None, -1
    return parsed if end == len(text) else json.loads(value, **_AS_TEXT)


def _json_id(value: bytes | None, path: tuple[str, ...]) -> bytes | None:
    """Return strings unchanged, numbers and booleans as in the JSON: so 7 and "7" are the same id."""
    try:
        at = parse_json(value) if value is not None else None
    except (ValueError, RecursionError):
        return None
    for field in path:
        if not isinstance(at, dict):
            return None
        at = at.get(field)
    if isinstance(at, str):
        return at.encode(errors="surrogatepass")
    return json.dumps(at).encode() if isinstance(at, bool) else None


@dataclass(frozen=True)
class Comparison:
    """The topics to compare, and the rules by which rows are faulty. A table is instead of the topics of one side, and
    has no order.

    ``group``: rows below its committed offsets are due, others must not be in the output yet. ``query``: the same, by
    the end offsets that the output, a table, has of this query. ``allow_missing``: rows may be left out.
    ``same_value``: values must not change. ``limit``: examples of each fault. ``timeout_s``: how long to wait for a
    silent cluster. Raises CommandError (EOS_VERIFY_IMPOSSIBLE) for sides that cannot be compared.
    """

    kafka: KafkaProperties
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    id: IdPlace
    output_id: IdPlace
    input_table: TableAddress | None = None
    output_table: TableAddress | None = None
    group: str | None = None
    query: str | None = None
    order: Order = "input-partition"
    allow_missing: bool = False
    same_value: bool = False
    limit: int = 5
    timeout_s: float = _TIMEOUT_S

    def __post_init__(self) -> None:
        tables = [table for table in (self.input_table, self.output_table) if table is not None]
        if tables and self.order != "none":
            raise stop(
                "EOS_VERIFY_IMPOSSIBLE.options",
                option=f"--order {self.order}",
                why="a table has no order",
                instead="Compare rows without their order.",
            )
        if self.input_table is not None and (self.output_table is not None or self.group):
            raise stop("EOS_VERIFY_IMPOSSIBLE.table_input")
        if self.query and (self.output_table is None or self.group):
            raise stop(
                "EOS_VERIFY_IMPOSSIBLE.options",
                option="--query",
                why="it is for a table as output, and excludes --group",
                instead="For an output of topics, use --group.",
            )
        _check_place("input", self.input_table, self.id)
        _check_place("output", self.output_table, self.output_id)

    @property
    def sides(self) -> tuple[list[str], list[str]]:
        """Input and output, as the user names them."""
        sides = ((self.inputs, self.input_table), (self.outputs, self.output_table))
        first, second = (list(topics) if table is None else [str(table)] for topics, table in sides)
        return first, second


def _check_place(side: str, table: TableAddress | None, id_place: IdPlace) -> None:
    """Raise CommandError (EOS_VERIFY_IMPOSSIBLE) where rows of this side cannot have their ids there. Rows of the input
    topics have topic, partition and offset anyway; a table may have them in its columns."""
    if table is not None:
        fits = id_place.kind not in ("header", "place") or (id_place.kind == "place" and side == "output")
    else:
        fits = id_place.kind != "column" and (id_place.kind != "place" or (side == "input" and not id_place.name))
    if not fits:
        raise stop(
            "EOS_VERIFY_IMPOSSIBLE.id_side", place=id_place, side=side, what="topics" if table is None else str(table)
        )


def side(names: Sequence[str], settings: Mapping[str, str]) -> tuple[tuple[str, ...], TableAddress | None]:
    """Return the topics of one side, or its table. ``names``: as the user gives them; ``settings``: of tables. Raises
    CommandError (EOS_VERIFY_IMPOSSIBLE)."""
    given = {name: TableAddress.parse(name, settings) for name in names}
    tables = [table for table in given.values() if table is not None]
    if tables and len(given) > 1:
        raise stop("EOS_VERIFY_IMPOSSIBLE.sides", names=", ".join(given))
    return ((), tables[0]) if tables else (tuple(given), None)
