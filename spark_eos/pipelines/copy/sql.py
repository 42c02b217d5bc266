"""SQL past the JVM: a query that DuckDB runs over each batch of records.

A transform has to be a function of each row, as how records are split into batches has no meaning. DuckDB proves that
here: its own plan of the query, bound and not optimized, may read `input` once, filter it, and compute expressions of
functions that depend on their arguments alone. The plan is judged, never the query's text. Only functions and operators
that are known to work row by row are allowed, so additions of later versions of DuckDB are refused.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from spark_eos.base.caches import process_cache
from spark_eos.errors import stop
from spark_eos.pipelines.arrow_fields import name_twice
from spark_eos.pipelines.confined import CallLimits, Confined, OutOfBounds, share_mib
from spark_eos.pipelines.copy.sql_types import Unfit, check_types, check_values, may_be_unfit

if TYPE_CHECKING:
    import duckdb

#: The name of the records in a query.
INPUT = "input"

#: A connection sees nothing but `input`: no files, no network, no extensions, no variables of this program. One thread,
#: as Spark gives a task one core.
_SETTINGS = {
    "TimeZone": "UTC",
    "threads": "1",
    "temp_directory": "",
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "lock_configuration": "true",
}

#: Memory for a query, at least and at most: a batch has 16 MiB of keys and values, or a single record.
_MIB = 256, 1024
#: Seconds that a query may take for a batch in a process of its own, of the processor and in all. The latter is for a
#: machine that has much else to do: within one, DuckDB waits for nothing.
_CPU_S, _TIME_S = 5.0, 600.0
#: Bytes of a value from which on a query runs in a process of its own. For shorter ones, a function whose time grows
#: with their square takes less than a second.
_LONG = 16 << 10
#: Words of a plan that recurses into values: deeply nested ones overflow the stack, which ends the process.
_RECURSIVE = ('"VARIANT"', '"json_contains"')

#: A query within WITH is read once at the most, as nothing that reads two inputs is allowed.
_OPERATORS = frozenset(
    [
        "LOGICAL_PROJECTION",
        "LOGICAL_FILTER",
        "LOGICAL_UNNEST",
        "LOGICAL_MATERIALIZED_CTE",
        "LOGICAL_CTE_REF",
    ]
)
_FORBIDDEN_OPERATORS = {
    "LOGICAL_AGGREGATE_AND_GROUP_BY": "it groups or aggregates rows",
    "LOGICAL_WINDOW": "it has a window function",
    "LOGICAL_ORDER_BY": "it sorts rows",
    "LOGICAL_TOP_N": "it sorts rows",
    "LOGICAL_LIMIT": "it limits the number of rows",
    "LOGICAL_SAMPLE": "it samples rows",
    "LOGICAL_DISTINCT": "it removes duplicate rows",
    "LOGICAL_UNION": "it puts several results together",
    "LOGICAL_EXCEPT": "it subtracts rows",
    "LOGICAL_INTERSECT": "it intersects rows",
    "LOGICAL_COMPARISON_JOIN": "it joins rows, or has a subquery",
    "LOGICAL_ANY_JOIN": "it joins rows, or has a subquery",
    "LOGICAL_ASOF_JOIN": "it joins rows",
    "LOGICAL_DELIM_JOIN": "it joins rows, or has a subquery",
    "LOGICAL_DEPENDENT_JOIN": "it joins rows, or has a subquery",
    "LOGICAL_POSITIONAL_JOIN": "it joins rows",
    "LOGICAL_CROSS_PRODUCT": "it joins rows, or has a subquery",
    "LOGICAL_RECURSIVE_CTE": "it is recursive",
    "LOGICAL_DUMMY_SCAN": "it does not read 'input'",
    "LOGICAL_EXPRESSION_GET": "it does not read 'input'",
}


def _names(*lines: str) -> frozenset[str]:
    return frozenset(name for line in lines for name in line.split())


#: Functions that DuckDB calls consistent within a query alone because the session's time zone matters to them, which is
#: UTC here. The others of that class depend on the time, or on the session.
_BY_TIME_ZONE = _names(
    "+ - century date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day dayname dayofmonth",
    "dayofweek dayofyear decade era generate_series hour isodow isoyear julian last_day make_timestamptz microsecond",
    "millennium millisecond minute month monthname quarter range second strftime time_bucket timezone timezone_hour",
    "timezone_minute week weekday weekofyear year yearweek",
)
#: Consistent for DuckDB, but not from one version of it to the next; or by a query or a function that a text names.
_IMPURE = _names("index_key json_serialize_plan to_aggregate_state version")
#: Aggregates that may be computed over the values of a list: they depend on these values and their order alone.
_OF_LISTS = _names(
    "any_value arbitrary array_agg avg bit_and bit_or bit_xor bool_and bool_or count count_if count_star countif",
    "entropy favg first fsum group_concat histogram kahan_sum kurtosis kurtosis_pop last list listagg mad max mean",
    "median min mode product quantile quantile_cont quantile_disc sem skewness stddev stddev_pop stddev_samp",
    "string_agg sum sum_no_overflow sumkahan var_pop var_samp variance",
)
_EXPRESSIONS = _names(
    "BOUND_AGGREGATE BOUND_BETWEEN BOUND_CASE BOUND_CAST BOUND_COMPARISON BOUND_CONJUNCTION BOUND_CONSTANT",
    "BOUND_FUNCTION BOUND_LAMBDA BOUND_LAMBDA_REF BOUND_OPERATOR BOUND_REF BOUND_UNNEST",
)
_READ = {"catalog": "memory", "schema": "main", "table": INPUT}
#: The argument by which a function of lists is given the name of an aggregate, in DuckDB's description of it.
_AGGREGATE = "function_name"
#: The function that replaces the functions of `_shadowed` in the plan.
_SHADOW = "error"


#: The types of texts and bytes.
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


@dataclass(frozen=True)
class SqlTransform:
    """A transform for `spark_eos.copy`: the rows of ``query``, which reads the records as the table ``input``.

    It takes a `pyarrow.RecordBatch` and returns a `pyarrow.Table`. Raises SchemaError where the query is not a function
    of each row of such a batch, and RowError for a record for which it fails.
    """

    query: str

    @property
    def name(self) -> str:
        """The name by which a decision knows the transform: other text is another transform."""
        return f"sql:{hashlib.sha256(self.query.encode()).hexdigest()[:16]}"

    def __call__(self, batch: pa.RecordBatch) -> pa.Table:
        result, failed = self.rejecting(batch)
        for place, error in sorted(failed.items()):
            at = {name: batch.column(name)[place].as_py() for name in ("topic", "partition", "offset")}
            where = "the record at offset {offset} of {topic}-{partition}".format_map(at)
            raise stop("EOS_TRANSFORM_SQL_ROW", where=where, or_drop="", error=error, **at)
        return result

    def rejecting(self, batch: pa.RecordBatch) -> tuple[pa.Table, dict[int, str]]:
        """Return the rows of records for which the query succeeds, and DuckDB's reason for each other record, by its
        index in the batch."""
        check_sql(self.query, batch.schema)
        failed: dict[int, str] = {}
        return pa.concat_tables(_pieces(self.query, batch, 0, failed)), failed


@cache
def check_sql(query: str, schema: pa.Schema) -> None:
    """Raise SchemaError unless the query is a function of each row of ``input``, a table of this schema."""
    try:
        import duckdb
    except ImportError:
        raise stop("EOS_NOT_INSTALLED.extra", use="SQL past the JVM", modules="duckdb", extra="sql") from None

    if (twice := name_twice(list(schema))) is not None:
        raise stop("EOS_TRANSFORM_SQL.names", column=twice)
    try:
        _judge(_plan(query, schema.empty_table()))
        _judge_text(query)
        # A batch has no row ids, which a table has. Some arguments that are constant are read at the first run.
        _run_here(query, pa.RecordBatch.from_pylist([], schema=schema))
    except duckdb.Error as error:
        raise stop("EOS_TRANSFORM_SQL.invalid", error=first_line(error), columns=", ".join(schema.names)) from None


def _plan(query: str, empty: pa.Table) -> dict[str, Any]:
    """Return DuckDB's plan of the query, bound and not optimized. Raises SchemaError and duckdb.Error where there is
    none."""
    connection = _opened()
    connection.register("empty", empty)
    connection.execute(f"CREATE TABLE {INPUT} AS SELECT * FROM empty").unregister("empty")
    for name, body in _shadowed():
        shown = f"CASE WHEN {_SHADOW}('{name}') IS NULL THEN {body} END"
        connection.execute(f'CREATE OR REPLACE MACRO "{name}"() AS {shown}')
    _lock(connection)
    row = connection.execute("SELECT json_serialize_plan(?, optimize := false)", [query]).fetchone()
    answer: dict[str, Any] = json.loads(row[0] if row else "{}")
    if answer.get("error", True):
        error = first_line(answer.get("error_message", "there is no plan"))
        raise stop("EOS_TRANSFORM_SQL.invalid", error=error, columns=", ".join(empty.schema.names))
    plans = answer["plans"]
    if len(plans) != 1:
        raise stop("EOS_TRANSFORM_SQL.not_by_row", why=f"it has {len(plans)} statements")
    plan: dict[str, Any] = plans[0]
    return plan


def _judge(plan: dict[str, Any]) -> None:
    """Raise SchemaError unless the plan reads `input` once, and only filters and computes."""
    reads = 0
    for node in _nodes(plan):
        kind = str(node.get("type", ""))
        if kind.startswith("LOGICAL_"):
            _judge_operator(kind, node)
            reads += kind == "LOGICAL_GET"
        elif "expression_class" in node:
            _judge_expression(node)
        elif "qname" in node:
            _refuse("it has a part that is not known to be one of each row")
    if reads != 1:
        _refuse("it does not read 'input'" if not reads else "it reads 'input' more than once")


def _nodes(plan: object) -> Iterator[dict[str, Any]]:
    """Yield every object of the plan's JSON."""
    if isinstance(plan, dict):
        yield plan
        for value in plan.values():
            yield from _nodes(value)
    elif isinstance(plan, list):
        for value in plan:
            yield from _nodes(value)


