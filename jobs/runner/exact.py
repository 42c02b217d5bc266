"""Parses texts of CSV and JSON to values of a schema's types that equal the text, or else null.

Spark's own parsers round decimals, drop commas and fractions of microseconds, wrap small integers, and accept invalid
dates. So each field is parsed as a text, whose grammar is checked before Spark's strict cast makes it a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_eos.pipelines.tables.keys import DAYS, MICROSECONDS

#: Options of Spark's parsers for texts that only these can read.
_FORMATS: dict[type[DataType], str] = {
    DateType: "dateFormat",
    TimestampType: "timestampFormat",
    TimestampNTZType: "timestampNTZFormat",
}
_INTEGER = r"^[+-]?[0-9]+$"
_NUMBER = r"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$"
_ZERO = r"^[+-]?[0.]+([eE].*)?$"
_SPECIAL = r"^(NaN|[+-]?(Infinity|INF))$"
_EXPONENT = r"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)[eE][+-]?[0-9]{1,4}$"
#: Years 1 to 9999.
_DATE = "(?!0000)[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
_TIME = "[T ][0-9]{1,2}:[0-9]{1,2}(?::[0-9]{1,2}(?:[.][0-9]{1,6}0*)?)?"
_ZONE = "[A-Za-z0-9:/_+-]"
#: Letters of a format that mean a zone.
_ZONE_LETTERS = re.compile("[VzOXxZ]")
#: Seconds since 1970 that can be a timestamp, by their number of digits.
_SECONDS = r"^([0-9]{1,11}|-[0-9]{1,10})$"
#: A value of JSON without quotes that is no null.
_JSON_VALUE = r"(?:-?(?:%s)(?:[.][0-9]+)?(?:[eE][+-]?[0-9]+)?|NaN|[+-]?(?:INF|Infinity)|true|false)"
#: Tokens that may be before such a value: strings, null, names without quotes, and separators.
_JSON_OTHERS = (
    r"""(?:[\s,:\[\]{}]|"[^"\\]*+(?:\\[\s\S][^"\\]*+)*+"|'[^'\\]*+(?:\\[\s\S][^'\\]*+)*+'|"""
    r"""(?!%s\s*[,\]}])[^\s"',:\[\]{}]++)*+"""
)


def marked(text: Column, mark: str, options: Mapping[str, str]) -> Column:
    """Return JSON with its numbers and booleans as strings that begin with the mark, so that parsers keep them as they
    are."""
    zeros = options.get("allowNumericLeadingZeros", "false").lower() == "true"
    value = _JSON_VALUE % ("[0-9]+" if zeros else "0|[1-9][0-9]*")
    others = _JSON_OTHERS % value
    return F.regexp_replace(text, F.lit(rf"\G({others})({value})"), F.lit(f'$1"{mark}$2"'))


@dataclass(frozen=True)
class Texts:
    """Syntax of the values of a record. ``options``: of Spark's parser; ``mark``: with which values of JSON begin
    that were written without quotes; ``separators``: of thousands, if there may be any, and of fractions."""

    options: Mapping[str, str]
    mark: str = ""
    separators: tuple[str, str] = ("", ".")

    def parsed_as(self, kind: DataType) -> DataType:
        """Return the type for Spark's parser: texts, but where only the parser knows the format."""
        if isinstance(kind, StructType):
            return StructType([StructField(field.name, self.parsed_as(field.dataType)) for field in kind.fields])
        if isinstance(kind, ArrayType):
            return ArrayType(self.parsed_as(kind.elementType))
        if isinstance(kind, MapType):
            return MapType(kind.keyType, self.parsed_as(kind.valueType))
        return kind if self._is_parsed(kind) else StringType()

    @property
    def parser_options(self) -> dict[str, str]:
        """Return the options for Spark's parser. Where the format of timestamps has no zone, it parses them in UTC,
        which skips no local time."""
        return {**self.options, **({"timeZone": "UTC"} if self._is_by_clock else {})}

    @property
    def _is_by_clock(self) -> bool:
        """True if timestamps have a format without a zone."""
        pattern = self.options.get(_FORMATS[TimestampType])
        return pattern is not None and not _ZONE_LETTERS.search(re.sub("'[^']*'", "", pattern))

    def _is_parsed(self, kind: DataType) -> bool:
        return isinstance(kind, BinaryType) or _FORMATS.get(type(kind), "") in self.options

    def value(self, text: Column, kind: DataType) -> Column:
        """Return the value of a text that was parsed by `parsed_as`; each invalid part is null."""
        if isinstance(kind, StructType):
            fields = [self.value(text[field.name], field.dataType).alias(field.name) for field in kind.fields]
            return F.when(text.isNotNull(), F.struct(*fields))
        if isinstance(kind, ArrayType):
            return F.transform(text, lambda each: self.value(each, kind.elementType))
        if isinstance(kind, MapType):
            return F.transform_values(text, lambda _, each: self.value(each, kind.valueType))
        return _with_year(self._parsed(text, kind) if self._is_parsed(kind) else self._leaf(text, kind), kind)

    def is_lost(self, text: Column, value: Column, kind: DataType) -> Column:
        """Return a column that is true where a part of the parsed value is null."""
        if isinstance(kind, StructType):
            parts = [self.is_lost(text[each.name], value[each.name], each.dataType) for each in kind.fields]
            return F.coalesce(reduce(or_, parts, F.lit(False)), F.lit(False))
        if isinstance(kind, MapType):
            return self.is_lost(F.map_values(text), F.map_values(value), ArrayType(kind.valueType))
        if isinstance(kind, ArrayType):
            each = F.zip_with(text, value, lambda own, made: self.is_lost(own, made, kind.elementType))
            return F.coalesce(F.exists(each, lambda lost: lost), text.isNotNull() & value.isNull())
        return text.isNotNull() & value.isNull()

    def _parsed(self, value: Column, kind: DataType) -> Column:
        """Return the parsed time in the session's time zone; null for a local time that it skips."""
        if not (isinstance(kind, TimestampType) and self._is_by_clock):
            return value
        moment = F.to_utc_timestamp(value, F.current_timezone())
        return F.when(F.from_utc_timestamp(moment, F.current_timezone()) == value, moment)

    def _leaf(self, text: Column, kind: DataType) -> Column:
        if isinstance(kind, StringType):
            return self._string(text).cast(kind)
        if isinstance(kind, TimestampType):
            return self._timestamp(text)
        if isinstance(kind, DateType):
            return _if(text.rlike(f"^{_DATE}$"), text, kind)
        if isinstance(kind, TimestampNTZType):
            return _if(text.rlike(f"^{_DATE}({_TIME})?$"), text, kind)
        if isinstance(kind, BooleanType):
            return _if(self._token(text).rlike("(?i)^(true|false)$"), self._token(text), kind)
        if isinstance(kind, IntegralType):
            return _if(self._token(text).rlike(_INTEGER), self._token(text), kind)
        if isinstance(kind, FloatType | DoubleType):
            return self._floating(text, kind)
        if isinstance(kind, DecimalType):
            number = self._number(text)
            return _if(_is_exact(number, kind), number, kind)
        value = text.try_cast(kind)
        return F.when(value.cast("string") == text, value)

    def _token(self, text: Column) -> Column:
        """Return a text that is written without quotes in JSON; in CSV, any text."""
        return (
            F.when(text.startswith(self.mark), F.substring(text, len(self.mark) + 1, 2**31 - 1)) if self.mark else text
        )

    def _string(self, text: Column) -> Column:
        if not self.mark:
            return text
        within = F.regexp_replace(text, F.lit(f'"{self.mark}([^"]*)"'), F.lit("$1"))
        return F.coalesce(self._token(text), F.when(text.contains(self.mark), within).otherwise(text))

    def _number(self, text: Column) -> Column:
        """Return the text of a number with a decimal point and without thousands separators; null where these are
        misplaced."""
        thousands, point = self.separators
        if (thousands, point) == ("", "."):
            return F.coalesce(self._token(text), text)
        grouped = rf"^[+-]?([0-9]+|[0-9]{{1,3}}([{thousands}][0-9]{{3}})+)([{point}][0-9]*)?$"
        plain = F.replace(F.replace(text, F.lit(thousands), F.lit("")), F.lit(point), F.lit("."))
        number = F.when(text.rlike(grouped), plain)
        return F.coalesce(self._token(text), number) if self.mark else number

    def _floating(self, text: Column, kind: DataType) -> Column:
        number = self._token(text) if self.mark else self._number(text)
        value = number.try_cast(kind)
        finite = number.rlike(_NUMBER) & (F.abs(value) < F.lit(float("inf"))) & ((value != 0) | number.rlike(_ZERO))
        special = F.coalesce(self._token(text), text)
        names = {"nanValue": "NaN", "positiveInf": "Inf", "negativeInf": "-Inf"}
        cases = F.when(finite, value).when(special.rlike(_SPECIAL), special.try_cast(kind))
        if not self.mark:
            for (name, default), meant in zip(names.items(), ("NaN", "Infinity", "-Infinity"), strict=True):
                cases = F.when(text == self.options.get(name, default), F.lit(meant).cast(kind)).otherwise(cases)
        return cases

    def _timestamp(self, text: Column) -> Column:
        """Return a timestamp; null for a local time that the session's or the named time zone skips."""
        kind = TimestampType()
        value, wall = text.try_cast(kind), text.rlike(f"^{_DATE}({_TIME})?$")
        exists = text.try_cast(TimestampNTZType()) == value.cast(TimestampNTZType())
        named = f"^({_DATE}{_TIME}) ?([A-Za-z]{_ZONE}*)$"
        clock, zone = F.concat(F.regexp_extract(text, named, 1), F.lit("Z")), F.regexp_extract(text, named, 2)
        in_zone = F.from_utc_timestamp(value, zone) == clock.try_cast(kind)
        cases = F.when(wall, F.when(exists, value)).when(text.rlike(f"^{_DATE}{_TIME} ?[+-]{_ZONE}*$"), value)
        cases = cases.when(text.rlike(named), F.when(in_zone, value))
        if not self.mark:
            return cases
        token = self._token(text)
        return F.when(token.rlike(_SECONDS), F.timestamp_seconds(token.try_cast("bigint"))).otherwise(cases)


def _with_year(value: Column, kind: DataType) -> Column:
    """Return the value; null for a date or timestamp before the year 1 or after 9999, which readers of tables do not
    support."""
    if isinstance(kind, DateType):
        return F.when(F.unix_date(value).between(*DAYS), value)
    if isinstance(kind, TimestampNTZType):
        first, last = (F.lit(text).cast(kind) for text in ("0001-01-01", "9999-12-31 23:59:59.999999"))
        return F.when(value.between(first, last), value)
    if isinstance(kind, TimestampType):
        return F.when(F.unix_micros(value).between(*MICROSECONDS), value)
    return value


def _if(fits: Column, text: Column, kind: DataType) -> Column:
    return F.when(fits, text.try_cast(kind))


def _is_exact(number: Column, kind: DecimalType) -> Column:
    """Return a column that is true where a number has no more digits behind its point than the type."""
    plain = rf"^[+-]?[0-9]*([.][0-9]{{0,{kind.scale}}}0*)?$"
    behind = F.length(F.regexp_extract(number, "[.]([0-9]*)", 1))
    exponent = F.regexp_extract(number, "[eE](.*)$", 1).try_cast("int")
    return number.rlike(plain) | (number.rlike(_EXPONENT) & (behind - exponent <= kind.scale))


def separators_of(spark: SparkSession, options: Mapping[str, str]) -> tuple[str, str]:
    """Return the separators of thousands and of fractions in the option ``locale``; without it, there are no
    thousands."""
    if "locale" not in options:
        return "", "."
    java = spark._jvm  # only Java knows its locales' separators
    assert java is not None
    symbols = java.java.text.DecimalFormatSymbols.getInstance(java.java.util.Locale.forLanguageTag(options["locale"]))
    return symbols.getGroupingSeparator(), symbols.getDecimalSeparator()
