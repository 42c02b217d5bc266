"""A column of several writers: one type, the order kept, what cannot be read marked by its reason."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.errors import EosError, stop
from spark_eos.pipelines.registry import unknown_ids, wire
from spark_eos.pipelines.registry.codecs import reader_of
from spark_eos.pipelines.registry.decoding import Decoding, _Decoders
from spark_eos.pipelines.registry.encoding import Encoding
from spark_eos.pipelines.registry.formats import DecodedValues
from spark_eos.pipelines.registry.schemas import Registered, Schema
from spark_eos.pipelines.registry.settings import registry_settings
from spark_eos.pipelines.registry.unknown_ids import MOST_ASKED, UnknownIds
from spark_eos.source.schema import ARROW_HEADERS
from tests.support.judges.golden import CASES, FILE
from tests.support.runs.input_counts import inputs

ORDER = '{"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}'
OPEN = '{"type": "object", "properties": {"id": {"type": "integer"}, "more": {"type": "string"}}}'
SCHEMAS = {1: Schema("JSON", ORDER), 2: Schema("JSON", OPEN), 3: Schema("AVRO", '"string"')}


READER = Registered("orders-value", 1, 1, SCHEMAS[1])


class Known:
    """A registry with these schemas, by id or GUID; notes what it is asked, and of what ``anew``. ``subject``: ids of
    the reader's subject."""

    def __init__(self, schemas: Mapping[int | str, Schema] = SCHEMAS, subject: Iterable[int] = ()) -> None:
        self.schemas = schemas
        self.subject = frozenset(map(str, subject))
        self.asked: list[int | str] = []
        self.anew: list[int | str] = []

    def schema(self, name: int | str, reader: Registered, *, anew: bool) -> Schema:
        assert isinstance(reader, Registered)
        self.asked.append(name)
        self.anew += [name] if anew else []
        if name not in self.schemas:
            raise stop("EOS_REGISTRY_NOT_FOUND.schema", schema=name, registry="here")
        return self.schemas[name]

    def names(self, registered: Registered) -> frozenset[str]:
        assert registered == READER
        return self.subject


class Away(Known):
    """Does not answer."""

    def schema(self, name: int | str, reader: Registered, *, anew: bool) -> Schema:
        raise stop("EOS_REGISTRY_UNREACHABLE", registry="here", reason="it is down")


class Reading:
    """One process's decoders of a column, before a registry."""

    def __init__(
        self, registry: Known | None = None, registered: Registered = READER, message: str | None = None
    ) -> None:
        reader = reader_of(registered.schema, message)
        self._decoders = _Decoders(reader, registry or Known(), registered, key=False)

    def decode(
        self, values: pa.Array, headers: pa.Array | None = None, unknown: UnknownIds | None = None
    ) -> DecodedValues:
        return self._decoders.decode(values, headers, unknown or UnknownIds())


GOLDEN = json.loads(FILE.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "found", GOLDEN["values"], ids=lambda found: f"{found['by']}-{found['kind']}-{'id' if 'id' in found else 'guid'}"
)
def test_values_of_other_programs_are_read_as_the_rows_that_were_written(found):
    """Bytes that serializers in Python and in Java made once (`tests.support.judges.golden`), with a tombstone behind
    them."""
    case = CASES[found["kind"]]
    registry = Known({found.get("id", found.get("guid")): case.schema})
    reading = Reading(registry, Registered("flights-value", 1, found.get("id", 1), case.schema), case.message)
    values = pa.array([*map(bytes.fromhex, found["values"]), None], pa.binary())
    headers = None
    if "headers" in found:
        named = [[{"key": wire.VALUE_HEADER, "value": bytes.fromhex(value)}] for value in found["headers"]]
        headers = pa.array([*named, None], ARROW_HEADERS.type)
    rows = reading.decode(values, headers)
    assert rows.bad == {}
    assert rows.rows.to_pylist(maps_as_pydicts="strict") == [*case.rows, None]


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
    whole = Reading().decode(pa.array(values, pa.binary()), None)
    assert whole.rows.type == pa.struct([("id", pa.int64())])
    single = [Reading().decode(pa.array([value], pa.binary()), None) for value in values]
    assert whole.rows.to_pylist() == [row for found in single for row in found.rows.to_pylist()]
    assert whole.bad == {row: found.bad[0] for row, found in enumerate(single) if found.bad}
    parts = [Reading().decode(pa.array(part, pa.binary()), None) for part in (values[:cut], values[cut:])]
    assert whole.rows.to_pylist() == parts[0].rows.to_pylist() + parts[1].rows.to_pylist()


