"""Which files there are, which are complete, and whether one has changed."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import threading
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import crc32c
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.checkpoint.stores import Store, open_store
from spark_eos.errors import FileError
from spark_eos.pipelines.files.folder import BLOCK_BYTES, CompleteFiles, File, Folder, HashedFile, with_digest
from spark_eos.pipelines.files.source import Form, has_rows, longest_record, read_file
from tests.support.judges.conditions import raises
from tests.support.servers.s3_stand_in import s3_stand_in
from tests.unit.pipelines.files.conftest import NONE, planned

TEXT = Form(blank=True)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_store_without_times_is_refused():
    """As fsspec's file system in memory: nobody would see that a file has changed."""
    import fsspec

    fsspec.filesystem("memory").pipe("/without-times/a.txt", b"x")
    with raises("EOS_FILE_UNREADABLE.read", "does not say when a file was written"):
        Folder("memory://without-times").files()


def test_files_of_a_folder_by_their_real_place(tmp_path: Path):
    """Links lead to the same URI; drafts and other names are left out; the oldest comes first."""
    (tmp_path / "data" / "_tmp").mkdir(parents=True)
    (tmp_path / "data" / "more").mkdir()
    names = ("b.csv", "more/a.csv", ".a.csv", "_b.csv", "_tmp/c.csv", "c.txt")
    for time, name in enumerate(names):
        (tmp_path / "data" / name).write_text(name)
        os.utime(tmp_path / "data" / name, (100 - time, 100 - time))
    (tmp_path / "link").symlink_to("data")
    found = Folder(f"{tmp_path}/link/", "*.csv").files()
    assert [file.uri for file in found] == [f"file://{tmp_path}/data/more/a.csv", f"file://{tmp_path}/data/b.csv"]
    assert found == Folder(f"file:{tmp_path}/data", "*.csv").files()
    assert (found[0].size, found[0].mtime_ns) == (len("more/a.csv"), 99 * 10**9)


@pytest.mark.parametrize("place", ["{}/no", "{}/file", "nowhere://x/y"])
def test_a_folder_that_is_not_there(place: str, tmp_path: Path):
    """The error names it: none, a file, or a file system that nobody knows."""
    (tmp_path / "file").touch()
    place = place.format(tmp_path)
    with pytest.raises(FileError, match=rf"EOS_FILE_UNREADABLE.*{place}"):
        Folder(place).files()


def test_a_store_that_does_not_answer_when_it_is_opened(environ, monkeypatch: pytest.MonkeyPatch):
    """As when it is asked later: the job waits for it."""

    def away(bucket: str) -> str:
        raise ConnectionRefusedError(bucket)

    environ(AWS_REGION=None)
    monkeypatch.setattr(pyarrow.fs, "resolve_s3_region", away)
    with raises("EOS_FILE_STORE"):
        Folder("s3a://away/in")


def test_a_file_is_complete_when_it_was_seen_unchanged_for_a_while():
    """By what was seen, not by the file's time; each change begins anew, and a new start does, too."""
    clock = Clock()
    complete = CompleteFiles(10.0, clock=clock)
    one, two, grown = File("a", 1, 7), File("b", 1, 7), File("a", 2, 7)
    assert complete.select([one, two]) == []
    clock.now = 9.0
    assert complete.select([grown, two]) == []
    clock.now = 10.0
    assert complete.select([grown, two]) == [two]
    clock.now = 19.0
    assert complete.select([grown]) == [grown]
    assert CompleteFiles(10.0, clock=clock).select([grown]) == []


def test_a_file_that_is_replaced_with_the_same_size_and_time(tmp_path: Path):
    """Its change time shows it, which no program can set."""
    (tmp_path / "a").write_text("count=1")
    os.utime(tmp_path / "a", (100, 100))
    (before,) = Folder(str(tmp_path)).files()
    (tmp_path / "_b").write_text("count=2")
    os.utime(tmp_path / "_b", (100, 100))
    (tmp_path / "_b").rename(tmp_path / "a")
    (after,) = Folder(str(tmp_path)).files()
    assert (before.uri, before.size, before.mtime_ns) == (after.uri, after.size, after.mtime_ns)
    assert before.stamp != after.stamp
    assert Folder(str(tmp_path)).files() == [after]


