"""Fields of CSV and JSON: each value is its text, as Python reads it, or the row is malformed."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from jobs.runner.columns import PARSED, struct_of, with_fields
from spark_eos.errors import ConfigError

from .test_ingest_texts import rounds

DIGITS = ["0", "1", "7", "00", "12", "255", "999", "2147483648", "9223372036854775807", "12345678901234567"]
DIGITS += [".5", "005"]
SIGNS = ["", "", "", "+", "-", " ", "--", "\u2212"]
ENDS = ["", "", "", "", " ", "d", "f", "L", "e5", "E-3", "e400", "e-400", "%", "\t", "_000", "%", ".", ","]
BETWEEN = [".", ",", "", "e", "_", " ", "'", "\u00a0"]
WORDS = ["NaN", "nan", "inf", "INF", "Inf", "Infinity", "-Infinity", "+INF", "true", "TRUE", "yes", "t", "null", ""]
WORDS += ["0x10", "0x1p3", "٣", "\uff11", "1e", ".", "-", "-0", "-0.0", "0.10"]
WORDS += ["1234567890123456.78", "12,50", "1.234,50"]
YEARS = ["2026", "1999", "0001", "0000", "12026", "26", "1582", "-2026"]
REST = ["-01-31", "-02-30", "-02-29", "-1-5", "-13-01", "-10-05", "", "-01", "/01/31", "0131"]
TIMES = ["", "", " 12:30:00", "T23:59:59", "T24:00:00", " 12:30", " x", "T", " 12:30:60", " 1:2:3", "T12"]
FRACTIONS = ["", "", ".5", ".123456", ".1234560", ".1234567", ".000000001", ",5"]
ZONES = ["", "", "Z", "+01:00", " UTC", "-0130", "+19:00", " CET", " Mars/Base"]
DECIMALS = {"DECIMAL(12, 2)": (12, 2), "DECIMAL(38, 18)": (38, 18), "DECIMAL(5, 0)": (5, 0), "DECIMAL(3, 3)": (3, 3)}
INTEGERS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
KINDS = [*DECIMALS, *INTEGERS, "FLOAT", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "STRING"]


def made(seed: object, count: int) -> list[str]:
    """Numbers, dates and other words, more or less as programs write them."""
    random_ = random.Random(str(seed))

    def one() -> str:
        pick = random_.choice
        kind = random_.random()
        if kind < 0.1:
            return pick(WORDS)
        if kind < 0.4:
            return pick(YEARS) + pick(REST) + pick(TIMES) + pick(FRACTIONS) + pick(ZONES)
        return pick(SIGNS) + pick(DIGITS) + (pick(BETWEEN) + pick(DIGITS)) * random_.randrange(3) + pick(ENDS)

    return [one() for _ in range(count)]


def parsed(spark: SparkSession, records: Sequence[str], form: str, kinds: Sequence[str], **options: str) -> list[Any]:
    """For each record its field ``x`` by type; a type is missing where the row is malformed."""
    rows = spark.createDataFrame([*enumerate(records)], "n INT, record STRING").coalesce(1)
    for kind in kinds:
        rows = with_fields(rows, F.col("record"), form, f"x {kind}", options).withColumnRenamed(PARSED, kind)
    return [{kind: row[kind]["x"] for kind in kinds if row[kind] is not None} for row in rows.orderBy("n").collect()]


def check(text: str, value: Any, kind: str) -> None:
    """The value is what Python makes of the text."""
    if kind == "STRING":
        assert value == text
    elif kind == "BOOLEAN":
        assert str(value).lower() == text.lower()
    elif kind == "DATE":
        assert value == date(*map(int, text.split("-")))
    elif kind.startswith("TIMESTAMP"):
        check_time(text, value, with_zone=kind == "TIMESTAMP")
    elif kind in ("FLOAT", "DOUBLE"):
        number = float(re.sub("inf$", "inf", text, flags=re.IGNORECASE))
        expected = float(np.float32(number)) if kind == "FLOAT" else number
        assert value == expected or (math.isnan(value) and math.isnan(expected))
        assert math.isfinite(value) or not re.search("[0-9]", text)
        assert value or not re.search("[1-9]", re.split("[eE]", text)[0])
    else:
        assert Decimal(value) == Decimal(text)


def check_time(text: str, value: datetime, *, with_zone: bool) -> None:
    """A day alone is its first moment; fractions of a microsecond are none."""
    text = re.sub(" ?(UTC|Z)$", "+00:00", text)
    fraction = re.search(r"[.](\d+)", text)
    assert fraction is None or not fraction[1][6:].strip("0")
    text = re.sub(r"[.]\d+", f".{fraction[1][:6]:0<6}" if fraction else "", text)
    day, *rest = re.split("[ T]", text, maxsplit=1)
    text = "-".join(f"{int(part):0{4 if n == 0 else 2}}" for n, part in enumerate(day.split("-")))
    if rest:
        clock = re.match(r"(\d+):(\d+)(?::(\d+))?", rest[0])
        assert clock is not None
        text += "T" + ":".join(f"{int(part or 0):02}" for part in clock.groups()) + rest[0][clock.end() :]
    expected = datetime.fromisoformat(text.replace(" ", ""))
    assert with_zone or expected.tzinfo is None
    if with_zone:
        value = value.astimezone(UTC)
        expected = expected.replace(tzinfo=expected.tzinfo or UTC)
    assert value == expected


def is_beyond_python(text: str) -> bool:
    """A zone by name, or one that is too far away."""
    return text.endswith((" CET", "Mars/Base", "+19:00"))


@pytest.fixture
def zone(spark: SparkSession):
    """``zone(name)`` sets the time zone of the session for the test."""
    before = spark.conf.get("spark.sql.session.timeZone")
    yield lambda name: spark.conf.set("spark.sql.session.timeZone", name)
    spark.conf.set("spark.sql.session.timeZone", before)


@pytest.fixture
def in_utc(zone) -> None:
    zone("UTC")


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def check_all(texts: Sequence[str], values: Sequence[Mapping[str, Any]]) -> None:
    for text, by_kind in zip(texts, values, strict=True):
        for kind, value in by_kind.items():
            if value is None or (kind in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ") and is_beyond_python(text)):
                continue
            try:
                check(text, value, kind)
            except Exception as error:
                raise AssertionError(f"{text!r} as {kind} is {value!r}") from error


WELL_FORMED: list[tuple[str, str, object]] = [
    ("12.50", "DECIMAL(12, 2)", Decimal("12.5")),
    ("12.5000", "DECIMAL(12, 2)", Decimal("12.5")),
    ("1.25e1", "DECIMAL(12, 2)", Decimal("12.5")),
    ("-0.001", "DECIMAL(3, 3)", Decimal("-0.001")),
    ("127", "TINYINT", 127),
    ("-9223372036854775808", "BIGINT", -(2**63)),
    ("1e3", "DOUBLE", 1000.0),
    ("0.1", "FLOAT", float(np.float32(0.1))),
    ("0e0", "DOUBLE", 0.0),
    ("NaN", "STRING", "NaN"),
    ("1234567890123456.78", "STRING", "1234567890123456.78"),
    ("0.10", "STRING", "0.10"),
    ("true", "BOOLEAN", True),
    ("2024-02-29", "DATE", date(2024, 2, 29)),
    ("2024-02-29T12:00:00.123456", "TIMESTAMP_NTZ", datetime(2024, 2, 29, 12, 0, 0, 123456)),
    ("2024-02-29", "TIMESTAMP_NTZ", datetime(2024, 2, 29)),
]


def is_json(text: str) -> bool:
    """Whether Python takes the text for one value of JSON. Spark has more names of infinity."""
    try:
        json.loads(text)
    except ValueError:
        return text.strip() in ("INF", "+INF", "-INF", "+Infinity")
    return True


def check_taken(values: Sequence[Mapping[str, Any]]) -> None:
    """These are the values of `WELL_FORMED`."""
    for (text, kind, expected), by_kind in zip(WELL_FORMED, values, strict=True):
        assert by_kind.get(kind) == expected, text


@pytest.mark.usefixtures("in_utc")
@pytest.mark.parametrize(("number", "count"), rounds((1, 500), (25, 2000)))
def test_a_value_of_csv_is_its_text_or_malformed(number: int, count: int, spark: SparkSession):
    """Of all types of fields; what programs write is taken."""
    texts = [text for text in made(("csv", number), count) if text and not text.isspace()]
    texts = [text for text in texts if text not in ("Inf", "-Inf")]
    records = [*map(quoted, texts), *(text for text, *_ in WELL_FORMED)]
    values = parsed(spark, records, "csv", KINDS)
    check_all(texts, values[: len(texts)])
    check_taken(values[len(texts) :])


@pytest.mark.usefixtures("in_utc")
@pytest.mark.parametrize(("number", "count"), rounds((1, 500), (25, 2000)))
def test_a_value_of_json_is_its_text_or_malformed(number: int, count: int, spark: SparkSession):
    """Whether it is quoted or not: without quotes, it must be a value of JSON. What programs write is taken, with
    quotes around what is none of JSON's values."""
    texts = made(("json", number), count)
    records = [f'{{"x": {text}}}' for text in texts] + [json.dumps({"x": text}) for text in texts]
    records += [f'{{"x": {text if is_json(text) else json.dumps(text)}}}' for text, *_ in WELL_FORMED]
    values = parsed(spark, records, "json", KINDS)
    bare, in_quotes = values[: len(texts)], values[len(texts) : 2 * len(texts)]
    assert [text for text, row in zip(texts, bare, strict=True) if row and not is_json(text)] == []
    moments = [{kind: value for kind, value in row.items() if kind != "TIMESTAMP"} for row in bare]
    check_all([text.strip() for text in texts], moments)
    check_all(texts, in_quotes)
    check_taken(values[2 * len(texts) :])