def test_each_value_that_cannot_be_read_has_its_reason():
    """A null is none of them."""
    found = Reading().decode(pa.array(VALUES, pa.binary()), None)
    assert found.rows.to_pylist() == [None, {"id": 1}, {"id": 2}, None, None, None, None, None]
    assert found.bad == {
        3: "it was written with schema id 3, which does not fit: The value was written as AVRO, "
        "and would be read as JSON",
        4: "id is missing",
        5: "the registry does not show schema id 9",
        6: wire.TOO_SHORT,
        7: wire.TOO_SHORT,
    }


def test_a_schema_is_asked_for_once():
    """Except one that the registry does not know: the client keeps that answer for a while."""
    registry = Known()
    reading = Reading(registry)
    for _ in range(3):
        reading.decode(pa.array([VALUES[1], VALUES[2], VALUES[1]], pa.binary()), None)
    assert registry.asked == [1, 2]


def test_a_registry_that_does_not_answer_is_no_verdict_on_a_value():
    """The query stops, and a restart helps."""
    with pytest.raises(EosError) as caught:
        Reading(Away()).decode(pa.array([VALUES[1]], pa.binary()))
    assert caught.value.condition == "EOS_REGISTRY_UNREACHABLE" and caught.value.restart_helps


SOME = {7: SCHEMAS[2], 400: SCHEMAS[2], 9: SCHEMAS[2]}


def numbered(ids: Iterable[int]) -> pa.Array:
    """A value of each of the ids, with that id in it."""
    return pa.array([wire.prefix(id_) + b'{"id":%d}' % id_ for id_ in ids], pa.binary())


def test_any_number_of_unknown_ids_leaves_the_other_values_as_they_are():
    """The registry is asked for so many. After them, what may be known are ids that were known before, and those of the
    reader's subject; all others count as unknown, and a short note says which."""
    registry, ids = Known({**SCHEMAS, **SOME}, subject=(1, 400)), UnknownIds()
    flood = list(range(1_000, 7_000))
    order = [7, *flood[:3_000], 400, 9, 7, 1, *reversed(flood[3_000:]), 5, 8, 300, 500, 2, 400]
    chunks = [order[begin : begin + 999] for begin in range(0, len(order), 999)]
    reading = Reading(registry)
    found = [reading.decode(numbered(chunk), unknown=ids) for chunk in chunks]
    rows = [row for each in found for row in each.rows.to_pylist()]
    assert [row["id"] for row in rows if row is not None] == [7, 400, 7, 1, 400]
    assert len(registry.asked) == MOST_ASKED + 3
    assert ids.names == ("2..5", "8..300", "500..6999")
    assert len(pickle.dumps(ids)) < 20 * MOST_ASKED
    again = Reading(Known(dict.fromkeys(range(1, 7_000), SCHEMAS[2]) | SCHEMAS))
    noted = [again.decode(numbered(chunk), unknown=UnknownIds(ids.names)) for chunk in chunks]
    assert [each.rows.to_pylist() for each in noted] == [each.rows.to_pylist() for each in found]
    assert [each.bad for each in noted] == [each.bad for each in found]