def _judge_operator(kind: str, node: dict[str, Any]) -> None:
    if kind == "LOGICAL_GET":
        read = node.get("function_data") or {}
        if node.get("qname", {}).get("path") != ["seq_scan"] or {name: read.get(name) for name in _READ} != _READ:
            _refuse("it reads something else than 'input'")
    elif kind not in _OPERATORS:
        _refuse(_FORBIDDEN_OPERATORS.get(kind, f"DuckDB plans it with {kind}"))


def _judge_expression(node: dict[str, Any]) -> None:
    kind = node["expression_class"]
    if kind not in _EXPRESSIONS:
        _refuse("it has a parameter" if kind == "BOUND_PARAMETER" else f"DuckDB plans it with {kind}")
    path = _path(node)
    if kind == "BOUND_AGGREGATE":
        if not path or path[-1] not in _OF_LISTS:
            _refuse(f"the aggregate {path[-1] if path else '?'} is not known to depend on its values alone")
    elif kind == "BOUND_FUNCTION":
        if len(path) == 1 and node.get("is_operator"):
            return  # casts and comparisons
        if path[-1:] == [_SHADOW]:
            named = (
                one["value"].get("value") for one in _nodes(node) if one.get("expression_class") == "BOUND_CONSTANT"
            )
            _refuse_function(str(next(named, _SHADOW)))
        if path[:2] != ["system", "main"] or not _is_pure(path[-1], len(node.get("arguments", ()))):
            _refuse_function(path[-1] if path else "?")


