"""Bytes of a text file to records, block by block, as Arrow columns. No I/O, and no Python per record.

A record is a line without its line break, which is a line feed, a carriage return, or both. In CSV, a line break within
a quoted field belongs to the record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

#: The longest record. A longer one is taken for the rest of the file after an unclosed quote.
LONGEST_BYTES = 16 << 20

_BOM = b"\xef\xbb\xbf"
_LF, _CR = b"\n\r"


class BadText(ValueError):
    """The file is not text of this form; ``line``: the number of the record's first line, from 1."""

    def __init__(self, why: str, line: int) -> None:
        super().__init__(why)
        self.line = line


@dataclass(frozen=True)
class TextForm:
    """Quoting of fields: each of ``quote`` and ``delimiter`` is one byte, and an empty ``quote`` makes each line a
    record. ``backslash``: within quotes, a backslash escapes the byte after it; otherwise a quote is escaped by another
    one. ``skip_space``: white space between a delimiter and a quote does not count.

    A quote is only special where a field begins. Elsewhere it is a character like others, as it is to Spark.
    """

    quote: bytes = b""
    backslash: bool = False
    delimiter: bytes = b","
    skip_space: bool = False

    @cached_property
    def around(self) -> np.ndarray:
        """For each byte value, whether it may be next to a quoted field, or is a quote: 256 bool."""
        return np.isin(np.arange(256), list(self.delimiter + self.quote + b"\r\n"))

    @cached_property
    def quoted(self) -> re.Pattern[bytes]:
        """Pattern of a quoted field and the text before it (1), its closing quote (2), if any, and whether the field
        ends there (3)."""
        quote, border = re.escape(self.quote), rb"[%s\r\n]" % re.escape(self.delimiter)
        space = b"".join(rb"\x%02x" % n for n in range(33) if n not in self.delimiter + self.quote + b"\r\n")
        before = rb"[%s]*+" % space if self.skip_space else b""
        after = b"".join(rb"\x%02x" % n for n in b" \t" if n not in self.delimiter)
        plain = rb"[^%s\\]*+" % quote if self.backslash else rb"[^%s]*+" % quote
        escaped = rb"\\." if self.backslash else quote * 2
        ends = rb"(%s|\\?\Z)" % quote if self.backslash else rb"(%s|\Z)" % quote
        inner = rb"(%s%s(?:%s%s)*+%s)" % (quote, plain, escaped, plain, ends)
        return re.compile(rb"%s%s%s([%s]*+(?:(?=%s)|\Z))?" % (border, before, inner, after, border), re.DOTALL)


def records(blocks: Iterable[bytes], form: TextForm = TextForm()) -> Iterator[pa.RecordBatch]:
    """Yield the records: columns ``value``, text, and ``line``, the number of its first line, from 1. Raises BadText.

    Text behind the last line break is a record unless it is empty. A byte order mark is left out.
    """
    rest, line = b"", 1
    first = True
    for block in blocks:
        data = rest + block
        if first and len(data) >= len(_BOM):
            data, first = data.removeprefix(_BOM), False
        batch, rest, line = _cut(data, line, form, last=False)
        if batch is not None:
            first = False
            yield batch
        if len(rest) > LONGEST_BYTES:
            raise BadText(f"a record has no end within {LONGEST_BYTES >> 20} MiB", line)
    if first:
        rest = rest.removeprefix(_BOM)
    if rest:
        batch, rest, line = _cut(rest, line, form, last=True)
        if batch is not None:
            yield batch
        if rest:
            raise BadText("a quote is not closed before the end of the file", line)


