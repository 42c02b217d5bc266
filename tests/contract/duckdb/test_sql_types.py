"""Values of DuckDB's types, as they leave it: with the text that DuckDB itself has for them, or refused."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import duckdb
import pyarrow as pa
import pytest

from spark_eos.errors import SchemaError
from spark_eos.pipelines.copy.sql import SqlTransform, check_sql
from spark_eos.source.schema import arrow_schema
from tests.support.runs.input_counts import COUNTS

SCHEMA = pa.schema([*arrow_schema(False), ("text", pa.string())])
DATES = ["0001-01-01", "9999-12-31", "10000-01-01", "0044-03-15 (BC)", "1970-01-01", "5877642-06-25 (BC)"]
MOMENTS = ["0001-01-01 00:00:00", "9999-12-31 23:59:59.999", "1970-01-01 00:00:00.000001", "1677-09-22 00:12:44"]
LAST = ["2262-04-11 23:47:16.854775806", "290309-12-22 (BC) 00:00:00", "294247-01-10 04:00:54.775806"]
INFINITE = ["infinity", "-infinity"]
ENUM = "ENUM('', 'a', 'ß')"


def whole(bits: int) -> list[int]:
    return [0, 1, -1, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1, 2**bits - 1]


#: Texts of the values at the ends of what a type has; some of them are beyond.
ENDS: dict[str, list[str]] = {
    **{
        f"{sign}{name}": [*map(str, whole(bits))]
        for name, bits in {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}.items()
        for sign in ("", "U")
    },
    "HUGEINT": [*map(str, [*whole(128), 10**38 - 1, 10**38, 1 - 10**38, -(10**38)])],
    "BOOLEAN": ["true", "false"],
    "FLOAT": ["nan", "inf", "-inf", "-0.0", "1e-45", "3.4028235e38", "16777217"],
    "DOUBLE": ["nan", "inf", "-inf", "-0.0", "5e-324", "1.7976931348623157e308", "0.1"],
    "DECIMAL(4,1)": ["999.9", "-999.9"],
    "DECIMAL(38,0)": ["9" * 38, "-" + "9" * 38],
    "DECIMAL(38,38)": ["0." + "9" * 38, "-0." + "0" * 37 + "1"],
    "VARCHAR": ["", "\0", "\U0010ffff", "é" * 99],
    "JSON": ["null", "{}", '{"a":[1.10,"\\u0000"]}', '"x"'],
    "BLOB": ["", "\\x00\\xFF", "a"],
    "UUID": ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"],
    ENUM: ["", "a", "ß"],
    "DATE": [*DATES, "5881580-07-10", *INFINITE],
    "TIME": ["00:00:00", "23:59:59.999999", "24:00:00"],
    "TIME_NS": ["00:00:00", "23:59:59.999999999", "24:00:00"],
    **{
        kind: [*MOMENTS, *LAST, *INFINITE]
        for kind in ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMPTZ", "TIMESTAMPTZ_NS")
    },
}
#: Types that are refused, with a value.
REFUSED = {
    "UHUGEINT": "340282366920938463463374607431768211455",
    "BIT": "101",
    "BIGNUM": "9" * 50,
    "INTERVAL": "1 month",
    "TIMETZ": "12:00:00+02",
    "VARIANT": "1",
    "GEOMETRY": "POINT(1 2)",
    "UNION(a INT, b VARCHAR)": "1",
    "TUPLE(INT, VARCHAR)": "(1, a)",
}
NESTS = ["{}", "[{}, NULL]", "{{'a': {}}}", "MAP {{'k': {}}}", "[{}]::{}[1]", "[{{'a': MAP {{1: [{}]}}}}]"]


def nested(value: str, type_: str) -> list[str]:
    return [nest.replace("]::{}", f"]::{type_}").format(value) for nest in NESTS]


def enumerate_nested(value: str, type_: str) -> list[tuple[str, str]]:
    """Names and columns. DuckDB reads an array of a dictionary as one of its indexes, though it writes it right."""
    every = [(f"c{number}", each) for number, each in enumerate(nested(value, "VARCHAR" if type_ == "JSON" else type_))]
    return [each for each in every if not (type_.startswith("ENUM") and each[1].endswith("[1]"))]


def given(texts: list[str]) -> pa.RecordBatch:
    places = [{"topic": "t", "partition": 0, "offset": place, "text": text} for place, text in enumerate(texts)]
    return pa.RecordBatch.from_pylist(places, schema=SCHEMA)


def duckdb_texts(sql: str, batch: pa.Table | pa.RecordBatch) -> list[tuple[object, ...]]:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("input", batch)
    return connection.execute(sql).fetchall()


def texts_of(type_: str, count: int) -> list[str]:
    """The ends of the type, and texts like them by chance; some of them are none of its values."""
    chance, ends = random.Random(type_), [*ENDS[type_]]
    while len(ends) < count:
        text = list(chance.choice(ends[: len(ENDS[type_])]))
        for _ in range(chance.randint(1, 3)):
            digits = [place for place, character in enumerate(text) if character.isdigit()]
            if digits:
                text[chance.choice(digits)] = chance.choice("0123456789")
        ends.append("".join(text))
    return ends


def is_unfit(type_: str, text: str) -> bool:
    """Whether a value, by DuckDB's text of it, is none outside of DuckDB."""
    if type_ == "HUGEINT":
        return abs(int(text)) >= 10**38
    return "infinity" in text or (type_.startswith("TIME") and text.startswith("24:"))


