"""Bytes of a text file to records, block by block, as Arrow columns. No I/O, and no Python per record.

A record is a line without its line break. In CSV, a line break between quotes belongs to the record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: A record may be so long. More has no end: the rest of the file, behind a quote that is not closed.
LONGEST_BYTES = 16 << 20

_BOM = b"\xef\xbb\xbf"
_NEWLINE = 10
_QUOTED_BY_BACKSLASH = re.compile(rb"\\.", re.DOTALL)


class BadText(ValueError):
    """Why the file is not a text of this form; ``line`` is the number of the record's first line, from 1."""

    def __init__(self, why: str, line: int) -> None:
        super().__init__(why)
        self.line = line


@dataclass(frozen=True)
class TextForm:
    """``quote``: between two of these, a line break is part of the record; empty where it never is. ``backslash``: a
    backslash escapes the byte after it, so that a quote after a backslash is literal."""

    quote: bytes = b""
    backslash: bool = False


def records(blocks: Iterable[bytes], form: TextForm = TextForm()) -> Iterator[pa.RecordBatch]:
    """The records: ``value`` as text, and ``line``, the number of its first line, from 1. Raises BadText.

    What follows the last line break is a record unless it is empty. A byte order mark is left out.
    """
    rest, line = b"", 1
    first = True
    for block in blocks:
        data = rest + block
        if first and len(data) >= len(_BOM):
            data, first = data.removeprefix(_BOM), False
        batch, rest, line = _cut(data, line, form)
        if batch is not None:
            first = False
            yield batch
        if len(rest) > LONGEST_BYTES:
            raise BadText(f"a record has no end within {LONGEST_BYTES >> 20} MiB", line)
    if first:
        rest = rest.removeprefix(_BOM)
    if rest:
        batch, rest, line = _cut(rest + b"\n", line, form)
        if rest or batch is None:
            raise BadText("a quote is not closed before the end of the file", line)
        yield batch


def _cut(data: bytes, line: int, form: TextForm) -> tuple[pa.RecordBatch | None, bytes, int]:
    """The whole records of some bytes that begin with one, what is left, and the line where that begins."""
    breaks = np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE)
    ends = np.flatnonzero(_outside(data, breaks, form))
    if not len(ends):
        return None, data, line
    stops = breaks[ends] + 1
    offsets = np.concatenate(([0], stops)).astype(np.int32)
    text = pa.Array.from_buffers(pa.string(), len(stops), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    first_lines = line + np.concatenate(([0], ends[:-1] + 1))
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        raise BadText("it is not UTF-8", int(first_lines[_first_bad(data, offsets)])) from None
    batch = pa.record_batch({"value": _without_breaks(text, data), "line": pa.array(first_lines, pa.int64())})
    return batch, data[int(stops[-1]) :], line + int(ends[-1]) + 1


def _outside(data: bytes, breaks: np.ndarray, form: TextForm) -> np.ndarray:
    """Which of the line breaks end a record: those before which the number of quotes is even."""
    if not form.quote or form.quote not in data:
        return np.ones(len(breaks), bool)
    plain = _QUOTED_BY_BACKSLASH.sub(b"  ", data) if form.backslash else data
    quotes = np.flatnonzero(np.frombuffer(plain, np.uint8) == form.quote[0])
    outside: np.ndarray = np.searchsorted(quotes, breaks) % 2 == 0
    return outside


def _without_breaks(text: pa.StringArray, data: bytes) -> pa.StringArray:
    """Without the line break at the end of each record, which may be of one byte or of two."""
    cut = pc.utf8_slice_codeunits(text, 0, -1)
    if b"\r\n" in data:
        cut = pc.if_else(pc.ends_with(cut, "\r"), pc.utf8_slice_codeunits(cut, 0, -1), cut)
    return cut


def _first_bad(data: bytes, offsets: np.ndarray) -> int:
    for index in range(len(offsets) - 1):
        try:
            data[offsets[index] : offsets[index + 1]].decode()
        except UnicodeDecodeError:
            return index
    return 0