def _path(node: dict[str, Any]) -> list[str]:
    """Return catalog, schema and name of a function, as far as the plan has them."""
    path: list[str] = node.get("qname", {}).get("path") or []
    return path


def _judge_text(query: str, around: frozenset[str] = frozenset()) -> None:
    """Raise SchemaError where the text calls a function that does not depend on its arguments alone, itself or by a
    macro. The plan does not show all of these: DuckDB puts ``now()`` in as a value where it is an argument of another
    function. ``around``: the macros that this is the text of."""
    for node in _nodes(_parsed(query)):
        if node.get("class") == "FUNCTION":
            _judge_call(node, around)


@cache
def _parsed(query: str) -> list[dict[str, Any]]:
    """Return the statements of a text, not bound. Raises SchemaError where it is no query."""
    row = _opened().execute("SELECT json_serialize_sql(?)", [query]).fetchone()
    answer: dict[str, Any] = json.loads(row[0] if row else "{}")
    if answer.get("error", True):
        _refuse("its text cannot be judged")
    statements: list[dict[str, Any]] = answer["statements"]
    return statements


def _judge_call(node: dict[str, Any], around: frozenset[str]) -> None:
    name = str(node.get("function_name") or (_path(node) or ["?"])[-1]).lower()
    arguments = [one.get("expression", one) for one in node.get("arguments") or node.get("children") or ()]
    if name in _stability() and not _is_pure(name, len(arguments)):
        _refuse_function(name)
    if name in _by_aggregate():
        aggregate = _text_of(arguments[1:2])
        if aggregate is None or aggregate.lower() not in _OF_LISTS:
            _refuse(f"the aggregate {aggregate or '?'} of {name} is not known to depend on its values alone")
    if name not in around:
        for macro in _macros().get(name, []):
            _judge_text(macro, around | {name})
    if name == "query":  # a function of tables, whose argument is a query itself
        text = _text_of(arguments) if len(arguments) == 1 else None
        if text is None:
            _refuse("it computes a query")
        _judge_text(text, around)


