"""Readers of CSV and JSON lines that share nothing with the package: one character after the other, or Python's own."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import dataclass

from spark_eos.pipelines.files.text import TextForm

#: What texts are put together from, to be read as CSV.
CSV_PIECES = [
    *("a", "1", "b,c", " ", "\t", '"', '"', '""', ",", ",", ";", "'", "\\"),
    *("\n", "\n", "\r", "\r\n", '"x"', ',"', '",', '"\n', '6" pipe', "1,2\n", '1,"x\ny"\n'),
    *("\x00", "\x0b", "\x0c", "\x1c", "\x85", "\xa0", "\u2028", "\u3000", "\U0001f600"),
]
#: The same to be read as lines of JSON.
JSON_PIECES = [
    *('{"id":1,"name":"a"}', '{"id":2}', "{}", '{"id":', "{", "}", "[", "]", ",", ":", '"', '"id"', '"name"'),
    *("1", "null", "x", " ", "\t", "\n", "\n", "\n", "\r", "\r\n"),
    *("\x00", "\x0b", "\x0c", "\x85", "\xa0", "\u2028", "\u3000", "\ufeff"),
    *("//", "\\", "]}", "}]}", '{"id":1}]}', '{"name":[1,2]}', '{"name":{"a":"]}"}}', '{"id":"1"}', '{"id":1.0}'),
    '{"id":3000000000}',
]


@dataclass(frozen=True)
class Record:
    """``line``: the number of its first line, from 1."""

    text: str
    line: int


def csv_records(text: str, form: TextForm) -> list[Record] | str:
    """The records of a CSV text, or why it is not clear where one ends."""
    quote, delimiter = form.quote.decode(), form.delimiter.decode()
    records: list[Record] = []
    begin, first = 0, 1
    at, line = 0, 1
    while at < len(text):
        if form.skip_space:
            while at < len(text) and text[at] <= " " and text[at] not in delimiter + quote + "\r\n":
                at += 1
        if at < len(text) and text[at] == quote:
            end = _closing(text, at, quote, form.backslash)
            if end is None:
                return "not closed"
            breaks = _line_breaks(text[at:end])
            at, line = end, line + breaks
            after = text[at:].lstrip(" \t".replace(delimiter, ""))[:1]
            if breaks and after not in ("", delimiter, "\r", "\n"):
                return "text follows"
        while at < len(text) and text[at] not in delimiter + "\r\n":
            at += 1
        if at == len(text) or text[at] in "\r\n":
            records.append(Record(text[begin:at], first))
            at += 2 if text[at : at + 2] == "\r\n" else 1
            line += 1
            begin, first = at, line
        else:
            at += 1
    if begin < len(text):  # the last delimiter is the last character
        records.append(Record(text[begin:], first))
    return records


def _closing(text: str, at: int, quote: str, backslash: bool) -> int | None:
    """Where the field whose quote is there ends, if it does."""
    at += 1
    while at < len(text):
        if backslash and text[at] == "\\":
            at += 2
        elif text[at] != quote:
            at += 1
        elif not backslash and text[at : at + 2] == quote * 2:
            at += 2
        else:
            return at + 1
    return None


def _line_breaks(text: str) -> int:
    return len(re.findall("\r\n|\r|\n", text))


def lines(text: str) -> list[Record]:
    """All lines."""
    found = re.split("\r\n|\r|\n", text)
    return [Record(line, number) for number, line in enumerate(found if found[-1] else found[:-1], 1)]


def csv_fields(record: str, delimiter: str) -> list[str] | None:
    """The fields of a record as Python's csv has them; None unless all of it is plainly CSV."""
    try:
        rows = list(csv.reader(io.StringIO(record, newline=""), delimiter=delimiter, strict=True))
    except csv.Error:
        return None
    return rows[0] if len(rows) == 1 else None


def json_object(record: str) -> dict[str, object] | None:
    """The one object that the record is; None if it is anything else."""
    try:
        value = json.loads(record, parse_constant=_refused)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _refused(constant: str) -> None:
    raise ValueError(constant)
