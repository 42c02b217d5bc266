"""Values that other programs' serializers have written, in Python and in Java (`tests.support.judges.golden`)."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from spark_eos.pipelines.registry.codecs import reader_of
from spark_eos.pipelines.registry.decoding import _Decoders
from spark_eos.pipelines.registry.schemas import Registered, Schema
from spark_eos.pipelines.registry.unknown_ids import UnknownIds
from spark_eos.pipelines.registry.wire import VALUE_HEADER
from spark_eos.source.schema import ARROW_HEADERS
from tests.support.judges.golden import CASES, FILE

GOLDEN = json.loads(FILE.read_text(encoding="utf-8"))


class Known:
    """A registry with the one schema, by the id or GUID that it had."""

    def __init__(self, found: dict[str, Any]) -> None:
        self._names = {found.get("id"), found.get("guid")} - {None}
        self._schema = CASES[found["kind"]].schema

    def schema(self, name: int | str, reader: Registered | None = None, *, anew: bool = False) -> Schema:
        assert name in self._names
        return self._schema


@pytest.mark.parametrize(
    "found", GOLDEN["values"], ids=lambda found: f"{found['by']}-{found['kind']}-{'id' if 'id' in found else 'guid'}"
)
def test_values_are_read_as_the_rows_that_were_written(found):
    """Bytes that were made once, with a tombstone behind them."""
    case = CASES[found["kind"]]
    registered = Registered("flights-value", 1, found.get("id", 1), case.schema)
    decoders = _Decoders(reader_of(case.schema, case.message), Known(found), registered, key=False)
    values = pa.array([*map(bytes.fromhex, found["values"]), None], pa.binary())
    headers = None
    if "headers" in found:
        named = [[{"key": VALUE_HEADER, "value": bytes.fromhex(value)}] for value in found["headers"]]
        headers = pa.array([*named, None], ARROW_HEADERS.type)
    rows = decoders.decode(values, headers, UnknownIds())
    assert rows.bad == {}
    assert rows.rows.to_pylist(maps_as_pydicts="strict") == [*case.rows, None]
