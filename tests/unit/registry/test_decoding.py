"""A column of several writers: one type, the order kept, what cannot be read marked by its reason."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.errors import EosError, stop
from spark_eos.registry import decoding, wire
from spark_eos.registry.codecs import reader_of
from spark_eos.registry.decoding import Decoding, _Decoders
from spark_eos.registry.encoding import Encoding
from spark_eos.registry.schemas import Registered, Schema
from spark_eos.registry.settings import registry_settings

ORDER = '{"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}'
OPEN = '{"type": "object", "properties": {"id": {"type": "integer"}, "more": {"type": "string"}}}'
SCHEMAS = {1: Schema("JSON", ORDER), 2: Schema("JSON", OPEN), 3: Schema("AVRO", '"string"')}


class Known:
    """A registry with these schemas; notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[int | str] = []

    def schema(self, id_: int) -> Schema:
        self.asked.append(id_)
        if id_ not in SCHEMAS:
            raise stop("EOS_REGISTRY_NOT_FOUND.schema", schema=id_, registry="here")
        return SCHEMAS[id_]

    def schema_by_guid(self, guid: str) -> Schema:
        raise stop("EOS_REGISTRY_UNREACHABLE", registry="here", reason="it is down")


def decoders(registry: Known | None = None) -> _Decoders:
    return _Decoders(reader_of(SCHEMAS[1]), registry or Known(), SCHEMAS[1], key=False)


VALUES = [
    None,
    wire.prefix(1) + b'{"id":1}',
    wire.prefix(2) + b'{"id":2,"more":"x"}',
    wire.prefix(3) + b"\x02a",
    wire.prefix(2) + b'{"more":"x"}',
    wire.prefix(9) + b'{"id":3}',
    b"{}",
    b"none",
]


@given(st.lists(st.sampled_from(VALUES), max_size=12), st.integers(0, 12))
def test_every_value_keeps_its_place_and_what_it_is(values, cut):
    """Whatever the mix of writers, nulls and bad values, and wherever a column is cut into batches."""
    whole = decoders().decode(pa.array(values, pa.binary()), None)
    assert whole.rows.type == pa.struct([("id", pa.int64())])
    single = [decoders().decode(pa.array([value], pa.binary()), None) for value in values]
    assert whole.rows.to_pylist() == [row for found in single for row in found.rows.to_pylist()]
    assert whole.bad == {row: found.bad[0] for row, found in enumerate(single) if found.bad}
    parts = [decoders().decode(pa.array(part, pa.binary()), None) for part in (values[:cut], values[cut:])]
    assert whole.rows.to_pylist() == parts[0].rows.to_pylist() + parts[1].rows.to_pylist()


def test_each_value_that_cannot_be_read_has_its_reason():
    """A null is none of them."""
    found = decoders().decode(pa.array(VALUES, pa.binary()), None)
    assert found.rows.to_pylist() == [None, {"id": 1}, {"id": 2}, None, None, None, None, None]
    assert found.bad == {
        3: "it was written with schema id 3, which does not fit: The value was written with a schema of the kind AVRO, "
        "and would be read as JSON",
        4: "id is missing",
        5: "the registry does not know schema id 9",
        6: wire.TOO_SHORT,
        7: wire.TOO_SHORT,
    }


def test_a_schema_is_asked_for_once():
    """Except one that the registry does not know: the client keeps that answer for a while."""
    registry = Known()
    reading = decoders(registry)
    for _ in range(3):
        reading.decode(pa.array([VALUES[1], VALUES[2], VALUES[1]], pa.binary()), None)
    assert registry.asked == [1, 2]


def test_a_registry_that_does_not_answer_is_no_verdict_on_a_value():
    """The query stops, and a restart helps."""
    headers = pa.array([[{"key": wire.VALUE_HEADER, "value": wire.guid_header("0" * 32)}]])
    with pytest.raises(EosError) as caught:
        decoders().decode(pa.array([b"x"], pa.binary()), headers)
    assert caught.value.condition == "EOS_REGISTRY_UNREACHABLE" and caught.value.restart_helps


def test_bytes_that_were_never_in_the_format_do_not_flood_the_registry():
    """Each has another id; after some of them the query stops."""
    registry = Known()
    values = [wire.prefix(number) for number in range(100, 1000)]
    with pytest.raises(EosError, match=r"EOS_REGISTRY_NOT_FOUND\b"):
        decoders(registry).decode(pa.array(values, pa.binary()), None)
    assert len(registry.asked) == decoding.MOST_UNKNOWN + 1


def test_what_travels_to_workers_is_small_and_opens_nothing():
    """Settings and schemas, also after the type was looked at."""
    settings = registry_settings({"url": "http://localhost:1", "basic.auth.user.info": "user:pw"})
    registered = Registered("orders-value", 1, 7, SCHEMAS[1])
    there = Decoding(settings, registered)
    assert there.type == pa.struct([("id", pa.int64())])
    back = pickle.loads(pickle.dumps(there))
    assert back == there and "type" not in vars(back)
    assert "pw" not in repr(there)
    assert pickle.loads(pickle.dumps(Encoding(registered))).encode(pa.array([{"id": 5}])).values.to_pylist() == [
        wire.prefix(7) + b'{"id": 5}'
    ]


def test_groups_are_the_rows_of_each_writer():
    """In their order, without those of none."""
    found = dict(decoding._groups(np.array([1, -1, 0, 1, 0])))
    assert {number: rows.tolist() for number, rows in found.items()} == {0: [2, 4], 1: [0, 3]}
