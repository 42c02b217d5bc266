"""Columns of Spark that parse the text of a record into fields, or fail with an error of conditions.toml.

Spark's JSON parser takes the first value and ignores the rest of the text; its CSV parser takes the rest of a text for
a field whose quote is not closed. So a record is parsed between marks that its writer cannot know, and it is
well-formed only if they come out where they were put.
"""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Collection, Mapping

from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, StringType, StructField, StructType

from spark_eos.errors import HINT, texts_of

from .exact import Texts, marked, separators_of
from .values import invalid

#: The column of the parsed fields: a struct, or null where the text does not fit.
PARSED = "_parsed"
_CORRUPT, _RAW, _ALL = "_malformed", "_raw", "all"
_RESERVED = (PARSED, _CORRUPT, _RAW)
_MARK_LENGTH = 24
#: Escapes of JSON, except those of half a character.
_WHOLE = r"\\(?:[^u]|u(?![dD][89a-fA-F])|u[dD][89abAB]..\\u[dD][c-fC-F])"
#: Univocity, which is Spark's parser of CSV, fails with an error of its own at 20,480.
_MOST_COLUMNS = 20_000


def first_line(error: BaseException) -> str:
    """Return Spark's message, without the query's plan and the JVM's stack."""
    return str(error).strip().partition("\n")[0].rstrip(".;")


def raised(entry: str, /, **columns: Column | str) -> Column:
    """Return a column whose evaluation fails with the error of this entry. Texts are filled in by ``columns``: a column
    by its value, NULL for null."""
    condition, (message, hint) = entry.partition(".")[0], texts_of(entry)
    words = []
    for text, name, _, _ in string.Formatter().parse(f"[{condition}] {message}{HINT}{hint}"):
        words.append(F.lit(text))
        if name is not None:
            value = columns[name]
            words.append(F.lit(value) if isinstance(value, str) else F.coalesce(value.cast("string"), F.lit("NULL")))
    return F.raise_error(F.concat(*words))


def in_filter(error: Column) -> Column:
    """Return a column of `raised` as a condition of a filter that the optimizer neither moves nor merges, so that no
    filter of the user's comes first and drops a row unseen.

    rand() does this, if the optimizer cannot know the outcome: rand() < 0 is false, and the error would be removed.
    """
    return error.isNull() & (F.rand() < 0.5)


_DDL = "Use DDL: id BIGINT, name STRING"


def struct_of(ddl: str, key: str, taken: Collection[str]) -> StructType:
    """Return a schema of the config file, at this key. ``taken``: names that no field may have. Raises ConfigError."""
    try:
        schema = StructType.fromDDL(ddl)
    except ParseException as error:
        raise invalid(key, f"is no schema: {first_line(error)}", _DDL) from None
    if not isinstance(schema, StructType):
        raise invalid(key, f"is one type, {schema.simpleString()}, but names no fields", _DDL)
    inexact = re.search(r'"(?:type|(?:element|key|value)Type)":"(variant|(?:var)?char)\b', schema.json())
    if inexact:
        remedy = "Make it STRING, and use parse_json or length in the transform"
        raise invalid(key, f"has a field of type {inexact[1].upper()}, which may differ from its text", remedy)
    clash = {name.lower() for name in schema.names} & {name.lower() for name in (*taken, *_RESERVED)}
    if clash:
        remedy = (
            "Use other names. To rename a field, parse the value in SQL: 'format: string', or 'format: text' of files"
        )
        raise invalid(key, f"has names of columns that the rows have already: {', '.join(sorted(clash))}", remedy)
    return schema


def with_fields(rows: DataFrame, text: Column, form: str, schema: str, options: Mapping[str, str]) -> DataFrame:
    """Add the column `PARSED`. ``form`` is ``json`` or ``csv``, ``schema`` is DDL, ``options`` are for Spark's parser.
    The column is also null where the text is null, or not UTF-8, or where a value would differ from its text."""
    # Without options, the optimizer would parse used fields only.
    options = dict(options) | {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    options["enableDateTimeParsingFallback"] = "false"  # which takes other formats, too
    # Bytes that are no text would be replaced by others.
    text = F.when(F.is_valid_utf8(text), text)
    kinds = StructType.fromDDL(schema)
    assert isinstance(kinds, StructType)
    texts = Texts(options, f"~{_mark()}" if form == "json" else "", separators_of(rows.sparkSession, options))
    raw, fits, fields = _json(text, kinds, texts) if form == "json" else _csv(text, kinds, texts)
    fits = F.col(_RAW)[_CORRUPT].isNull() & fits
    rows = rows.withColumn(_RAW, raw).withColumn(PARSED, F.when(fits, texts.value(fields, kinds)))
    value = F.col(PARSED)
    return rows.withColumn(PARSED, F.when(~texts.is_lost(fields, value, kinds), value)).drop(_RAW)


def _json(text: Column, schema: StructType, texts: Texts) -> tuple[Column, Column, Column]:
    """Parse the record as the second of three values in an array. A text that ends the array does so before the second
    mark, and more than one value makes the array longer."""
    mark = _mark()
    fields = [StructField(each.name, texts.parsed_as(each.dataType)) for each in schema.fields]
    values = ArrayType(StructType([*fields, StructField(mark, BooleanType())]))
    escape = F.lit(r"\u")
    halves = F.contains(text, escape) & F.contains(F.regexp_replace(text, _WHOLE, ""), escape)
    text = F.when(~halves, text)  # else Spark makes each a ?
    text = marked(text, texts.mark, texts.options)
    whole = F.concat(F.lit(f'{{"{_ALL}":[{{"{mark}":true}},'), text, F.lit(f',{{"{mark}":true}}]}}'))
    raw = F.from_json(whole, StructType().add(_ALL, values).add(_CORRUPT, StringType()), texts.parser_options)
    groups = F.col(_RAW)[_ALL]
    first, value, last = (F.get(groups, F.lit(n)) for n in range(3))
    return raw, (F.size(groups) == 3) & first[mark] & last[mark] & value.isNotNull(), value


def _csv(text: Column, schema: StructType, texts: Texts) -> tuple[Column, Column, Column]:
    """Return the record with one field more at its end, which is swallowed where a quote is not closed."""
    options = texts.parser_options
    delimiter = options.get("delimiter", ",")
    quote = options.get("quote", '"')
    options.setdefault("escape", quote)
    mark = _mark(delimiter + quote)
    whole = F.concat(text, F.lit(delimiter + mark))
    delimiters = F.length(text) - F.length(F.replace(text, F.lit(delimiter), F.lit("")))
    # Univocity drops a NUL behind an escaped quote: then the row would differ from the record.
    exact = ~(F.contains(text, F.lit("\0")) & F.contains(text, F.lit(quote)))
    parsable = F.when(exact & ((F.length(text) < _MOST_COLUMNS) | (delimiters < _MOST_COLUMNS)), whole)
    fields = [(each.name.replace("`", "``"), texts.parsed_as(each.dataType)) for each in schema.fields]
    ddl = "".join(f"`{name}` {kind.simpleString()}, " for name, kind in fields)
    raw = F.from_csv(parsable, f"{ddl}`{mark}` STRING, {_CORRUPT} STRING", options)
    return raw, F.col(_RAW)[mark] == mark, F.col(_RAW)


def _mark(special: str = "") -> str:
    """Return an unguessable text without special characters."""
    letters = sorted(set(string.ascii_lowercase) - set(special))
    return "".join(secrets.choice(letters) for _ in range(_MARK_LENGTH))
