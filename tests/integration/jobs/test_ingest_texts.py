"""Generated files and values, as Spark and readers of other makes have them: each record is a row, or malformed."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.files.input import Files, accepted, parsed, rows_of
from jobs.runner.columns import PARSED, with_fields
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.errors import FileError
from spark_eos.pipelines.files.folder import Folder, with_digest
from spark_eos.pipelines.files.source import source_for
from spark_eos.pipelines.files.text import TextForm
from tests.support.judges.text_readers import (
    CSV_PIECES,
    JSON_PIECES,
    Record,
    csv_fields,
    csv_records,
    json_object,
    lines,
)

NONE = HadoopSettings({})
CSV, JSON = "a STRING, b STRING", "id INT, name STRING"


def rounds(first: tuple[int, int], chaos: tuple[int, int]) -> list[object]:
    """Numbers of rounds, each with how many files it has: 2,000 in all tests together, and 50,000 in the slow share."""
    slow = [pytest.param(first[0] + n, chaos[1], marks=pytest.mark.chaos) for n in range(chaos[0])]
    return [*((n, first[1]) for n in range(first[0])), *slow]


def config(folder: Path, form: str, schema: str | None = None, on: str = "fail", **options: str) -> Files:
    return Files.model_validate({"path": str(folder), "format": form, "schema": schema, "onMalformed": on, **options})


def read(spark: SparkSession, config: Files) -> DataFrame:
    """What an ingest would read of all files of the folder, in two tasks."""
    spark.dataSource.register(source_for(NONE))
    files = [with_digest(file, NONE) for file in Folder(config.path).files()]
    return rows_of(spark, config, [part for part in (files[::2], files[1::2]) if part], NONE)


def texts(seed: object, pieces: Sequence[str], count: int, longest: int = 12) -> list[str]:
    made = random.Random(str(seed))
    return ["".join(made.choices(pieces, k=made.randrange(longest))) for _ in range(count)]


def put(folder: Path, contents: Sequence[str]) -> None:
    folder.mkdir()
    for number, text in enumerate(contents):
        (folder / f"{number:05}").write_bytes(text.encode())


def taken(rows: DataFrame) -> Mapping[int, dict[int, list[str | None] | None]]:
    """For each file its rows by their lines: the fields, or None where a row is malformed."""
    found: dict[int, dict[int, list[str | None] | None]] = defaultdict(dict)
    for row in rows.select("_file", "_line", PARSED).collect():
        file = found[int(row["_file"][-5:])]
        assert row["_line"] not in file
        file[row["_line"]] = None if row[PARSED] is None else list(row[PARSED])[:2]
    return found


def letters(text: str) -> str:
    """What no reader may leave out: everything but quotes, escapes, delimiters, and white space around fields."""
    return "".join(char for char in text if char > " " and char not in "\"'\\,;")


FORMS = [TextForm(b'"'), TextForm(b"'", delimiter=b"\t"), TextForm(b'"', backslash=True, delimiter=b";")]
FORMS += [TextForm(b'"', skip_space=True), TextForm(b"")]


@pytest.mark.parametrize(("number", "count"), rounds((5, 250), (30, 1000)))
def test_each_record_of_csv_is_a_row_or_malformed(number: int, count: int, spark: SparkSession, tmp_path: Path):
    """In just the lines where it begins, and with all that is in it, by whatever quotes; plain fields are those that
    Python reads. Without quoted line breaks, the rows are those of Spark's own reader."""
    form = FORMS[number % len(FORMS)]
    delimiter, quoted = form.delimiter.decode(), bool(form.quote)
    options = {"multiLine": str(quoted).lower(), "delimiter": delimiter, "quote": form.quote.decode() or '"'}
    options |= {"escape": "\\"} if form.backslash else {}
    options |= {"ignoreLeadingWhiteSpace": "true"} if form.skip_space else {}
    made = [(text, csv_records(text, form) if quoted else lines(text)) for text in texts(number, CSV_PIECES, count)]
    clear = [(text, records) for text, records in made if not isinstance(records, str)]
    put(tmp_path / "in", [text for text, _ in clear])
    of = config(tmp_path / "in", "csv", CSV, **options)
    found = taken(parsed(read(spark, of), of))
    for number, (_, records) in enumerate(clear):
        rows = [record for record in records if record.text.strip(" \t".replace(delimiter, ""))]
        assert sorted(found[number]) == [record.line for record in rows], records
        for record in rows:
            check_csv(record, found[number][record.line], delimiter, plain=form == FORMS[0])
    if not quoted:
        own = spark.read.schema(f"{CSV}, _bad STRING").csv(of.path, escape='"', columnNameOfCorruptRecord="_bad")
        check_by_spark(own, found, [text for text, _ in clear])


