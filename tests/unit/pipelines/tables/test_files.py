"""The files that a task writes: whole, of about a size, under names that nobody has used, deleted after an error."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.checkpoint.stores import Store, open_store
from spark_eos.pipelines.tables.files import DataFile, FileAttempt, FileLayout, FileWriter
from spark_eos.pipelines.tables.values import conformed
from tests.support.judges.conditions import raises

ATTEMPT = FileAttempt("3f0c-query", 7, 2, 31)
SCHEMA = pa.schema({"p": pa.string(), "v": pa.int64(), "s": pa.string()})


def rows(begin: int, count: int, partition: str | None = "x") -> pa.RecordBatch:
    """Rows that hardly compress."""
    texts = [f"{number * 0x9E3779B97F4A7C15 % (1 << 64):016x}" for number in range(begin, begin + count)]
    return pa.RecordBatch.from_pydict(
        {"p": [partition] * count, "v": list(range(begin, begin + count)), "s": texts}, SCHEMA
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "table"), HadoopSettings({}))


def on_disk(store: Store) -> set[str]:
    """All files below the table, relative to it."""
    return {str(path.relative_to(store.root)) for path in Path(store.root).rglob("*") if path.is_file()}


def held_open(store: Store) -> set[str]:
    """The files below the table that this process has open, on Linux."""
    return {file for file in map(os.path.realpath, Path("/proc/self/fd").iterdir()) if file.startswith(store.root)}


def written(store: Store, layout: FileLayout, batches: list[pa.RecordBatch]) -> tuple[DataFile, ...]:
    with FileWriter(store, layout, ATTEMPT) as writer:
        for batch in batches:
            writer.write(batch)
        return writer.close()


def read(store: Store, file: DataFile) -> pa.Table:
    return pq.ParquetFile(Path(store.root, file.path)).read()


@pytest.mark.parametrize("codec", ["snappy", "zstd"])
def test_rows_come_back_from_the_files(store: Store, codec: str) -> None:
    """In their order, in one file, with its size in bytes."""
    (file,) = written(store, FileLayout(SCHEMA, codec=codec), [rows(0, 10), rows(10, 5)])  # type: ignore[arg-type]
    assert file.rows == 15
    assert file.size_bytes == Path(store.root, file.path).stat().st_size
    assert read(store, file).equals(pa.Table.from_batches([rows(0, 10), rows(10, 5)]))
    metadata = pq.ParquetFile(Path(store.root, file.path)).metadata
    assert metadata.row_group(0).column(0).compression == codec.upper()
    assert on_disk(store) == {file.path}


def test_structs_whose_fields_have_no_nulls_may_be_null(store: Store) -> None:
    """In lists and maps, too, where rows say so, or have no such column or field, also in a slice."""
    whole = pa.field("whole", pa.int64(), nullable=False)
    text = pa.field("text", pa.string(), nullable=False)
    listed = pa.field("listed", pa.list_(pa.int8()), nullable=False)
    mapped = pa.field("mapped", pa.map_(pa.string(), pa.field("v", pa.bool_())), nullable=False)
    inner = pa.field("inner", pa.struct([whole, text, listed, mapped]), nullable=False)
    kind = pa.struct([inner, pa.field("other", inner.type)])
    schema = pa.schema({"s": kind, "l": pa.list_(kind), "m": pa.map_(pa.string(), kind), "absent": kind})
    one = {"inner": {"whole": 1, "text": "a", "listed": [1], "mapped": [("k", True)]}, "other": None}
    values, given = [None, one, None, one], pa.struct([inner])
    pairs = zip(values, [[], values, None, []], strict=True)
    rows = [{"s": value, "l": within, "m": [("k", value)]} for value, within in pairs]
    columns = pa.schema({"s": given, "l": pa.list_(given), "m": pa.map_(pa.string(), given)})
    batch = conformed(pa.RecordBatch.from_pylist(rows, columns).slice(1), schema).rows
    (file,) = written(store, FileLayout(schema), [batch])
    assert read(store, file).to_pylist() == [{**row, "absent": None} for row in rows[1:]]


def test_no_rows_make_no_file(store: Store) -> None:
    """Of no batch, and of an empty one."""
    assert written(store, FileLayout(SCHEMA), []) == written(store, FileLayout(SCHEMA), [rows(0, 0)]) == ()
    assert not Path(store.root).exists()


def test_each_partition_has_its_directory_and_no_column_for_it(store: Store) -> None:
    """Readers take the values from the log, some of them from directories, and none from the file."""
    files = written(store, FileLayout(SCHEMA, ("p",)), [rows(0, 2, "a b"), rows(2, 3, None), rows(5, 1, "a b")])
    assert {file.path.rpartition("/")[0]: (file.rows, file.partition_values) for file in files} == {
        "p=a%20b": (3, {"p": "a b"}),
        "p=__HIVE_DEFAULT_PARTITION__": (3, {"p": None}),
    }
    assert {tuple(read(store, file).schema.names) for file in files} == {("v", "s")}
    assert sorted(value for file in files for value in read(store, file).column("v").to_pylist()) == list(range(6))


def test_files_end_at_about_the_target(store: Store) -> None:
    """By bytes in the store: a file is larger by less than a row group."""
    layout = FileLayout(SCHEMA, target_bytes=50_000, row_group_bytes=10_000)
    files = written(store, layout, [rows(begin, 1000) for begin in range(0, 20_000, 1000)])
    assert len(files) > 3
    assert all(50_000 <= file.size_bytes < 70_000 for file in files[:-1])
    assert sum(file.rows for file in files) == 20_000


def test_a_large_batch_becomes_row_groups_of_the_size(store: Store) -> None:
    """The batches of a transform may be of any size."""
    layout = FileLayout(SCHEMA, row_group_bytes=10_000)
    (file,) = written(store, layout, [rows(0, 5000)])
    metadata = pq.ParquetFile(Path(store.root, file.path)).metadata
    assert metadata.num_row_groups > 10
    assert max(metadata.row_group(place).num_rows for place in range(metadata.num_row_groups)) < 400


def test_columns_that_files_cannot_have_are_refused(store: Store) -> None:
    """Before any row."""
    with raises("EOS_TABLE_COLUMNS.partition"):
        FileWriter(store, FileLayout(pa.schema({"p": pa.float64(), "v": pa.int64()}), ("p",)), ATTEMPT)


def test_names_are_used_once_and_tell_who_wrote(store: Store) -> None:
    """Another attempt, and this one again, have other names."""
    files = [file for _ in range(3) for file in written(store, FileLayout(SCHEMA, ("p",)), [rows(0, 1)])]
    assert len({file.path for file in files}) == 3
    assert all(is_of(ATTEMPT, file.path) for file in files)


def is_of(attempt: FileAttempt, path: str) -> bool:
    name = f"eos-{attempt.query}-{attempt.batch}-{attempt.partition}-{attempt.attempt}-"
    return path.rpartition("/")[2].startswith(name)


def test_a_query_whose_name_is_no_part_of_a_path_is_refused() -> None:
    """Libraries encode paths in several ways."""
    with pytest.raises(ValueError, match="part of a file's name"):
        FileAttempt("a/../b", 0, 0, 0).new_name()


def test_an_error_deletes_what_was_written(store: Store) -> None:
    """Finished files, and the ones that are being written."""
    layout = FileLayout(SCHEMA, ("p",), target_bytes=1000, row_group_bytes=1000)
    with pytest.raises(RuntimeError), FileWriter(store, layout, ATTEMPT) as writer:
        writer.write(rows(0, 1000, "a"))
        writer.write(rows(0, 20, "b"))
        assert len(on_disk(store)) > 1
        raise RuntimeError
    assert on_disk(store) == set()


def test_without_close_there_are_no_files(store: Store) -> None:
    """A generator that is not read to its end leaves the block without an error."""
    with FileWriter(store, FileLayout(SCHEMA, row_group_bytes=100), ATTEMPT) as writer:
        writer.write(rows(0, 1000))
    assert on_disk(store) == set()


def test_few_files_are_open_at_once(store: Store) -> None:
    """The one that was written to longest ago ends, and its partition goes on in another file."""
    layout = FileLayout(SCHEMA, ("p",), row_group_bytes=1, open_files=2)
    with FileWriter(store, layout, ATTEMPT) as writer:
        most = 0
        for partition in "abcabcabc":
            writer.write(rows(0, 1, partition))
            most = max(most, len(held_open(store)))
        files = writer.close()
    assert most == 2
    assert len(files) > 3
    assert sum(file.rows for file in files) == 9
    assert on_disk(store) == {file.path for file in files}


def test_memory_is_bounded_over_all_partitions(store: Store) -> None:
    """When rows of many partitions wait, those of the largest are written."""
    layout = FileLayout(SCHEMA, ("p",), row_group_bytes=1 << 30, buffer_bytes=20_000)
    with FileWriter(store, layout, ATTEMPT) as writer:
        for begin in range(100):
            writer.write(rows(begin * 10, 10, f"p{begin % 7}"))
            assert sum(one.held_bytes for one in writer._buffers.values()) == writer._held_bytes <= 20_000
        files = writer.close()
    assert sum(file.rows for file in files) == 1000


def test_too_many_partitions_stop_the_task(store: Store) -> None:
    """Else a column of ids as the partition column would make a file of each row."""
    with (
        raises("EOS_TABLE_PARTITIONS", "more than 3 partitions"),
        FileWriter(store, FileLayout(SCHEMA, ("p",), most_partitions=3), ATTEMPT) as writer,
    ):
        for number in range(4):
            writer.write(rows(0, 1, str(number)))
    assert on_disk(store) == set()


def test_other_columns_are_refused(store: Store) -> None:
    """A column of another name would be null for readers."""
    with pytest.raises(ValueError, match="other columns"), FileWriter(store, FileLayout(SCHEMA), ATTEMPT) as writer:
        writer.write(pa.RecordBatch.from_pydict({"V": [1]}))


class FullStore(pyarrow.fs.FSSpecHandler):
    """A store that fails when a file is finished, as object stores do."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

    def get_type_name(self) -> str:
        return "full"

    def open_output_stream(self, path: str, metadata: object) -> pa.PythonFile:
        return pa.PythonFile(_Unfinished(), mode="w")

    def delete_file(self, path: str) -> None:
        self.deleted.append(path)


