"""SQL by DuckDB: which queries are functions of each row, what a query may reach, and rows for which it fails."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import chdir

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.errors import RowError, SchemaError
from spark_eos.pipelines.copy import sql
from spark_eos.pipelines.copy.sql import SqlTransform, check_sql
from spark_eos.pipelines.copy.testing import check_transform
from spark_eos.pipelines.copy.transforming import checked
from spark_eos.source.schema import arrow_schema
from tests.support.judges.conditions import raises

#: The source's columns, and such as a parser adds.
SCHEMA = pa.schema(
    [
        *arrow_schema(True),
        pa.field("id", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("xs", pa.list_(pa.int64())),
        pa.field("seen", pa.timestamp("us", tz="UTC")),
        pa.field("price", pa.decimal128(9, 2)),
        pa.field("nested", pa.struct([("a", pa.int32())])),
    ]
)


def records(*rows: dict[str, object]) -> pa.RecordBatch:
    """Records with offsets from 0 on; what a row does not have is null."""
    places = [{"topic": "t", "partition": 3, "offset": offset, **row} for offset, row in enumerate(rows)]
    return pa.RecordBatch.from_pylist(places, schema=SCHEMA)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT key, value, NULL AS nothing FROM input",
        "FROM input SELECT * EXCLUDE (xs) WHERE id > 3",
        "SELECT i.key, upper(name) AS value FROM main.input AS i WHERE id BETWEEN 1 AND 3 OR name LIKE 'a%'",
        "SELECT * FROM (SELECT key, to_json({'id': id, 'n': nested.a}) AS value FROM input) WHERE value IS NOT NULL",
        "SELECT unnest(xs) AS value, key FROM input",
        "SELECT list_sum(xs) AS a, list_transform(xs, lambda x: x + id) AS b, [x * 2 FOR x IN xs IF x > 1] FROM input",
        "SELECT CASE WHEN id > 1 THEN 'a' ELSE name END, coalesce(name, 'x'), try_cast(name AS INT), price FROM input",
        "SELECT id IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20) FROM input",
        "SELECT seen + INTERVAL 1 DAY, date_trunc('day', seen), strftime(seen, '%Y'), hour(age(seen, seen)) FROM input",
        "SELECT json_extract_string(decode(value), '$.a'), regexp_extract(name, '(a)(b)', 1), md5(name) FROM input",
        "SELECT key FROM query('SELECT key FROM input')",
        "SELECT key FROM input WHERE false",
        "WITH a AS (SELECT key, id FROM input WHERE id > 3) SELECT key FROM a WHERE id < 9",
    ],
)
def test_functions_of_each_row_are_taken(query):
    """Filters, projections, functions of their arguments, lists, and subqueries in FROM."""
    check_sql(query, SCHEMA)


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT name, sum(id) FROM input GROUP BY ALL", "groups or aggregates"),
        ("SELECT row_number() OVER () FROM input", "window"),
        ("SELECT key FROM input ORDER BY key", "sorts"),
        ("SELECT key FROM input LIMIT 0", "limits"),
        ("SELECT DISTINCT ON (key) key, value FROM input", "duplicate"),
        ("SELECT key FROM input USING SAMPLE 10%", "samples"),
        ("SELECT key FROM input UNION ALL SELECT key FROM input", "several results"),
        ("SELECT key FROM input EXCEPT ALL SELECT key FROM input", "subtracts"),
        ("SELECT key FROM input INTERSECT ALL SELECT key FROM input", "intersects"),
        ("SELECT a.key FROM input a JOIN input b USING (id)", "joins"),
        ("SELECT a.key FROM input a, input b", "joins"),
        ("SELECT a.key FROM input a ASOF JOIN input b ON a.id >= b.id", "joins"),
        ("SELECT (SELECT max(id) FROM input) FROM input", "subquery"),
        ("SELECT key FROM input WHERE id IN (SELECT id FROM input)", "subquery"),
        ("WITH RECURSIVE r AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM r WHERE i < 3) SELECT i FROM r", "recursive"),
        ("WITH a AS (FROM input) SELECT a.key FROM a JOIN a AS b USING (id)", "joins"),
        ("WITH a AS (FROM input) SELECT 1", "does not read"),
        ("SELECT 1 AS value", "does not read"),
        ("VALUES (1)", "does not read"),
        ("SELECT * FROM duckdb_settings()", "something else"),
        ("SELECT * FROM duckdb_functions(), input", "joins"),
        ("SELECT * FROM range(3)", "something else"),
        ("SELECT key FROM input WHERE id = $1", "parameter"),
        ("SELECT 1; SELECT key FROM input", "2 statements"),
        ("CREATE TABLE t AS SELECT key FROM input", "LOGICAL_"),
        ("SELECT CASE WHEN id > 1 THEN list_transform(xs, lambda x: x + random()) END FROM input", "random"),
        ("SELECT age(seen::TIMESTAMP) FROM input", "age"),
        ("SELECT system.main.upper(system.main.now()::VARCHAR) AS value FROM input", "now"),
        ("SELECT list_transform(xs, lambda x: x + epoch_ms(now())) AS value FROM input", "now"),
        ("SELECT upper(current_setting('TimeZone')) AS value FROM input", "current_setting"),
        ("SELECT key FROM query('SELECT upper(now()::VARCHAR) AS key FROM input')", "now"),
        ("SELECT key FROM query('SELECT key ' || 'FROM input')", "computes a query"),
        ("SELECT ago(INTERVAL 1 DAY) AS value FROM input", "current_timestamp|now"),
        ("SELECT list_aggregate(xs, 'reservoir_quantile', 0.5) FROM input", "reservoir_quantile"),
        ("SELECT list_aggr(xs, lower('SUM')) FROM input", "aggregate"),
        ("SELECT strftime(seen, list_aggr(['%Y'], 'approx_top_k', 1)[1]) FROM input", "approx_top_k"),
        ("SELECT regexp_matches(name, aggregate([name], 'arg_min_null', 1)) FROM input", "arg_min_null"),
        ("SELECT xs[array_aggregate([1, 2], 'approx_count_distinct')] FROM input", "approx_count_distinct"),
        ("SELECT json_serialize_plan('SELECT concat(now())') FROM input", "json_serialize_plan"),
    ],
)
def test_what_is_not_a_function_of_each_row_is_refused(query, why):
    """Aggregates, joins, windows, order, limits, chance, time, other tables, and statements that are no query."""
    with pytest.raises(SchemaError, match=why) as caught:
        check_sql(query, SCHEMA)
    assert caught.value.entry == "EOS_TRANSFORM_SQL.not_by_row"


@pytest.mark.parametrize(
    "query",
    [
        "selekt",
        "",
        "SELECT nothing FROM input",
        "SELECT key FROM other",
        "SELECT upper(xs) FROM input",
        "SELECT rowid FROM input",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM read_csv('/etc/hostname')",
        "SELECT * FROM '/etc/hostname'",
        "SELECT * FROM 'http://localhost:1/x.parquet'",
        "COPY (SELECT key FROM input) TO 'out.csv'",
        "EXPORT DATABASE 'out'",
        "ATTACH 'other.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET TimeZone = 'CET'",
        "PRAGMA version",
        "EXPLAIN SELECT key FROM input",
        "PIVOT input ON name",
        "SELECT * FROM a_variable_of_the_test",
        "SELECT regexp_replace(name, '(', '') FROM input",
    ],
)
def test_what_duckdb_refuses_names_its_own_reason(query, tmp_path):
    """Syntax, unknown names, and whatever leaves the process: nothing is read, written or fetched."""
    a_variable_of_the_test = pa.table({"key": [b"k"]})
    assert a_variable_of_the_test.num_rows == 1
    with chdir(tmp_path), raises("EOS_TRANSFORM_SQL"):
        check_sql(query, SCHEMA)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "function",
    duckdb.sql(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE stability "
        "IN ('VOLATILE', 'CONSISTENT_WITHIN_QUERY') AND function_type = 'scalar' AND function_name >= 'a' ORDER BY 1"
    ).fetchall(),
    ids=lambda row: row[0],
)
def test_no_function_of_the_time_or_of_chance_is_taken_without_arguments(function):
    """Every function that DuckDB does not call consistent, as far as it can be called with nothing."""
    with pytest.raises(SchemaError):
        check_sql(f'SELECT "{function[0]}"() AS value FROM input', SCHEMA)
    with pytest.raises(SchemaError):
        check_sql(f'SELECT concat("{function[0]}"(), name) AS value FROM input', SCHEMA)


@pytest.mark.parametrize("name", ["current_timestamp", "Current_Date", "localtime", "current_user", "current_schema"])
def test_a_column_may_have_the_name_of_a_function_and_hides_no_call_of_it(name):
    """A name is the column where the column is in sight, and a function everywhere else."""
    schema = pa.schema([*SCHEMA, (name, pa.string()), ("within", pa.struct([(name, pa.string())]))])
    rows = pa.RecordBatch.from_pylist([{name: "a", "within": {name: "b"}}], schema)
    transform = SqlTransform(f'SELECT upper({name}) AS value, upper(within."{name}") AS key FROM input')
    assert transform(rows).to_pylist() == [{"value": "A", "key": "B"}]
    for text in (
        f"SELECT concat({name}, 'x') FROM (SELECT key FROM input)",
        f'SELECT concat("{name}", key) FROM (SELECT key FROM input)',
        f"SELECT to_json(x) FROM (SELECT {name} AS x FROM (SELECT key FROM input))",
        "SELECT concat(pg_conf_load_time()) FROM input",
    ):
        with raises("EOS_TRANSFORM_SQL.not_by_row"):
            check_sql(text, schema)


@pytest.mark.parametrize("type_", ["DATE", "TIMESTAMP", "TIMESTAMPTZ", "TIME"])
@pytest.mark.parametrize("word", ["now", "today", "tomorrow", "yesterday"])
def test_no_word_is_the_time(word, type_):
    """As it is in PostgreSQL."""
    with pytest.raises(RowError):
        SqlTransform(f"SELECT CAST(name AS {type_})::VARCHAR AS value FROM input")(records({"name": word}))


def test_rows_keep_their_order_and_types_are_those_of_the_sink():
    """A filter and a projection, over several vectors of DuckDB."""
    transform = SqlTransform(
        "WITH a AS MATERIALIZED (SELECT * FROM input WHERE id % 3 <> 0) "
        "SELECT key, upper(name) AS value, headers, timestamp FROM a"
    )
    rows = records(*({"key": b"%d" % i, "id": i, "name": f"n{i}"} for i in range(10_000)))
    prepared = checked(transform, transform.name, rows.slice(0, 0), "out")
    assert (prepared.columns.key, prepared.columns.headers, prepared.columns.timestamp) == (True, True, True)
    found = transform(rows).to_pydict()
    wanted = [i for i in range(10_000) if i % 3]
    assert found["key"] == [b"%d" % i for i in wanted]
    assert found["value"] == [f"N{i}" for i in wanted]


def test_each_batch_is_read_by_itself():
    """A query is bound once for all batches of a schema; batches of another schema, and such for which it fails, may
    come between them."""
    transform = SqlTransform("SELECT CAST(name AS INT)::VARCHAR AS value FROM input")
    for number in range(3):
        rows = records(*({"name": f"{number}{i}"} for i in range(number + 1)))
        wanted = [f"{int(name)}" for name in rows["name"].to_pylist()]
        assert transform(rows)["value"].to_pylist() == wanted
        assert transform(rows.drop_columns(["xs"]))["value"].to_pylist() == wanted
        assert transform(rows.slice(0, 0)).num_rows == 0
        with pytest.raises(RowError, match="offset 1 of t-3"):
            transform(records({"name": "1"}, {"name": "one"}))


ALIKE = pa.struct([("id", pa.int32()), ("ID", pa.string())])


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ([("id", pa.int32()), ("ID", pa.string())], "id"),
        ([("value", ALIKE)], "value.id"),
        ([("value", pa.struct([("a", pa.list_(ALIKE))]))], "value.a.item.id"),
        ([("value", pa.map_(pa.string(), ALIKE))], "value.entries.value.id"),
        ([("value", pa.list_(pa.struct([("Größe", pa.int32()), ("GRÖSSE", pa.int32())]), 1))], None),
        ([("value", pa.struct([("a\0b", pa.int32()), ("a", pa.int32())]))], "value.a\0b"),
        ([("value", pa.struct([("id", pa.int32())])), ("ID", pa.string())], None),
    ],
)
def test_fields_that_differ_in_capital_letters_alone_are_refused(fields, named):
    """DuckDB reads one of them for the other, whatever the query is."""
    schema = pa.schema([("key", pa.binary()), *fields])
    if named is None:
        return check_sql("SELECT key FROM input", schema)
    with pytest.raises(SchemaError) as caught:
        check_sql("SELECT key FROM input", schema)
    assert (caught.value.entry, caught.value.parameters["column"]) == ("EOS_TRANSFORM_SQL.names", named)


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.none() | st.integers(-5, 5),
            "name": st.none() | st.text(max_size=4),
            "xs": st.none() | st.lists(st.integers(-3, 3), max_size=4),
        }
    ),
    max_size=12,
)


@given(ROWS)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT name AS value FROM input WHERE id > 0",
        "SELECT unnest(xs)::VARCHAR AS value, key FROM input",
        "SELECT list_sum(xs)::VARCHAR AS value FROM input WHERE name IS NOT NULL OR id IS NULL",
        "SELECT to_json({'id': id, 'name': name, 'xs': [x FOR x IN xs IF x > id]}) AS value FROM input",
    ],
)
def test_queries_that_are_taken_do_not_depend_on_how_records_are_split(query, rows):
    """What the plan proves, seen on rows."""
    check_transform(SqlTransform(query), records(*rows))


def test_a_record_for_which_the_query_fails_is_named():
    """By its topic, partition and offset, wherever it is in the batch, and with DuckDB's reason."""
    transform = SqlTransform("SELECT key, (10 / (CAST(name AS INT)))::VARCHAR AS value FROM input")
    for bad in (0, 1, 6, 8):
        names = ["5"] * 9
        names[bad] = "five"
        with pytest.raises(RowError, match=f"offset {bad} of t-3: Conversion Error.*five") as caught:
            transform(records(*({"name": name} for name in names)))
        assert caught.value.parameters["offset"] == bad