def test_of_very_many_writers_the_first_ones_are_not_kept():
    """Each message of a schema is one."""
    ids = range(1, 10_002)
    registry = Known(dict.fromkeys(ids, SCHEMAS[2]))
    reading = Reading(registry)
    assert reading.decode(numbered(ids)).rows.to_pylist() == [{"id": id_} for id_ in ids]
    reading.decode(numbered([1, 10_001]))
    assert registry.asked == [*ids, 1]


WITH_NINE = {**SCHEMAS, 9: SCHEMAS[2]}
NINE = pa.array([VALUES[5]], pa.binary())


def test_what_was_unknown_once_stays_so_for_its_range():
    """While it is read, and when it is read again by its note, whatever this process has seen since; the next range
    asks again."""
    registry, ids = Known(), UnknownIds()
    reading = Reading(registry)
    assert reading.decode(NINE, unknown=ids).bad == {0: "the registry does not show schema id 9"}
    registry.schemas = WITH_NINE
    for again in (ids, UnknownIds(ids.names)):
        assert reading.decode(NINE, unknown=again).bad == {0: "the registry does not show schema id 9"}
        assert ids.names == ("9",) and registry.asked.count(9) <= 2
        assert reading.decode(NINE).rows.to_pylist() == [{"id": 3}]


def test_what_is_not_noted_as_unknown_was_known_and_has_to_be():
    """The registry is asked anew, and one that has lost the schema stops the query: its rows are visible elsewhere."""
    registry = Known()
    with pytest.raises(EosError) as caught:
        Reading(registry).decode(NINE, unknown=UnknownIds({"8"}))
    assert caught.value.entry == "EOS_REGISTRY_CHANGED.forgotten" and not caught.value.restart_helps
    assert registry.anew == [9]
    registry.schemas = WITH_NINE
    assert Reading(registry).decode(NINE, unknown=UnknownIds({"8"})).rows.to_pylist() == [{"id": 3}]


def test_a_schema_that_is_lost_while_a_range_is_read_stops_the_query():
    """Here another process's decoders would know it no more: the rows before are rows already."""
    ids = UnknownIds()
    Reading(Known(WITH_NINE)).decode(NINE, unknown=ids)
    with pytest.raises(EosError, match=r"EOS_REGISTRY_CHANGED.*schema 9 "):
        Reading(Known()).decode(NINE, unknown=ids)


@inputs(
    st.lists(st.lists(st.sampled_from([1, 2, 7, 8, 9, 10, 11, 300, 2**31]), max_size=6), max_size=4),
    st.sets(st.sampled_from([1, 2, 9, 300])),
    st.sampled_from([2, 4, MOST_ASKED]),
    st.data(),
    each=4,
)
def test_a_range_that_is_read_again_by_its_note_gives_the_same(monkeypatch, chunks, subject, most, data):
    """Whatever the registry has learned while it was read first, and since, whoever reads how much at once, and for how
    many ids it may be asked."""
    monkeypatch.setattr(unknown_ids, "MOST_ASKED", most)
    some = dict.fromkeys((7, 8, 9, 10, 11, 300), SCHEMAS[2])
    registry, ids = Known(subject=subject), UnknownIds()
    first = Reading(registry)
    rows, bad = [], []
    for chunk in chunks:
        learned = data.draw(st.sets(st.sampled_from(sorted(some))))
        registry.schemas = {**registry.schemas, **{id_: some[id_] for id_ in learned}}
        reading = first if data.draw(st.booleans()) else Reading(registry)
        found = reading.decode(numbered(chunk), unknown=ids)
        bad += [found.bad.get(place) for place in range(len(chunk))]
        rows += found.rows.to_pylist()
    known = subject.union(row["id"] for row in rows if row is not None)
    assert len(ids.names) <= len(known) + 1
    again = Reading(Known({**SCHEMAS, **some})).decode(
        numbered(id_ for chunk in chunks for id_ in chunk), unknown=UnknownIds(ids.names)
    )
    assert again.rows.to_pylist() == rows
    assert [again.bad.get(place) for place in range(len(rows))] == bad


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