def test_a_pattern_that_matches_none_of_the_files_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Once, and not for drafts."""
    (tmp_path / "_a.csv").write_text("1")
    assert Folder(str(tmp_path), "*.CSV").files() == [] and not caplog.records
    (tmp_path / "a.csv").write_text("1")
    assert [Folder(str(tmp_path), "*.CSV").files() for _ in range(2)] == [[], []]
    assert [record.getMessage() for record in caplog.records] == [
        f"file://{tmp_path} has files, but none whose name matches '*.CSV'"
    ]


@pytest.mark.parametrize(
    ("form", "text", "rows"),
    [
        (TEXT, "", False),
        (TEXT, "\n", True),
        (Form(), "\ufeff \n\t", False),
        (Form(), "1", True),
        (Form(quote='"', header=("n",)), "n\n\n", False),
        (Form(quote='"', header=("n",)), "n\n1", True),
    ],
)
def test_whether_a_file_has_rows(form: Form, text: str, rows: bool, tmp_path: Path):
    """A header and blank lines are none."""
    (tmp_path / "a").write_text(text)
    assert has_rows(planned(tmp_path / "a"), form, NONE) is rows


def test_the_longest_record(tmp_path: Path):
    """Of text with its header left out; of Parquet by its texts and binaries; of files without rows none."""
    (tmp_path / "a.csv").write_text("a long header\n1\n\n333\n22\n")
    (tmp_path / "b.csv").write_text("a long header\n")
    files = [planned(tmp_path / name) for name in ("a.csv", "b.csv")]
    form = Form(quote='"', header=("a long header",))
    assert longest_record(files, form, NONE) == {"file": f"file://{tmp_path}/a.csv", "line": 4, "bytes": 3}
    assert longest_record(files[1:], form, NONE) is None
    table = pa.table({"n": [1, 2, 3], "t": ["a", "bb", None], "b": [b"4444", b"", b"55555"]})
    pq.write_table(table, tmp_path / "c.parquet")
    (file,) = [planned(tmp_path / "c.parquet")]
    assert longest_record([file], Form(parquet=True), NONE) == {"file": file.uri, "line": 1, "bytes": 5}


class Listing:
    """A store that tells milliseconds of the files of a folder, and seconds of a single one, as some do."""

    def get_file_info(self, what: pyarrow.fs.FileSelector | str) -> list[pyarrow.fs.FileInfo] | pyarrow.fs.FileInfo:
        time_ns = 1_700_000_000 * 10**9
        kind = pyarrow.fs.FileType.File
        if isinstance(what, str):
            return pyarrow.fs.FileInfo(what, kind, size=4, mtime_ns=time_ns)
        return [pyarrow.fs.FileInfo("b/in/a", kind, size=4, mtime_ns=time_ns + 123 * 10**6)]

    def open_input_stream(self, path: str, compression: None) -> pa.BufferReader:
        return pa.BufferReader(b"one\n")

    type_name = "s3"


def test_a_store_that_lists_milliseconds(stored_in: Callable[[Store], None]):
    """That is no change, and a second in which the object may be replaced unseen."""
    stored_in(Store(Listing(), "b/in"))
    (listed,) = Folder("s3a://b/in").files()
    assert with_digest(listed, NONE).digest
    assert CompleteFiles().select([listed]) == []


def test_an_object_is_no_folder():
    """It would have no file for ever; unless there are objects below it, too, or it is empty, as some tools mark a
    folder."""
    with s3_stand_in() as store:
        store.keep("marker", b"")
        location = store.location("marker")
        assert Folder(location.path, "*", location.settings).files() == []
        for name in ("in", "in/a.csv"):
            store.keep(name, b"1")
        location = store.location("in")
        assert [file.uri for file in Folder(location.path, "*", location.settings).files()] == ["s3a://tables/in/a.csv"]
        with raises("EOS_FILE_UNREADABLE.read", "s3a://tables/in/a.csv cannot be read: it is a file"):
            Folder("s3a://tables/in/a.csv", "*", location.settings).files()


def test_an_object_that_no_path_leads_to_is_refused():
    """Its path leads to another object, by Hadoop's rules. One that does not match is left alone."""
    with s3_stand_in() as store:
        for name in ("in/a.csv", "in//a.txt"):
            store.keep(name, b"1")
        location = store.location("in")
        given = Folder(location.path, "*.csv", location.settings)
        assert [file.uri for file in given.files()] == ["s3a://tables/in/a.csv"]
        store.keep("in//a.csv", b"2")
        with raises("EOS_FILE_UNREADABLE.read", "in//a.csv cannot be read: an empty name"):
            given.files()


def test_a_file_with_a_marker_beside_it_is_complete():
    """The marker is none of the files."""
    files = [File("f/a", 1, 7), File("f/b", 1, 7), File("f/b.done", 0, 7)]
    names = frozenset(file.uri for file in files)
    assert CompleteFiles(marker=".done").select(files, lambda: names) == [files[1]]
    assert CompleteFiles().select(files) == files