def unfit_in(type_: str, batch: pa.RecordBatch) -> set[int]:
    """The places of such values."""
    plain = duckdb_texts(f"SELECT try_cast(text AS {type_})::VARCHAR FROM input", batch)
    return {place for place, (text,) in enumerate(plain) if text is not None and is_unfit(type_, str(text))}


@COUNTS
@pytest.mark.parametrize("type_", ENDS)
def test_a_value_leaves_duckdb_as_the_text_that_duckdb_has_for_it(type_, count):
    """At the ends of each type and by chance, also nested, or its record is rejected."""
    batch = given(texts_of(type_, count // len(ENDS) + len(ENDS[type_])))
    value = f"try_cast(text AS {type_})" + "::VARCHAR" * (type_ == "JSON")  # whose text in a list has no quotes
    columns = ", ".join(f"{each} AS {name}" for name, each in enumerate_nested(value, type_))
    names = [name for name, _ in enumerate_nested(value, type_)]
    rows, failed = SqlTransform(f'SELECT {columns}, "offset" FROM input').rejecting(batch)
    assert failed.keys() == unfit_in(type_, batch)
    as_text = ", ".join(f"{name}::VARCHAR" for name in names)
    theirs = duckdb_texts(f'SELECT {as_text} FROM (SELECT "offset", {columns} FROM input) ORDER BY "offset"', batch)
    kept = [text for place, text in enumerate(theirs) if place not in failed]
    assert duckdb_texts(f'SELECT {as_text} FROM input ORDER BY "offset"', rows) == kept


@pytest.mark.parametrize(
    ("nest", "type_"), [*enumerate(["HUGEINT", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_NS", "HUGEINT"])]
)
def test_a_value_that_is_none_outside_of_duckdb_is_found_at_any_depth(type_, nest):
    """Each by itself, and the values beside it stay."""
    column = nested(f"try_cast(text AS {type_})", type_)[nest]
    batch = given(ENDS[type_])
    _, failed = SqlTransform(f"SELECT {column} AS c FROM input").rejecting(batch)
    assert failed and failed.keys() == unfit_in(type_, batch)


@pytest.mark.parametrize(
    ("type_", "nest"), [*((type_, 0) for type_ in REFUSED), *(("INTERVAL", nest) for nest in range(1, len(NESTS)))]
)
def test_a_type_whose_values_are_none_outside_of_duckdb_is_refused_at_the_start(type_, nest):
    """By its own name, at any depth."""
    for value in (f"try_cast(text AS {type_})", f"'{REFUSED[type_]}'::{type_}"):
        with pytest.raises(SchemaError) as caught:
            check_sql(f"SELECT key, {nested(value, type_)[nest]} AS c FROM input", SCHEMA)
        assert (caught.value.entry, caught.value.parameters["column"]) == ("EOS_TRANSFORM_SQL.type", "c")
        named = str(caught.value.parameters["type"]).partition("(")[0]
        assert named in (type_.partition("(")[0], "TIME WITH TIME ZONE")


def test_every_type_of_duckdb_is_tried_here():
    """Or is nested, or has another name here; those of a later version are refused until they are tried."""
    rows = duckdb.sql("SELECT DISTINCT lower(logical_type) FROM duckdb_types()").fetchall()
    tried = {type_.partition("(")[0].lower() for type_ in (*ENDS, *REFUSED)}
    others = {"array", "list", "map", "null", "struct", "time with time zone", "timestamp with time zone", "type"}
    assert {name for (name,) in rows} - tried == others


def test_a_timestamp_of_a_record_keeps_its_microseconds():
    """Through DuckDB, as it was."""
    rows = given(["x"]).set_column(5, SCHEMA.field("timestamp"), pa.array([datetime(1, 1, 1, tzinfo=UTC)]))
    assert SqlTransform("SELECT timestamp FROM input")(rows).column(0).to_pylist() == [datetime(1, 1, 1, tzinfo=UTC)]
