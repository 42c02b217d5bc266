"""What tasks read of lines that go on as they are."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.errors import EosError
from spark_eos.pipelines.copy.written import LastWritten
from spark_eos.pipelines.files.copying import Counts, FileRows, columns_in
from spark_eos.pipelines.files.folder import File, Folder, with_digest
from spark_eos.pipelines.files.notes import Notes
from spark_eos.pipelines.files.source import Form

NONE = HadoopSettings({})
TEXT, JSON = Form(blank=True), Form()


def files_in(folder: Path) -> list[File]:
    found = [with_digest(file, NONE) for file in Folder(str(folder)).files()]
    return sorted(found, key=lambda file: file.uri)


def rows_in(folder: Path, form: Form, *numbers: int) -> list[dict[str, object]]:
    """The rows of splits of one file each, as tasks with these numbers have them."""
    files = files_in(folder)
    columns = columns_in(files[0], form, NONE, "t")
    given = [pa.record_batch({"id": pa.array([number], pa.int64())}) for number in numbers]
    rows = FileRows(form, [[file] for file in files], columns, NONE, LastWritten(), Notes("notes", 0))
    return [row for batch in rows._rows(given, Counts()) for row in batch.to_pylist()]


def test_each_line_is_a_value(tmp_path: Path):
    """Of the files of the task's own split; blank lines are rows of text, not of JSON."""
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbf1\r\n\r\n \t\n{2")
    (tmp_path / "b").write_bytes(b"3\x00\n")
    (tmp_path / "c").write_bytes(b"")
    assert rows_in(tmp_path, TEXT, 0) == [{"value": value} for value in (b"1", b"", b" \t", b"{2")]
    assert rows_in(tmp_path, JSON, 0) == [{"value": value} for value in (b"1", b"{2")]
    assert rows_in(tmp_path, JSON, 1) == [{"value": b"3\0"}]
    assert rows_in(tmp_path, JSON, 2) == []


def test_a_file_that_is_not_what_was_planned(tmp_path: Path):
    """The rows before the end of a file are given before it is known: the error aborts their transaction."""
    file = tmp_path / "a"
    file.write_text("one\n")
    (planned,) = files_in(tmp_path)
    file.write_text("ONE\n")
    changed = File(planned.uri, planned.size, Folder(str(tmp_path)).files()[0].mtime_ns, planned.digest)
    rows = FileRows(TEXT, [[changed]], columns_in(changed, TEXT, NONE, "t"), NONE, LastWritten(), Notes("notes", 0))
    with pytest.raises(EosError, match="EOS_FILE_CHANGED_WHILE_READ"):
        list(rows._rows([pa.record_batch({"id": [0]})], Counts()))