class _Unfinished(io.BytesIO):
    def close(self) -> None:
        raise OSError("no space")


def test_a_file_that_cannot_be_finished_is_an_error() -> None:
    """The store's error comes out of `close`, and what may be there is deleted."""
    handler = FullStore()
    store = Store(pyarrow.fs.PyFileSystem(handler), "table")
    with pytest.raises(OSError, match="no space"), FileWriter(store, FileLayout(SCHEMA), ATTEMPT) as writer:
        writer.write(rows(0, 1))
        writer.close()
    (path,) = handler.deleted
    assert is_of(ATTEMPT, path)


@pytest.mark.parametrize("first", [0, 1])
def test_no_row_group_has_bounds_of_floating_point(store: Store, first: int) -> None:
    """Readers would skip a NaN by them, which Arrow leaves out; also of fields and elements. Nor has a column whose
    name reads like the path of one, as Arrow does not tell the two apart."""
    nan = float("nan")
    columns = [
        ("a", pa.array([{"b": nan}, {"b": 1.0}], pa.struct({"b": pa.float64()}))),
        ("a.b", pa.array([1, 2], pa.int64())),
        ("c", pa.array([1, 2], pa.int64())),
        ("f", pa.array([nan, 2.0], pa.float32())),
        ("l", pa.array([[nan], [1.0]], pa.list_(pa.float64()))),
        ("s", pa.array([{"f": 1.0, "i": 1}, None], pa.struct({"f": pa.float64(), "i": pa.int64()}))),
    ]
    columns = columns[first:2] + columns[:first] + columns[2:]
    batch = pa.RecordBatch.from_pydict(dict(columns))
    (file,) = written(store, FileLayout(batch.schema), [batch])
    group = pq.ParquetFile(Path(store.root, file.path)).metadata.row_group(0)
    leaves = [group.column(number) for number in range(group.num_columns)]
    assert [leaf.path_in_schema for leaf in leaves if leaf.is_stats_set] == ["c", "s.i"]