def test_numbers_within_other_values_of_json(spark: SparkSession):
    """At any depth, also of the text of an object; a part that is no such value makes the row malformed."""
    kind = "STRUCT<a: ARRAY<DECIMAL(5, 2)>, m: MAP<STRING, STRUCT<n: BIGINT, s: STRING>>, o: STRING>"
    good = '{"x": {"a": [1.5, null], "m": {"1.0": {"n": 7, "s": 1.50}, "k": null}, "o": {"p": [1.10, true, "1"]}}}'
    bad = ('{"x": {"a": [1.555]}}', '{"x": {"m": {"k": {"n": 1.5}}}}', '{"x": {"a": [[1]]}}', '{"x": {"m": 1}}')
    first, *others = parsed(spark, [good, *bad], "json", [kind])
    assert first[kind].asDict(recursive=True) == {
        "a": [Decimal("1.50"), None],
        "m": {"1.0": {"n": 7, "s": "1.50"}, "k": None},
        "o": '{"p":[1.10,true,"1"]}',
    }
    assert others == [{}] * len(bad)


def test_half_a_character_of_json_is_malformed(spark: SparkSession):
    """Spark would make it a question mark; behind an even number of backslashes, it is other text."""
    texts = [r"\ud83d\ude00", r"\\ud83d", r"\ud83da", r"\ude00", r"\ud83d\u0041", r"\\\uD83D", r"\\ud83d\ude00"]
    values = parsed(spark, [f'{{"x": "{text}"}}' for text in texts], "json", ["STRING"])
    assert values == [{"STRING": "\U0001f600"}, {"STRING": r"\ud83d"}, *[{}] * 5]