def _text_of(arguments: list[dict[str, Any]]) -> str | None:
    """Return the first argument, a constant text; None for one that is computed."""
    literal = arguments[0].get("literal") if arguments else None
    return str(literal["text"]) if literal and literal.get("kind") == "STRING" else None


def _refuse_function(name: str) -> NoReturn:
    _refuse(f"the function {name} does not depend on its arguments alone")


def _is_pure(function: str, arguments: int) -> bool:
    if function == "age":
        return arguments == 2  # with one argument it counts from now
    if function in _BY_TIME_ZONE:
        return True
    return function not in _IMPURE and _stability().get(function) == {"CONSISTENT"}


@cache
def _stability() -> dict[str, set[str]]:
    """Return the classes that DuckDB gives to the overloads of each of its scalar functions."""
    classes: dict[str, set[str]] = {}
    rows = _opened().execute(
        "SELECT function_name, coalesce(stability, '') FROM duckdb_functions() WHERE function_type = 'scalar'"
    )
    for name, stability in rows.fetchall():
        classes.setdefault(name, set()).add(stability)
    return classes


@cache
def _shadowed() -> list[tuple[str, str]]:
    """Return the functions without arguments that are not pure, as some may be called without parentheses, like
    columns; and SQL that calls each. The plan of a query is made where macros stand before them, which show in it."""
    rows = _opened().execute(
        "SELECT function_name, coalesce(macro_definition, '\"system\".main.\"' || function_name || '\"()') "
        "FROM duckdb_functions() WHERE len(parameters) = 0 AND function_type IN ('scalar', 'macro')"
    )
    return [(name, body) for name, body in rows.fetchall() if not _is_pure(name, 0)]


@cache
def _by_aggregate() -> frozenset[str]:
    """Return the functions of lists one of whose arguments is the name of an aggregate."""
    rows = _opened().execute(
        "SELECT function_name FROM duckdb_functions() WHERE function_type = 'scalar' AND list_contains(parameters, ?)",
        [_AGGREGATE],
    )
    return frozenset(name for (name,) in rows.fetchall())


@cache
def _macros() -> dict[str, list[str]]:
    """Return the definitions of DuckDB's own macros by name: queries that can be parsed."""
    texts: dict[str, list[str]] = {}
    rows = _opened().execute(
        "SELECT function_name, function_type, macro_definition FROM duckdb_functions() WHERE macro_definition <> ''"
    )
    for name, kind, text in rows.fetchall():
        texts.setdefault(name, []).append(text if kind == "table_macro" else f"SELECT {text}")
    return texts


def _refuse(why: str) -> NoReturn:
    raise stop("EOS_TRANSFORM_SQL.not_by_row", why=why)


class _Batch:
    """A table for DuckDB. Each time that a query reads it, it has the rows of ``batch`` at that time."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.batch: pa.RecordBatch | None = None

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        batches = [] if self.batch is None else [self.batch]
        return pa.RecordBatchReader.from_batches(self._schema, batches).__arrow_c_stream__(requested_schema)


class _Bound:
    """A query over batches of one schema, on a connection of its own, which gets locked. It is bound once: for a batch
    of some thousand records, that takes DuckDB as long as it takes to run it."""

    def __init__(self, query: str, schema: pa.Schema) -> None:
        self.connection = _opened()
        _lock(self.connection)
        self._input = _Batch(schema)
        self.connection.register(INPUT, self._input)
        self._rows = self.connection.sql(query)
        check_types(self._rows.columns, self._rows.types)
        self._may_be_unfit = may_be_unfit(self._rows.types)

    def run(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the query's rows for a batch of its schema. Raises duckdb.Error, and Unfit."""
        self._input.batch = batch
        try:
            rows = self._rows.to_arrow_table()
        finally:
            self._input.batch = None
        if self._may_be_unfit:
            check_values(rows)
        return rows


def _run(query: str, batch: pa.RecordBatch) -> pa.Table:
    """Run the query, in a confined process where a value may end it. Raises duckdb.Error, Unfit, and OutOfBounds."""
    if not _recurses(query, batch.schema) and not _is_long(batch):
        return _run_here(query, batch)
    return _confined(threading.get_ident()).call(_run_apart, query, batch.schema, batch.serialize())


