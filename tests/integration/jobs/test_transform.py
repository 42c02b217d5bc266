"""The job's transform on rows that stand still: parsing, what becomes of malformed values, and mistakes in the SQL."""

from __future__ import annotations

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from jobs.runner.query import failure_text
from jobs.runner.transform import Letters, transformed
from jobs.runner.transforms import ParsedTransform
from jobs.runner.values import Rejected, check_interval
from spark_eos.errors import ConfigError

JSON = "id BIGINT, delay INT"
#: With a filter of the user's that would drop the malformed row, were it evaluated first.
LATE = "SELECT CAST(id AS STRING) AS value FROM input WHERE delay > 15"


def config(sql: str | None = LATE, **keys: str) -> ParsedTransform:
    """By keys of the section `transform`."""
    return ParsedTransform.model_validate({"sql": sql, **keys})


@pytest.fixture
def rows(spark: SparkSession):
    """``rows(*values)``: records of the topic t, one of them in each offset of partition 0. Of Arrow, so that no Python
    reads them: Spark may give one that it is about to kill, for a task before, to the next test."""
    fields = [("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string())]
    schema = pa.schema([*fields, ("partition", pa.int32()), ("offset", pa.int64())])

    def make(*values: str | None) -> DataFrame:
        data = [(None, None if value is None else value.encode(), "t", 0, n) for n, value in enumerate(values)]
        return spark.createDataFrame(pa.table([*zip(*data, strict=True)], schema=schema))

    return make


def values(frame: DataFrame) -> list[str | None]:
    return [row["value"] for row in frame.collect()]


FIELDS = ('{"id": 1, "delay": 20}', '{"id": 2}', None, '{"id": 3, "delay": 99, "more": 1}')


@pytest.mark.parametrize(
    ("records", "sql", "parse", "expected"),
    [
        (FIELDS, LATE, {"format": "json", "schema": JSON}, ["1", "3"]),
        (FIELDS, "SELECT id AS value FROM input", {"format": "json", "schema": JSON}, [1, 2, None, 3]),
        (("1,20", "2,3", None), LATE, {"format": "csv", "schema": JSON}, ["1"]),
        (("a", None), "SELECT upper(value) AS value FROM input", {"format": "string"}, ["A", None]),
    ],
    ids=["JSON", "JSON that a filter would drop", "CSV", "text"],
)
def test_fields_become_columns(rows, records, sql, parse, expected):
    """A missing field and a tombstone are nulls, an unknown field is ignored; a text is a value alone."""
    assert values(transformed(rows(*records), config(sql, **parse))) == expected


MALFORMED_JSON = ("no", "", '{"id": 1', '{"id": "x", "delay": 20}', '[{"id": 1, "delay": 20}]', "null", "7")
MALFORMED_JSON += ('{"id": 1}{"id": 2}', '{"id": 1}, {"id": 2}', '{"id": 1} x', '{"id": 1}]} x', '{"id": 1}\u3000')
MALFORMED_CSV = ("1", "1,2,3", "x,1", "1,x", "", " ", '1,"2', "1,2\\n3,4")


@pytest.mark.parametrize(("form", "good"), [("json", '{"id": 1, "delay": 20}'), ("csv", "1,20")])
def test_a_malformed_value_fails_the_query_though_a_filter_would_drop_it(rows, form, good):
    """A malformed value is never dropped silently; the error names its place."""
    with pytest.raises(PySparkException) as caught:
        values(transformed(rows(good, "no"), config(format=form, schema=JSON)))
    assert failure_text(caught.value).startswith("[EOS_JOB_MALFORMED_ROW] The value of topic t, partition 0, offset 1 ")


def test_malformed_values_are_dropped_where_the_config_says_so(rows):
    """With onMalformed: drop only well-formed and null values are left."""
    frame = rows(*MALFORMED_JSON, '{"id": 9, "delay": 20}', None)
    everything = config("SELECT id AS value FROM input", format="json", schema=JSON, onMalformed="drop")
    assert values(transformed(frame, everything)) == [9, None]


def test_what_is_left_out_is_counted_though_the_sql_reads_its_input_twice(rows):
    """Spark takes two counts of one name for a mistake, unless they are the same."""
    frame = rows(*MALFORMED_JSON, '{"id": 9}')
    sql = "SELECT a.id AS value FROM input a JOIN input b USING (offset) UNION ALL SELECT id FROM input"
    transform = config(sql, format="json", schema=JSON, onMalformed="drop")
    assert values(transformed(frame, transform)) == [9, 9]


LETTERS = {"format": "json", "schema": JSON, "onMalformed": "deadLetters"}


def parted(frame: DataFrame, letters: bool, parse: dict[str, str], sql: str) -> list[tuple[int, dict[str, str]]]:
    """The offsets of the rows that go one way: for dead letters with their headers."""
    found = transformed(frame, config(sql, **parse), letters=Letters("dead", "c-1"), topic="out").collect()
    assert {row["topic"] for row in found} <= {"out", "dead"}
    if not letters:
        return [(int(row["value"]), {}) for row in found if row["topic"] == "out"]
    headers = [
        {h["key"]: bytes(h["value"]).decode() for h in row["headers"]} for row in found if row["topic"] == "dead"
    ]
    return [(int(said["__streams.errors.offset"]), said) for said in headers]


@pytest.mark.parametrize(
    ("parse", "good", "bad"),
    [
        (LETTERS, ('{"id": 1, "delay": 20}', '{"id": 2}', "{}", None), MALFORMED_JSON),
        (LETTERS | {"format": "csv"}, ("1,20", "2,", ",", None), MALFORMED_CSV),
    ],
)
def test_each_row_goes_one_way(rows, parse, good, bad):
    """Those that parse through the SQL, the others to the dead-letter topic as they came; none both ways or neither,
    also where the SQL uses none of the columns or drops rows."""
    frame = rows(*bad, *good)
    for sql in ("SELECT string(offset) AS value FROM input", "SELECT string(offset) AS value FROM input WHERE id > 1"):
        letters = parted(frame, True, parse, sql)
        assert sorted(offset for offset, _ in letters) == list(range(len(bad)))
    taken = parted(frame, False, parse, "SELECT string(offset) AS value FROM input")
    assert sorted(offset for offset, _ in taken) == list(range(len(bad), len(bad) + len(good)))


def test_what_a_dead_letter_says(rows):
    """Its value as it came, why, and from where."""
    transform = config("SELECT 'k' AS key, string(id) AS value FROM input", **LETTERS)
    (row,) = transformed(rows("no"), transform, letters=Letters("dead", "c-1"), topic="out").collect()
    assert (row["key"], row["value"], row["topic"]) == (None, b"no", "dead")
    assert [(h["key"], bytes(h["value"]).decode()) for h in row["headers"]] == [
        ("__streams.errors.exception", "EOS_JOB_MALFORMED_ROW"),
        ("__streams.errors.message", f"The value does not fit 'transform.schema': json, {JSON}."),
        ("__streams.errors.topic", "t"),
        ("__streams.errors.partition", "0"),
        ("__streams.errors.offset", "0"),
        ("__spark_eos.source.cluster", "c-1"),
    ]


def test_headers_of_a_record_come_along(rows):
    """Before those that say why."""
    own = "IF(offset = 0, array(struct('own' AS key, binary('1') AS value)), NULL) AS headers"
    frame = rows("no", "neither").selectExpr("*", own)
    sent = transformed(frame, config(LATE, **LETTERS), letters=Letters("dead", "c-1"), topic="out").collect()
    found = [[h["key"] for h in row["headers"]] for row in sent]
    assert [(names[0], len(names)) for names in found] == [("own", 7), ("__streams.errors.exception", 6)]


def test_each_row_keeps_the_topic_that_it_has(rows):
    """Where no option names one. Without either, nobody would know where rows go."""
    transform = config("SELECT string(id) AS value, 'own' AS topic FROM input", **LETTERS)
    found = transformed(rows('{"id": 1}', "no"), transform, letters=Letters("dead", "c-1")).collect()
    assert [(bytes(row["value"]), row["topic"]) for row in found] == [(b"1", "own"), (b"no", "dead")]
    with pytest.raises(ConfigError, match=r"EOS_CONFIG_INVALID_VALUE.*no column 'topic'"):
        transformed(rows("no"), config(LATE, **LETTERS), letters=Letters("dead", "c-1"))


def test_a_value_of_another_type(rows):
    """Does not go together with the dead letters' values, and is named."""
    with pytest.raises(ConfigError, match=r"EOS_CONFIG_INVALID_VALUE.*another type"):
        transformed(
            rows("no"),
            config("SELECT id AS value FROM input", **LETTERS),
            letters=Letters("dead", "c-1"),
            topic="out",
        )


def keys_only(frame: DataFrame) -> DataFrame:
    return frame.select(frame["offset"].cast("string").alias("value"))


def nothing(frame: DataFrame) -> None:
    return None


def test_a_function_transforms(rows):
    """A function that the config names gets the frame, and its result is written."""
    assert values(transformed(rows("a", "b"), config(None, function=f"{__name__}:keys_only"))) == ["0", "1"]


def failing(frame: DataFrame) -> DataFrame:
    return {}["x"]


@pytest.mark.parametrize(
    ("transform", "condition", "says"),
    [
        (config("SELEC 1"), "EOS_CONFIG_INVALID_VALUE", "SELEC"),
        (config("SELECT x FROM input"), "EOS_CONFIG_INVALID_VALUE", "key, value, topic, partition, offset"),
        (config("SELECT value, 1 AS x FROM input"), "EOS_CONFIG_INVALID_VALUE", "does not know: x"),
        (config("SELECT key FROM input"), "EOS_CONFIG_INVALID_VALUE", "no column 'value'"),
        (config(format="json", schema="id BIGNT"), "EOS_CONFIG_INVALID_VALUE", "BIGNT"),
        (config(format="json", schema="Offset INT"), "EOS_CONFIG_INVALID_VALUE", "offset"),
        (config(format="csv", schema="_malformed INT"), "EOS_CONFIG_INVALID_VALUE", "_malformed"),
        (config(None, function=f"{__name__}:nothing"), "EOS_CONFIG_FUNCTION", "returned NoneType, not a DataFrame"),
        (config(None, function=f"{__name__}:JSON"), "EOS_CONFIG_FUNCTION", "TypeError: it is of type str"),
        (
            config(None, function=f"{__name__}:failing"),
            "EOS_CONFIG_FUNCTION",
            r"KeyError: 'x' \(.*test_transform.py, line \d+\)",
        ),
    ],
)
def test_a_mistake_is_a_config_error(rows, transform, condition, says):
    """What is wrong with SQL, schema or function is named, without the JVM's stack."""
    with pytest.raises(ConfigError, match=says) as caught:
        transformed(rows("a"), transform)
    assert caught.value.condition == condition
    assert "JVM stacktrace" not in str(caught.value)


INTERVALS = ["1 second", "2 minutes 30 seconds", "interval 1 hour", "0 seconds", "1.5 seconds"]
INTERVALS += ["100 MILLISECONDS", " 1  day "]
NO_INTERVALS = ["1 secnd", "1second", "second", "", "1", "1 month", "1.5 minutes", "1 second,", "ten seconds"]


@pytest.mark.parametrize("text", INTERVALS + NO_INTERVALS)
def test_an_interval_is_refused_before_spark_starts_where_spark_would_refuse_it(spark, text):
    """The config's own check of an interval agrees with Spark's parser."""

    def taken(check) -> bool:
        try:
            check(text)
        except (Rejected, Py4JJavaError, PySparkException):
            return False
        return True

    by_spark = spark._jvm.org.apache.spark.sql.streaming.Trigger.ProcessingTime
    assert taken(check_interval) == taken(by_spark) == (text in INTERVALS)
