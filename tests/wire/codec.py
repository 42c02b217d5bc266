"""Requests and answers by kio, whose schemas are generated from Kafka's own message definitions."""

from __future__ import annotations

import io
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

#: First and last version by API key that these brokers speak; kio has all of them.
VERSIONS = {
    0: (0, 12), 1: (4, 13), 2: (1, 7), 3: (0, 12), 9: (1, 8), 10: (0, 4), 18: (0, 3),
    22: (0, 5), 24: (0, 5), 25: (0, 4), 26: (0, 5), 28: (0, 5), 61: (0, 0), 65: (0, 0), 66: (0, 2),
}  # fmt: skip
#: The same for brokers as those of Kafka 3.7.
OLD_VERSIONS = VERSIONS | {0: (0, 10), 22: (0, 4), 24: (0, 4), 25: (0, 3), 26: (0, 3), 28: (0, 3), 66: (0, 0)}

NAMES = {
    0: "Produce", 1: "Fetch", 2: "ListOffsets", 3: "Metadata", 9: "OffsetFetch", 10: "FindCoordinator",
    18: "ApiVersions", 22: "InitProducerId", 24: "AddPartitionsToTxn", 25: "AddOffsetsToTxn", 26: "EndTxn",
    28: "TxnOffsetCommit", 32: "DescribeConfigs", 61: "DescribeProducers", 65: "DescribeTransactions",
    66: "ListTransactions",
}  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """A request: its header's fields, and its body as kio reads it."""

    api: int
    version: int
    number: int
    body: Any

    @property
    def name(self) -> str:
        return NAMES[self.api]


@cache
def _reads(api: int, version: int) -> tuple[Any, Any]:
    schema: Any = load_request_schema(api, version)
    return entity_reader(schema.__header_schema__), entity_reader(schema)


@cache
def _writes(api: int, version: int) -> tuple[Any, Any, Any]:
    schema: Any = load_response_schema(api, version)
    return schema.__header_schema__, entity_writer(schema.__header_schema__), entity_writer(schema)


@cache
def parts(api: int, version: int) -> Any:
    """The module with the classes of an answer."""
    import importlib

    return importlib.import_module(load_response_schema(api, version).__module__)


def read(data: bytes) -> Asked:
    """A whole request, without its size. It must have no byte more than its schema says."""
    api, version = int.from_bytes(data[:2], "big"), int.from_bytes(data[2:4], "big")
    read_header, read_body = _reads(api, version)
    header, size = read_header(data, 0)
    body, more = read_body(data, size)
    assert size + more == len(data), f"a request {NAMES[api]} with bytes that are not its own"
    return Asked(api, version, header.correlation_id, body)


def write(asked: Asked, answer: Any, number: int | None = None) -> bytes:
    """A whole answer, with its size."""
    schema, write_header, write_body = _writes(asked.api, asked.version)
    out = io.BytesIO()
    write_header(out, schema(correlation_id=asked.number if number is None else number))
    write_body(out, answer)
    data = out.getvalue()
    return len(data).to_bytes(4, "big") + data


def error(code: int) -> ErrorCode:
    return ErrorCode(code)


def milliseconds(ms: int) -> timedelta:
    return timedelta(milliseconds=ms)


def moment(ms: float) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
