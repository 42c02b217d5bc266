"""Decoding and encoding of any schema and values, against fastavro and against datums written by the specification."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import fastavro
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.pipelines.registry.avro import DatumEncoder, Decoder, arrow_type, parse
from tests.support.judges.avro import datum, in_fastavro, schemas, values
from tests.support.judges.equality import same

#: Arrays are gone through together from 32 rows on, and one by one below.
MANY = 40


def codec(tree: Any) -> tuple[Decoder, DatumEncoder]:
    """Decoder and encoder of one schema."""
    schema = parse(json.dumps(tree))
    return Decoder(schema, schema), DatumEncoder(schema, arrow_type(schema))


@st.composite
def columns(draw: Any, with_logical: bool = True) -> tuple[Any, list[Any]]:
    """A schema and some of its values: more than are gone through one by one, in any order."""
    tree = draw(schemas(with_logical=with_logical))
    some = draw(st.lists(values(tree), min_size=1, max_size=6))
    return tree, random.Random(draw(st.integers(0, 99))).choices(some, k=draw(st.sampled_from((1, 5, MANY))))


@given(columns(), st.integers(0, 99))
def test_values_come_out_as_they_went_in(column, seed):
    """In any blocks; fastavro reads the same from the same bytes, and nulls stay nulls."""
    tree, tagged = column
    blocks = random.Random(seed)
    data = [datum(tree, value, blocks) for value in tagged]
    decoder, _ = codec(tree)
    found = decoder.decode(pa.array([*data, None], pa.binary()))
    assert found.bad == {}
    assert found.rows.type == decoder.type
    found.rows.validate(full=True)
    rows = found.rows.to_pylist()
    assert rows.pop() is None
    for row, one in zip(rows, data, strict=True):
        taken, read, _ = seen_by_fastavro(tree, one)
        assert taken and same(in_fastavro(tree, row), read)


@given(columns())
def test_rows_are_written_as_the_specification_has_it(column):
    """The same bytes as by the test's own writer, from a whole column and from a slice of it."""
    tree, tagged = column
    data = [datum(tree, value) for value in tagged]
    decoder, encoder = codec(tree)
    rows = decoder.decode(pa.array([*data, None, *data], pa.binary())).rows
    found = encoder.encode(rows, prefix=b"\0\0\0\0\7")
    assert found.bad == {}
    behind = [b"\0\0\0\0\7" + one for one in data]
    assert found.values.to_pylist() == [*behind, None, *behind]
    part = encoder.encode(rows.slice(len(data) - 1, 3))
    assert part.values.to_pylist() == [data[-1], None, data[0]]


def text_of(column: pa.Array) -> str:
    """All values, of which NaN is itself, and times may be such as Python has not."""
    return column.to_string(window=MANY, container_window=MANY, element_size_limit=1000)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """A datum with a change or two: a bit, a byte, bytes more or fewer."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 2)):
        at = chance.randrange(len(changed) + 1)
        match chance.randrange(5):
            case 0 if at < len(changed):
                changed[at] ^= 1 << chance.randrange(8)
            case 1 if at < len(changed):
                changed[at] = chance.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFF))
            case 2:
                changed[at:at] = chance.randbytes(chance.randint(1, 12))
            case 3:
                del changed[at : at + chance.randint(1, 3)]
            case 4:
                del changed[at:]
    return bytes(changed)


def seen_by_fastavro(tree: Any, data: bytes) -> tuple[bool, Any, bool]:
    """Whether fastavro takes the datum and all its bytes, its value, and whether it writes that as the same bytes."""
    schema = fastavro.parse_schema(tree)
    file = io.BytesIO(data)
    try:
        value = fastavro.schemaless_reader(file, schema, None)
    except Exception:
        return False, None, False
    if file.tell() != len(data):
        return False, None, False
    again = io.BytesIO()
    try:
        fastavro.schemaless_writer(again, schema, value)
    except Exception:
        return True, value, False
    return True, value, again.getvalue() == data


#: What is refused though fastavro takes it, and would write the same bytes again: an int of more than 32 bits.
STRICTER = ("an int of 32 bits",)


@given(columns(), st.integers(0, 10_000))
def test_a_mutated_datum_changes_no_other_row(column, seed):
    """It is refused, or has the value that fastavro reads. Nothing is refused that fastavro reads to its end and writes
    again as the same bytes, but by the rules in STRICTER."""
    tree, tagged = column
    chance = random.Random(seed)
    data = [datum(tree, value, chance) for value in tagged]
    decoder, _ = codec(tree)
    whole = decoder.decode(pa.array(data, pa.binary())).rows
    place = chance.randrange(len(data))
    data[place] = mutated(data[place], chance)
    found = decoder.decode(pa.array(data, pa.binary()))
    for others in (slice(place), slice(place + 1, None)):
        assert text_of(found.rows[others]) == text_of(whole[others])
    taken, value, again = seen_by_fastavro(tree, data[place])
    assert found.bad.keys() <= {place}
    if place in found.bad:
        assert not found.rows[place].is_valid
        assert not again or any(rule in found.bad[place] for rule in STRICTER)
    else:
        try:
            row = found.rows[place].as_py()
        except (OverflowError, ValueError):  # a time that Arrow has, but neither Python nor fastavro
            assert not taken
        else:
            assert taken and same(in_fastavro(tree, row), value)


@given(columns(), st.integers(0, 10_000))
def test_a_batch_is_its_rows(column, seed):
    """Wherever it is split, and with bad rows and nulls, it gives the same values for the same reasons."""
    tree, tagged = column
    chance = random.Random(seed)
    data: list[bytes | None] = [datum(tree, value, chance) for value in tagged]
    data = [chance.choice((one, one, mutated(one, chance), None)) for one in data]
    decoder, _ = codec(tree)
    whole = decoder.decode(pa.array(data, pa.binary()))
    whole.rows.validate(full=True)
    assert set(whole.bad) == {n for n, one in enumerate(data) if one is not None and not whole.rows[n].is_valid}
    size = chance.choice((1, 3, max(1, len(data) // 2)))
    for begin in range(0, len(data), size):
        part = decoder.decode(pa.array(data, pa.binary())[begin : begin + size])
        assert text_of(part.rows) == text_of(whole.rows[begin : begin + size])
        assert part.bad == {n - begin: why for n, why in whole.bad.items() if begin <= n < begin + size}