def test_a_name_that_is_not_utf_8(tmp_path: Path):
    """The error names such a file, or its folder, where it would be taken; all others are. Folders for drafts are not
    walked: links may lead from there to a folder above."""
    (tmp_path / "a.csv").write_text("1")
    (tmp_path / os.fsdecode(b"b\xff.csv")).write_text("2")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / os.fsdecode(b"\xfe.txt")).write_text("3")
    (tmp_path / os.fsdecode(b"\xfd")).mkdir()
    (tmp_path / os.fsdecode(b"\xfd") / "c.json").write_text("4")
    (tmp_path / "_draft").mkdir()
    for name in ("one", "two"):  # the number of ways doubles with each step
        (tmp_path / "_draft" / name).symlink_to("..")
    assert [Path(file.uri).name for file in Folder(str(tmp_path), "a*").files()] == ["a.csv"]
    for pattern, name in (("*.csv", r"b\xff.csv"), ("*.txt", r"below/\xfe.txt"), ("*.json", r"\xfd/c.json")):
        with pytest.raises(FileError, match=r"EOS_FILE_UNREADABLE.*its name is not UTF-8") as raised:
            Folder(str(tmp_path), pattern).files()
        assert name in raised.value.message


@pytest.mark.parametrize("to", ["..", ".", "../..", "../other"])
def test_a_link_to_a_folder_above_is_an_error(to: str, tmp_path: Path):
    """Which names it: there would be no end of files. A draft, or a link to itself, leads nowhere."""
    folder = tmp_path / "in"
    for name in ("below", "other", "_draft"):
        (folder / name).mkdir(parents=True)
        (folder / name / "a.csv").write_text(name)
    (folder / "_draft" / "up").symlink_to("..")
    (folder / "itself").symlink_to("itself")
    (folder / "other" / "down").symlink_to("../below")
    found = [file.uri for file in Folder(str(folder)).files()]
    assert sorted(uri[len(f"file://{folder}/") :] for uri in found) == [
        "below/a.csv",
        "other/a.csv",
        "other/down/a.csv",
    ]
    for name in ("one", "two"):  # the number of ways doubles with each step
        (folder / "below" / name).symlink_to(to)
    for look in (Folder(str(folder)).files, Folder(str(folder)).names):
        with raises("EOS_FILE_UNREADABLE.loop") as raised:
            look()
        assert re.search(r"/(one|two)\S* cannot be read: .* link", str(raised.value))


@pytest.mark.parametrize("marker", [None, ".done"])
def test_a_file_with_a_time_in_whole_seconds_is_seen_for_a_second(marker: str | None):
    """Of two contents of one size that an object store was given within a second, the first is never taken."""
    clock = Clock()
    complete = CompleteFiles(marker=marker, clock=clock)
    file, written = File("s3a://b/a", 4, 1_700_000_000 * 10**9), File("s3a://b/b", 4, 1_700_000_000 * 10**9 + 1)
    names = frozenset(f"{file.uri}.done" for file in (file, written))
    assert complete.select([file, written], lambda: names) == [written]
    assert complete.expected == {file.uri, written.uri}
    clock.now = 0.9
    assert complete.select([file, written], lambda: names) == [written]
    assert complete.soon
    clock.now = 1.0
    assert complete.select([file, written], lambda: names) == [file, written]
    assert not complete.soon