def check_csv(record: Record, fields: list[str | None] | None, delimiter: str, plain: bool) -> None:
    if fields is not None:
        assert letters("".join(field or "" for field in fields)) == letters(record.text), record
    expected = csv_fields(record.text, delimiter) if plain else None
    if plain and "\0" in record.text and '"' in record.text:
        assert fields is None, record
    elif expected is not None:
        wanted = [field or None for field in expected] if len(expected) == 2 else None
        assert wanted == fields, record


def check_by_spark(own: DataFrame, found: Mapping[int, dict[int, list[str | None] | None]], texts: list[str]) -> None:
    by_spark: dict[int, list[tuple[str | None, ...]]] = defaultdict(list)
    for row in own.select("_metadata.file_path", "a", "b").collect():
        by_spark[int(row["file_path"][-5:])].append((row["a"], row["b"]))
    for number, text in enumerate(texts):
        # Spark leaves out lines of control characters and delimiters, which Java takes for white space.
        seen = [record.line for record in lines(text) if any(char > " " for char in record.text)]
        assert len(by_spark[number]) == len(seen), text
        for line, theirs in zip(seen, by_spark[number], strict=True):
            ours = found[number][line]
            assert ours in (None, list(theirs)), (text, line)


@pytest.mark.parametrize(("number", "count"), rounds((1, 500), (15, 1000)))
def test_each_line_of_json_is_one_object_or_malformed(number: int, count: int, spark: SparkSession, tmp_path: Path):
    """As Python's json has it: two values, or anything behind one, are no object. Each value of a topic, too."""
    made = texts(number, JSON_PIECES, count, 7)
    put(tmp_path / "in", made)
    of = config(tmp_path / "in", "json", JSON, allowSingleQuotes="false")
    found = taken(parsed(read(spark, of), of))
    for number, text in enumerate(made):
        text = text.removeprefix("\ufeff")
        rows = [record for record in lines(text) if record.text.strip(" \t")]
        assert sorted(found[number]) == [record.line for record in rows], text
        for record in rows:
            check_json(record.text, found[number][record.line])
    values = spark.createDataFrame([(number, text) for number, text in enumerate(made)], "n INT, text STRING")
    for row in with_fields(values, F.col("text"), "json", JSON, {"allowSingleQuotes": "false"}).collect():
        check_json(row["text"], None if row[PARSED] is None else list(row[PARSED])[:2])


def check_json(text: str, fields: list[object] | None) -> None:
    value = json_object(text)
    if value is None or not isinstance(value.get("id"), int | None) or (value.get("id") or 0) >= 1 << 31:
        assert fields is None, text
        return
    assert fields is not None, text
    name = value.get("name")
    assert fields[0] == value.get("id"), text
    assert fields[1] == name or json.loads(str(fields[1])) == name, text


@pytest.mark.parametrize(("number", "count"), rounds((1, 250), (5, 1000)))
def test_each_line_of_text_is_a_row(number: int, count: int, spark: SparkSession, tmp_path: Path):
    """As it is, and as Spark's own reader has it."""
    made = texts(number, CSV_PIECES, count)
    put(tmp_path / "in", made)
    of = config(tmp_path / "in", "text")
    rows = read(spark, of).collect()
    expected = [(n, record.line, record.text) for n, text in enumerate(made) for record in lines(text)]
    assert sorted((int(row["_file"][-5:]), row["_line"], row["value"]) for row in rows) == expected
    own = spark.read.text(of.path).select("_metadata.file_path", "value").collect()
    by_spark = sorted((int(row["file_path"][-5:]), row["value"]) for row in own)
    assert by_spark == sorted((n, value) for n, _, value in expected)


def test_each_character_is_in_its_field(spark: SparkSession):
    """None of them ends a record that is parsed. Outside quotes, Univocity takes one for the end of its input, and
    among quotes it may leave out a NUL: then the record is malformed."""
    chars = [chr(n) for n in range(0x10000) if not 0xD800 <= n < 0xE000]
    values = spark.createDataFrame([(char,) for char in chars], "char STRING")
    for before, after, special in (("1,a", "b", ","), ('1,"a', 'b"', '"')):
        text = F.concat(F.lit(before), "char", F.lit(after))
        rows = with_fields(values, text, "csv", CSV, {}).select("char", PARSED).collect()
        found = {row["char"]: row[PARSED] and row[PARSED]["b"] for row in rows}
        del found[special]
        odd = {"\uffff": None} if special == "," else {"\0": None}
        assert found == {char: f"a{char}b" for char in found} | odd