def test_a_format_is_the_only_one(spark: SparkSession):
    """Whatever Spark is told to try, too."""
    spark.conf.set("spark.sql.legacy.json.enableDateTimeParsingFallback", "true")
    try:
        values = parsed(
            spark, ['{"x": "30.01.2026"}', '{"x": "2026-01-30"}'], "json", ["DATE"], dateFormat="dd.MM.yyyy"
        )
    finally:
        spark.conf.unset("spark.sql.legacy.json.enableDateTimeParsingFallback")
    assert values == [{"DATE": date(2026, 1, 30)}, {}]


@pytest.mark.parametrize(("locale", "thousands", "fraction"), [("de-DE", ".", ","), ("fr-FR", "\u202f", ",")])
def test_separators_of_a_locale(locale: str, thousands: str, fraction: str, spark: SparkSession):
    """In their places alone."""

    def written(text: str) -> str:
        return text.translate({ord(","): thousands, ord("."): fraction})

    right = {"1234567.5": "1,234,567.5", "-1234": "-1,234", "12.5": "12.5", "1234567": "1234567"}
    wrong = ["1,23", "12,345,6", "1,2345", ",123", "1.234.5", "1.2,345"]
    numbers = [written(text) for text in (*right.values(), *wrong)]
    kinds = ["DECIMAL(12, 2)", "DOUBLE"]
    values = parsed(spark, [quoted(text) for text in numbers], "csv", kinds, locale=locale)
    for expected, row in zip(right, values, strict=False):
        assert {kind: Decimal(value) for kind, value in row.items()} == dict.fromkeys(kinds, Decimal(expected))
    assert values[len(right) :] == [{}] * len(wrong)