def _cut(data: bytes, line: int, form: TextForm, *, last: bool) -> tuple[pa.RecordBatch | None, bytes, int]:
    """Return the complete records of some bytes that begin with one, the bytes that are left, and the line where these
    begin. ``last``: the file ends here."""
    breaks, nexts = _breaks(data, last)
    ends = np.flatnonzero(_outside(data, breaks, form, line))
    if not len(ends):
        return None, data, line
    stops = nexts[ends]
    # Records and line breaks in turn, so that each byte is in one of them.
    offsets = np.empty(2 * len(ends) + 1, np.int32)
    offsets[0], offsets[1::2], offsets[2::2] = 0, breaks[ends], stops
    text = pa.Array.from_buffers(pa.string(), 2 * len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    first_lines = line + np.concatenate(([0], ends[:-1] + 1))
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        raise BadText("it is not UTF-8", int(first_lines[_first_bad(data, offsets)])) from None
    values = text.take(pa.array(np.arange(0, 2 * len(ends), 2)))
    batch = pa.record_batch({"value": values, "line": pa.array(first_lines, pa.int64())})
    return batch, data[int(stops[-1]) :], line + int(ends[-1]) + 1


def _breaks(data: bytes, last: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the offsets at which each line ends, and at which the next one begins."""
    octets = np.frombuffer(data, np.uint8)
    if b"\r" not in data:
        breaks = np.flatnonzero(octets == _LF)
        nexts = breaks + 1
    else:
        ends = np.flatnonzero((octets == _LF) | (octets == _CR))
        kinds = octets[ends]
        both = (kinds[:-1] == _CR) & (kinds[1:] == _LF) & (ends[1:] == ends[:-1] + 1)
        first = np.concatenate(([True], ~both))
        breaks = ends[first]
        nexts = breaks + 1 + np.concatenate((both, [False]))[first]
        if not last and data.endswith(b"\r"):  # a line feed may follow
            breaks, nexts = breaks[:-1], nexts[:-1]
    if last and not data.endswith((b"\n", b"\r")):
        breaks, nexts = np.append(breaks, len(data)), np.append(nexts, len(data))
    return breaks, nexts


def _outside(data: bytes, breaks: np.ndarray, form: TextForm, line: int) -> np.ndarray:
    """Return for each line break whether it is outside quoted fields, and so ends a record. Raises BadText."""
    if not form.quote or form.quote not in data:
        return np.ones(len(breaks), bool)
    spans = None if form.backslash else _paired(data, form)
    begins, ends = _matched(data, breaks, form, line) if spans is None else spans
    if not len(begins):
        return np.ones(len(breaks), bool)
    before = np.searchsorted(begins, breaks) - 1
    outside: np.ndarray = (before < 0) | (breaks >= ends[before])
    return outside


def _paired(data: bytes, form: TextForm) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the begins and ends of the quoted fields, in parts where quotes are doubled in them; None unless each
    quote opens or closes a field, or is doubled, so that every second one closes."""
    octets = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(octets == form.quote[0])
    begins, ends = quotes[0::2], quotes[1::2]
    fits = (
        form.around[octets[begins[begins > 0] - 1]].all() and form.around[octets[ends[ends < len(data) - 1] + 1]].all()
    )
    if not fits:
        return None
    return begins, ends if len(ends) == len(begins) else np.append(ends, len(data) + 1)


def _matched(data: bytes, breaks: np.ndarray, form: TextForm, line: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the begins and ends of the quoted fields. Raises BadText where it is not clear which line breaks are
    quoted."""
    begins, ends = [], []
    for match in form.quoted.finditer(b"\n" + data):
        begin, end = match.start(1) - 1, match.end(1) - 1
        closed = match[2] == form.quote
        if closed and match[3] is None:  # a quote in mid-field, or the first one was none that opens
            lines = np.searchsorted(breaks, (begin, end))
            if lines[0] != lines[1]:
                raise BadText("text follows the closing quote of a field with line breaks", line + int(lines[0]))
            continue
        begins.append(begin)
        ends.append(end if closed else len(data) + 1)
    return np.array(begins, np.int64), np.array(ends, np.int64)


def _first_bad(data: bytes, offsets: np.ndarray) -> int:
    for index in range(0, len(offsets) - 1, 2):
        try:
            data[offsets[index] : offsets[index + 1]].decode()
        except UnicodeDecodeError:
            return index // 2
    return 0