@given(content=st.binary(max_size=40), block=st.integers(1, 9), cut=st.data())
def test_digest_and_checksum_are_of_the_content(content: bytes, block: int, cut: st.DataObject):
    """By other implementations, and however it is read; a content of the same size with one other byte has others."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("spark_eos.pipelines.files.folder.BLOCK_BYTES", block)
        path = Path(folder, "a")
        path.write_bytes(content)
        file = planned(path)
        assert file.digest == f"blake2b-{hashlib.blake2b(content, digest_size=16).hexdigest()}"
        assert file.checksum == f"crcs-{crc32c.crc32c(content):08x}{zlib.crc32(content):08x}"
        read = HashedFile(file, NONE)
        assert b"".join(read.blocks()) == content
        read.check()
        if content:
            place = cut.draw(st.integers(0, len(content) - 1))
            path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            for known in (file, replace(file, checksum="")):
                other = HashedFile(known, NONE)
                assert len(b"".join(other.blocks())) == file.size
                with pytest.raises(FileError, match="its content is different"):
                    other.check()


@pytest.mark.parametrize("noted", [False, True])
@pytest.mark.parametrize("how", ["appended", "replaced", "removed", "rewritten"])
def test_a_file_that_changes_while_it_is_read(how: str, noted: bool, tmp_path: Path):
    """The attempt fails at the end; also where size and time are what they were. ``noted``: of the file, only the
    digest in its note is known, as when lost rows are written again."""
    path = tmp_path / "file"
    path.write_bytes(b"0123456\n" * (BLOCK_BYTES // 2))
    file = replace(planned(path), checksum="") if noted else planned(path)
    rows = read_file(file, TEXT, NONE)
    next(rows)
    was = path.stat()
    if how == "appended":
        with path.open("ab") as end:
            end.write(b"more\n")
    elif how == "removed":
        path.unlink()
    elif how == "replaced":
        (tmp_path / "other").write_bytes(b"0123456\n" * (BLOCK_BYTES // 2))
        (tmp_path / "other").rename(path)
    else:
        with path.open("r+b") as end:
            end.seek(-8, os.SEEK_END)
            end.write(b"7654321\n")
        os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    with pytest.raises(FileError, match="EOS_FILE_CHANGED_WHILE_READ"):
        for _ in rows:
            pass


def test_a_file_that_has_changed_before_it_is_read(tmp_path: Path):
    """Nothing of it comes."""
    path = tmp_path / "file"
    path.write_text("a\n")
    file = planned(path)
    path.write_text("ab\n")
    with pytest.raises(FileError, match="it had 2 bytes, and has 3 now"):
        next(read_file(file, TEXT, NONE))
    with pytest.raises(FileError, match="EOS_FILE_CHANGED_WHILE_READ"):
        with_digest(file, NONE)


def test_folders_for_drafts_come_and_go(tmp_path: Path):
    """While the folder is listed."""
    (tmp_path / "a.txt").write_text("a\n")

    def write() -> None:
        for task in range(200):
            (tmp_path / "_temporary" / "0" / f"task_{task}").mkdir(parents=True)
            shutil.rmtree(tmp_path / "_temporary")

    writer = threading.Thread(target=write)
    writer.start()
    found, listings = Folder(str(tmp_path)), 0
    while writer.is_alive() or not listings:
        assert [file.uri for file in found.files()] == [f"file://{tmp_path}/a.txt"]
        listings += 1


class Failing:
    """A file system that cannot list folders of this name."""

    def __init__(self, name: str, error: OSError) -> None:
        self._files, self._name, self._error = pyarrow.fs.LocalFileSystem(), name, error

    def get_file_info(self, of: str | pyarrow.fs.FileSelector) -> object:
        if isinstance(of, pyarrow.fs.FileSelector) and Path(of.base_dir).name == self._name:
            raise self._error
        return self._files.get_file_info(of)


@pytest.mark.parametrize(
    ("error", "condition"),
    [(OSError(5, "Input/output error"), "EOS_FILE_STORE"), (PermissionError(13, "no"), "EOS_FILE_UNREADABLE.read")],
)
def test_a_folder_below_that_cannot_be_listed(
    error: OSError, condition: str, tmp_path: Path, stored_in: Callable[[Store], None]
):
    """It is an error of the files, as for the folder itself: with a restart where that may help."""
    (tmp_path / "below").mkdir()
    stored_in(replace(open_store(str(tmp_path), NONE), files=Failing("below", error)))
    with raises(condition):
        Folder(str(tmp_path)).files()


def rows_of(path: Path, form: Form) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for batch in read_file(planned(path), form, NONE) for row in batch.to_pylist()]


def test_a_header_is_checked_and_is_no_row(tmp_path: Path):
    """Columns in another order would be other rows; blank lines are none."""
    path = tmp_path / "a.csv"
    path.write_text('"n";name\n\n1;x\n')
    form = Form(quote='"', header=("n", "name"), delimiter=";")
    assert rows_of(path, form) == [("1;x", f"file://{path}", 3)]
    path.write_text("name;n\nx;1\n")
    with pytest.raises(FileError, match=r"EOS_FILE_MALFORMED.*its header is name, n, not n, name"):
        rows_of(path, form)
    path.write_text("")
    assert rows_of(path, form) == []


def test_records_whose_ends_are_not_clear_name_their_line(tmp_path: Path):
    """Whatever is done with malformed records: nobody knows how many there are."""
    (tmp_path / "a.csv").write_text('1,first\n2,"6 pipe\n3,copper\n4,8" pipe\n')
    with pytest.raises(FileError, match=r"EOS_FILE_MALFORMED.*line 2: text follows.*multiLine: false"):
        rows_of(tmp_path / "a.csv", Form(quote='"', multi_line=True))


@pytest.mark.parametrize(("compression", "is_held"), [("none", False), ("snappy", True)])
def test_parquet_files_that_are_too_large_to_be_held(compression: str, is_held: bool, tmp_path: Path):
    """They are read again for their rows, which are the same."""
    path = tmp_path / "a.parquet"
    table = pa.table({"n": range(25_000), "text": ["x" * 1_400] * 25_000})
    pq.write_table(table, path, row_group_size=7_000, compression=compression, use_dictionary=False)
    assert (path.stat().st_size <= 32 << 20) is is_held
    rows = rows_of(path, Form(parquet=True))
    assert [(n, file, line) for n, _, file, line in rows] == [(n, f"file://{path}", n + 1) for n in range(25_000)]