@given(st.lists(st.sampled_from(["1", "22", "x", "", None]), max_size=40))
def test_records_for_which_the_query_fails_are_rejected_and_no_other(names):
    """Each with DuckDB's reason; what the others give is there, in order, however they are mixed."""
    transform = SqlTransform("SELECT key, CAST(name AS INT)::VARCHAR AS value FROM input")
    rows, failed = transform.rejecting(records(*({"name": name} for name in names)))
    bad = {place for place, name in enumerate(names) if name in ("x", "")}
    assert failed.keys() == bad
    assert all("Conversion Error" in reason for reason in failed.values())
    assert rows.column("value").to_pylist() == [name for place, name in enumerate(names) if place not in bad]


@pytest.mark.parametrize(
    ("expression", "good", "bad"),
    [
        ("list_reduce(string_split(name, ',')[2:], lambda a, b: a || b)", "a,b", "a"),
        ("timezone(name, seen)", "UTC", "nowhere"),
        ("time_bucket(to_days(name::INT), seen)", "1", "0"),
        ("name LIKE 'a' ESCAPE name", "x", "xx"),
    ],
)
def test_a_record_is_rejected_by_every_class_of_errors_that_a_value_may_cause(expression, good, bad):
    """Those of an empty list, a zone that is none, and wrong arguments are not DuckDB's errors of data."""
    transform = SqlTransform(f"SELECT ({expression})::VARCHAR AS value FROM input")
    rows, failed = transform.rejecting(records(*({"name": name, "seen": 0} for name in (good, bad, good))))
    assert (rows.num_rows, [*failed]) == (2, [1])