def _run_apart(query: str, schema: pa.Schema, data: pa.Buffer) -> pa.Table:
    return _run_here(query, pa.ipc.read_record_batch(data, schema))


def _run_here(query: str, batch: pa.RecordBatch) -> pa.Table:
    import duckdb

    try:
        return _bound(threading.get_ident(), query, batch.schema).run(batch)
    except (duckdb.InternalException, duckdb.FatalException):
        _bound.cache_clear()  # such a connection answers nothing any more
        raise


@cache
def _recurses(query: str, schema: pa.Schema) -> bool:
    """Return whether DuckDB recurses into each level of a value, by the plan of the query."""
    plan = json.dumps(_plan(query, schema.empty_table()))
    return any(word in plan for word in _RECURSIVE)


def _is_long(batch: pa.RecordBatch) -> bool:
    """Return whether a value, or one within it, is so long that it may take too much."""
    return max(map(_longest, batch.columns), default=0) >= _LONG


def _longest(array: pa.Array) -> int:
    """Return the number of bytes of the longest text within a column."""
    type_ = array.type
    if pa.types.is_struct(type_):
        return max(map(_longest, array.flatten()), default=0)
    if pa.types.is_map(type_):
        return max(_longest(array.keys), _longest(array.items))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return _longest(array.flatten())
    if not any(is_one(type_) for is_one in _TEXTS):
        return 0
    longest: int | None = pc.max(pc.binary_length(array)).as_py()
    return longest or 0


@process_cache(maxsize=16)
def _confined(thread: int) -> Confined:
    """Return the confined process of one thread, as it answers one call at a time."""
    return Confined(CallLimits(4 * _memory_mib(), _CPU_S, _TIME_S))


@process_cache(maxsize=16)
def _bound(thread: int, query: str, schema: pa.Schema) -> _Bound:
    """Return the bound query of one thread, as DuckDB's connections are for one thread at a time."""
    return _Bound(query, schema)


def _opened() -> duckdb.DuckDBPyConnection:
    import duckdb

    return duckdb.connect(":memory:")


def _lock(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute(f"SET memory_limit = '{_memory_mib()}MiB'")
    for name, value in _SETTINGS.items():
        connection.execute(f"SET {name} = '{value}'")


def _memory_mib() -> int:
    """Return the MiB that a query may use: half of a Python process's limit."""
    return min(max(share_mib() // 2, _MIB[0]), _MIB[1])


def _pieces(query: str, batch: pa.RecordBatch, first: int, failed: dict[int, str]) -> list[pa.Table]:
    """Run the query on a batch whose first record has the index ``first``. Where the query fails, the batch is cut
    again and again, until the failing records are isolated."""
    import duckdb

    of_records = duckdb.DataError, duckdb.ProgrammingError, duckdb.NotSupportedError, duckdb.OutOfMemoryException
    try:
        return [_run(query, batch)]
    except (duckdb.Error, UnicodeDecodeError, Unfit, OutOfBounds) as error:
        # Of a value, or of one record that takes more than a query may; other errors are no record's fault. An error
        # without a class of its own is one of a value, too, such as that of `list_reduce` for an empty list.
        if isinstance(error, duckdb.DatabaseError) and not isinstance(error, of_records):
            raise
        if batch.num_rows <= 1:
            failed[first] = first_line(error)
            return [_run(query, batch.slice(0, 0))]
        cuts = _cuts(batch, alone=isinstance(error, OutOfBounds))
    ends = [*cuts[1:], batch.num_rows]
    pieces = ((begin, batch.slice(begin, end - begin)) for begin, end in zip(cuts, ends, strict=True))
    return [rows for begin, piece in pieces for rows in _pieces(query, piece, first + begin, failed)]


def _cuts(batch: pa.RecordBatch, *, alone: bool) -> list[int]:
    """Return where the pieces of a batch begin: its halves, or ``alone`` each record with a long value, as it is the
    one for which a process ends, and takes all of the time until then."""
    long = [place for place in range(batch.num_rows) if alone and _is_long(batch.slice(place, 1))]
    cuts = {0, *long, *(place + 1 for place in long)} - {batch.num_rows}
    return sorted(cuts) if len(cuts) > 1 else [0, batch.num_rows // 2]


def first_line(error: object) -> str:
    """Return DuckDB's own sentence, without the query's text below it."""
    if isinstance(error, UnicodeDecodeError):  # of a sentence with a record's text, which DuckDB cuts anywhere
        error = error.object.decode(errors="replace")
    return str(error).strip().partition("\n")[0].rstrip(".")[:300]