def test_without_a_locale_numbers_have_no_separators_of_thousands(spark: SparkSession):
    """Nor a comma before their fraction."""
    texts = [quoted(text) for text in ("1,234", "12,50", "1.234,50")]
    assert parsed(spark, texts, "csv", ["DECIMAL(12, 2)", "DOUBLE"]) == [{}, {}, {}]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("ddl", ["x {}", "x ARRAY<{}>", "x MAP<STRING, {}>", "a STRUCT<x: {}>"])
@pytest.mark.parametrize("kind", ["VARIANT", "VARCHAR(5)", "CHAR(5)"])
def test_a_type_that_is_not_its_text_is_refused(kind: str, ddl: str):
    """The parser of VARIANT takes long numbers for doubles, and lengths are not checked."""
    with pytest.raises(ConfigError, match=rf"'transform.schema' has a field of type {kind.partition('(')[0]},"):
        struct_of(ddl.format(kind), "transform.schema", ())
    assert struct_of("variant STRING", "transform.schema", ()).names == ["variant"]


@pytest.mark.parametrize(
    ("texts", "options"),
    [
        (
            {
                **{"2026-03-29 02:30:00": 0, "2026-03-29 02:30:00+01:00": 1, "2026-03-29 03:30:00": 1},
                **{"2026-03-08 02:30:00 America/New_York": 0, "2026-03-08 03:30:00 America/New_York": 1},
                **{"2026-03-08 02:30:00PST": 0, "2026-03-08 02:30:00 GMT-8": 1, "2026-11-01 01:30:00 PST": 1},
            },
            {},
        ),
        ({"29.3.2026 2:30": 0, "29.3.2026 3:30": 1}, {"timestampFormat": "d.M.yyyy H:mm"}),
        ({"29.3.2026 at 2:30": 0, "29.3.2026 at 3:30": 1}, {"timestampFormat": "d.M.yyyy 'at' H:mm"}),
        ({"29.3.2026 2:30 +0100": 1}, {"timestampFormat": "d.M.yyyy H:mm Z"}),
        ({"29.3.2026 2:30": 0}, {"timestampFormat": "d.M.yyyy H:mm", "timestampNTZFormat": "yyyy"}),
    ],
)
def test_moments_that_clocks_leave_out(texts, options, spark, zone):
    """They are malformed, by the session's clock or by that of a zone that is named, whatever the format is."""
    zone("Europe/Berlin")
    rows = parsed(spark, [*texts], "csv", ["TIMESTAMP"], **options)
    assert dict(zip(texts, map(len, rows), strict=True)) == texts


@pytest.mark.parametrize(
    ("kind", "texts", "options"),
    [
        (
            "TIMESTAMP",
            {
                **{"9999-12-31T23:59:59Z": 1, "9999-12-31T23:59:59-01:00": 0},
                **{"0001-01-02 00:00:00": 1, "0001-01-01 00:00:00+01:00": 0},
            },
            {},
        ),
        ("TIMESTAMP", {"+10000-01-01": 0, "9999-12-31": 1}, {"timestampFormat": "yyyy-MM-dd"}),
        ("TIMESTAMP_NTZ", {"0000-12-31": 0, "0001-01-01": 1}, {"timestampNTZFormat": "yyyy-MM-dd"}),
        ("DATE", {"+10000-01-01": 0, "9999-12-31": 1, "0000-12-31": 0, "-0001-12-31": 0}, {"dateFormat": "yyyy-MM-dd"}),
    ],
)
@pytest.mark.usefixtures("in_utc")
def test_years_that_readers_of_tables_have_not(kind, texts, options, spark):
    """Before 1 and after 9999, in UTC: such a row is malformed."""
    rows = parsed(spark, [*texts], "csv", [kind], **options)
    assert dict(zip(texts, map(len, rows), strict=True)) == texts


@pytest.mark.parametrize(("name", "space"), [("-15e3", ""), ("true", "\n\t")])
def test_a_name_without_quotes_may_look_like_a_value(name, space, spark):
    """It is a name, of a field or in a map, wherever its colon is."""
    options = {"allowUnquotedFieldNames": "true"}
    record = f'{{"x": {{{name}{space}: 1.50}}}}'
    row, other = parsed(
        spark, [record, f'{{{name}{space}: [1.50], "x": {{}}}}'], "json", ["MAP<STRING, STRING>"], **options
    )
    assert row == {"MAP<STRING, STRING>": {name: "1.50"}} and other == {"MAP<STRING, STRING>": {}}
    (struct,) = parsed(spark, [record], "json", [f"STRUCT<`{name}`: STRING>"], **options)
    assert struct[f"STRUCT<`{name}`: STRING>"][0] == "1.50"