def test_a_record_for_which_the_memory_of_a_query_is_not_enough_is_rejected(monkeypatch):
    """DuckDB has a limit, by what Spark gives to the process; 60 kB of brackets would need 5 GB."""
    monkeypatch.setenv("PYSPARK_EXECUTOR_MEMORY_MB", "512")
    transform = SqlTransform("SELECT json_pretty(decode(value)::JSON) AS value FROM input WHERE true")
    values = [b"[1]", b"[" * 30_000 + b"]" * 30_000, b"[2]"]
    rows, failed = transform.rejecting(records(*({"value": value} for value in values)))
    assert (rows.num_rows, [*failed]) == (2, [1])
    assert "Out of Memory" in failed[1] and "256.0 MiB" in failed[1]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A query has a second of the processor in a process of its own."""
    monkeypatch.setattr(sql, "_CPU_S", 1.0)
    sql._confined.cache_clear()
    yield
    sql._confined.cache_clear()


LONG = [b"[1]", b"[2]", b"[" * 100_000 + b"]" * 100_000, b"[3]"]
NUMBERS = "(SELECT decode(value)::INT AS n FROM input)"


@pytest.mark.parametrize(
    ("query", "values", "why"),
    [
        ("SELECT decode(value)::JSON::VARIANT::VARCHAR AS value FROM input", LONG, "SIGSEGV"),
        ("SELECT levenshtein(decode(value), 'x' || decode(value))::VARCHAR AS value FROM input", LONG, "processor"),
        (
            f"SELECT (repeat('[', n) || repeat(']', n))::JSON::VARIANT::VARCHAR AS value FROM {NUMBERS}",
            [b"1", b"2", b"100000", b"3"],
            "SIGSEGV",
        ),
    ],
    ids=["stack", "time", "stack, by a short record"],
)
def test_a_record_that_overflows_the_stack_or_takes_too_long_is_rejected(impatient, query, values, why):
    """In a process of its own, and no other record with it: halves are tried until it is clear which one it is."""
    rows, failed = SqlTransform(query).rejecting(records(*({"value": each} for each in values)))
    assert (rows.num_rows, [*failed]) == (3, [2])
    assert why in failed[2]


@pytest.mark.parametrize("query", ["SELECT value FROM input", "SELECT value::VARIANT::BLOB AS value FROM input"])
def test_records_are_the_same_from_a_process_of_its_own(query):
    """Long or short ones, in their order."""
    values = [b"a", b"b" * 100_000, b"", b"c" * 20_000]
    rows, failed = SqlTransform(query).rejecting(records(*({"value": value} for value in values)))
    assert (rows.column("value").to_pylist(), failed) == (values, {})


@pytest.mark.parametrize("long", [0, 20_000])
def test_a_reason_that_duckdb_cuts_within_a_character_rejects_its_record_alone(long):
    """DuckDB shows the beginning of a text that is no JSON, in so many bytes."""
    transform = SqlTransform("SELECT json_extract(decode(value), '$.a') AS value FROM input")
    bad = [("x" * shift + "€" * 99 + "x" * long).encode() for shift in range(3)]
    rows, failed = transform.rejecting(records(*({"value": value} for value in (b'{"a": 1}', *bad, b"{}"))))
    assert (rows.num_rows, [*failed]) == (2, [1, 2, 3])
    assert all("Malformed JSON" in reason and "€€" in reason for reason in failed.values())


def test_what_is_no_fault_of_a_record_rejects_none_and_ends_the_connection():
    """Such as an error within DuckDB, which answers nothing more on it. Texts that are not UTF-8 do this to it."""
    transform = SqlTransform("SELECT upper(value) AS value FROM input")
    bad = pa.array([b"M\xfcller", b"ok"], pa.binary()).view(pa.string())
    with pytest.raises(duckdb.InternalException):
        transform.rejecting(pa.record_batch({"value": bad}))
    assert transform(pa.record_batch({"value": ["ok"]})).to_pylist() == [{"value": "OK"}]


def test_a_transform_travels_as_its_text():
    """It is pickled to the tasks, and known to a decision by its text."""
    transform = SqlTransform("SELECT key, value FROM input")
    copied = pickle.loads(pickle.dumps(transform))
    copied(records({"value": b"x"}))
    assert pickle.loads(pickle.dumps(copied)) == transform
    assert copied.name == transform.name != SqlTransform("SELECT key, value FROM input WHERE true").name


@pytest.mark.parametrize(
    "escape",
    [
        lambda c: c.execute("SET enable_external_access = true"),
        lambda c: c.execute("SET TimeZone = 'CET'"),
        lambda c: c.execute("SELECT * FROM read_text('/etc/hostname')").fetchall(),
        lambda c: c.execute("ATTACH '/tmp/never.db'"),
        lambda c: c.execute("INSTALL httpfs"),
        lambda c: c.execute("COPY (SELECT 1) TO '/tmp/never.csv'"),
    ],
)
def test_the_connection_itself_is_locked(escape: Callable[[duckdb.DuckDBPyConnection], object]):
    """A second fence behind the judgement of the plan."""
    with pytest.raises(duckdb.Error):
        escape(sql._Bound("SELECT key FROM input", SCHEMA).connection)
