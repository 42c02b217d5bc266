"""Text files are cut into records wherever their blocks end."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.pipelines.files.text import BadText, TextForm, records
from tests.support.judges.text_readers import CSV_PIECES, csv_records

LINES, CSV = TextForm(), TextForm(b'"')


def blocks(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def cut(data: bytes, size: int = 1000, form: TextForm = LINES) -> list[tuple[str, int]]:
    found = []
    for batch in records(blocks(data, size), form):
        found += zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
    return found


ODD_BYTES = [b"a", b"b c", b"\n", b"\r", b"\r\n", b"\0", b"\x1a", b"\xef\xbb\xbf", b"\xc3\xa9", b"\xf0\x9f\x98\x80"]
ODD_BYTES += [b"\x0b", b"\x0c", b"\x1c", b"\xc2\x85", b"\xe2\x80\xa8", b"x" * 30, b"\xff", b"\xef", b"\xbb"]
ODD_BYTES += [b"\x1f\x8b\x08"]


@given(st.lists(st.sampled_from(ODD_BYTES), max_size=12).map(b"".join), st.integers(1, 20))
def test_lines_of_odd_bytes_are_those_of_pythons_text_files(data: bytes, size: int):
    """With universal newlines, and a byte order mark only at the begin; what is not UTF-8 is no text for either."""
    try:
        lines = io.TextIOWrapper(io.BytesIO(data.removeprefix(b"\xef\xbb\xbf")), encoding="utf-8").readlines()
    except UnicodeDecodeError:
        with pytest.raises(BadText, match="not UTF-8"):
            cut(data, size)
        return
    assert cut(data, size) == [(line.removesuffix("\n"), number) for number, line in enumerate(lines, 1)]


@pytest.mark.parametrize("compressed", [gzip.compress, bz2.compress, zlib.compress, lzma.compress])
def test_compressed_files_are_no_text(compressed: Callable[[bytes], bytes]):
    """Whatever their names end with: their bytes are never taken for rows."""
    with pytest.raises(BadText, match="not UTF-8"):
        cut(compressed(b"one\ntwo\n" * 100))


FORMS = st.builds(
    TextForm, st.sampled_from([b'"', b"'"]), st.booleans(), st.sampled_from([b",", b";", b"\t", b" "]), st.booleans()
)
TEXT = st.lists(st.sampled_from(CSV_PIECES), max_size=14).map("".join)


@given(TEXT, FORMS, st.integers(1, 20))
def test_records_begin_and_end_where_a_reader_of_characters_says(text: str, form: TextForm, size: int):
    """Whatever the quotes and line breaks, and each character is in a record or a line break."""
    expected = csv_records(text, form)
    if isinstance(expected, str):
        with pytest.raises(BadText, match=expected):
            cut(text.encode(), size, form)
        return
    found = cut(text.encode(), size, form)
    assert [(record.text, record.line) for record in expected] == found
    rest = text
    for value, _ in found:
        assert rest.startswith(value)
        rest = re.sub(r"\A(\r\n|\r|\n)", "", rest.removeprefix(value))
    assert rest == ""


@given(TEXT, st.integers(1, 20))
def test_records_are_those_of_pythons_csv(text: str, size: int):
    """Wherever they are clear."""
    try:
        found = cut(text.encode(), size, CSV)
    except BadText:
        return
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert [next(csv.reader(io.StringIO(value, newline="")), []) for value, _ in found] == rows


@pytest.mark.parametrize("size", [1, 5, 1000])
@pytest.mark.parametrize(
    ("data", "line", "why"),
    [
        (b'a\n"b\nc\n', 2, "quote"),
        (b"a\nb\n\xff\xfe\nd\n", 3, "UTF-8"),
        # The lines between two stray quotes would look like one field.
        (b'1,a\n2,"6 pipe\n3,copper\n4,8" pipe\n', 2, "text follows the closing quote"),
    ],
)
def test_what_is_no_text_is_refused_with_its_line(data: bytes, line: int, why: str, size: int):
    """A quote that is not closed would swallow the rest; other encodings would be other text."""
    with pytest.raises(BadText, match=why) as bad:
        cut(data, size, CSV)
    assert bad.value.line == line


@pytest.mark.parametrize(("mib", "why"), [(8, "not closed"), (17, "no end")])
def test_a_record_without_an_end_is_refused(mib: int, why: str):
    """The rest of a file is not kept in memory behind a quote, but for 16 MiB."""
    with pytest.raises(BadText, match=why):
        cut(b'"' + b"x\n" * (mib << 19), 18 << 20, CSV)