BAD_VALUES = [
    ("json", b'{"id":1,"name":"\xff"}'),
    ("json", b"[" * 5000),
    ("json", b'{"id":' + b"1" * 5000 + b"}"),
    ("csv", b"1,\xff"),
    ("csv", b"," * 30_000),
    ("csv", b'1,"a'),
    ("csv", b'"' * 30_001),
]


def test_values_that_no_parser_takes(spark: SparkSession):
    """They are malformed, and Spark's job does not fail by an error of the parser."""
    for form, schema in (("json", JSON), ("csv", CSV)):
        values = [(value,) for kind, value in BAD_VALUES if kind == form]
        rows = spark.createDataFrame(values, "value BINARY")
        found = with_fields(rows, F.col("value").cast("string"), form, schema, {}).collect()
        assert [row["value"][:9] for row in found if row[PARSED] is not None] == []


def test_what_is_left_out_is_a_line(spark: SparkSession, tmp_path: Path):
    """With ``drop``. A record of several lines may be more than one row, between two stray quotes."""
    put(tmp_path / "in", ['1,first\n2,6" pipe\n3,x,y\n4,"6 pipe\n'])
    of = config(tmp_path / "in", "csv", CSV, on="drop", multiLine="false")
    assert [row["a"] for row in accepted(parsed(read(spark, of), of), of).collect()] == ["1", "2"]
    put(tmp_path / "several", ['1,first\n2,"6 pipe\n3,copper\n4,8",pipe\n'])
    of = config(tmp_path / "several", "csv", CSV, on="drop")
    with pytest.raises(PySparkException, match=r"EOS_JOB_MALFORMED_ROW.* Line 2 of .*multiLine: false"):
        accepted(parsed(read(spark, of), of), of).collect()


#: A moment, and as PySpark gives it.
MOMENT = datetime(2024, 7, 1, 12, tzinfo=UTC)
HERE = MOMENT.astimezone().replace(tzinfo=None)
WIDER = {
    "uint8": (pa.array([255], pa.uint8()), 255),
    "uint32": (pa.array([2**32 - 1], pa.uint32()), 2**32 - 1),
    "uint64": (pa.array([2**64 - 1], pa.uint64()), 2**64 - 1),
    "halffloat": (pa.array([1.5], pa.float16()), 1.5),
    "dictionary": (pa.array(["x"]).dictionary_encode(), "x"),
    "large_string": (pa.array(["x"], pa.large_string()), "x"),
    "decimal": (pa.array([7], pa.decimal128(38, 0)), 7),
    "list": (pa.array([[1]], pa.list_(pa.int32())), [1]),
    "null": (pa.nulls(1), None),
    "moment": (pa.array([MOMENT], pa.timestamp("us", "UTC")), HERE),
    "moments": (pa.array([[MOMENT]], pa.list_(pa.timestamp("ms", "Europe/Berlin"))), [HERE]),
    "names": (pa.array([{"a-b": {"c d": 1}}]), ((1,),)),
    "uuid": (pa.array([b"0123456789abcdef"], pa.uuid()), b"0123456789abcdef"),
}


def test_types_of_parquet_that_spark_has(spark: SparkSession, tmp_path: Path):
    """The same, or one with room for all its values."""
    pq.write_table(pa.table({kind: column for kind, (column, _) in WIDER.items()}), tmp_path / "a.parquet")
    (row,) = read(spark, config(tmp_path, "parquet")).collect()
    assert {kind: row[kind] for kind in WIDER} == {kind: value for kind, (_, value) in WIDER.items()}


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1], pa.time32("ms")),
        pa.array([1], pa.decimal256(50, 0)),
        pa.array([[1]], pa.list_(pa.uint64())),
        pa.array([{"u": 1}], pa.struct({"u": pa.time32("s")})),
    ],
    ids=lambda column: str(column.type),
)
def test_a_type_of_parquet_that_spark_does_not_have(column: pa.Array, spark: SparkSession, tmp_path: Path):
    """The error says in which file, column and type, and what to do."""
    pq.write_table(pa.table({"n": [1], "odd": column}), tmp_path / "a.parquet")
    with pytest.raises(
        FileError, match=r"EOS_FILE_MALFORMED.*a.parquet .*odd is of type .* Hint: .*change their types"
    ):
        read(spark, config(tmp_path, "parquet"))
