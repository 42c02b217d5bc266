"""Parquet files whose columns Arrow reads otherwise than Spark, and what becomes of errors of their store."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.checkpoint.stores import Store
from spark_eos.errors import FileError
from spark_eos.pipelines.arrow_types import arrow_schema
from spark_eos.pipelines.files.folder import Folder, with_digest
from spark_eos.pipelines.files.parquet import parquet_schema, spark_schema
from spark_eos.pipelines.files.source import Form, cast, first_rows, read_file
from spark_eos.pipelines.files.transforming import pieces
from tests.unit.pipelines.files.conftest import NONE, planned

PARQUET = Form(parquet=True)
UTC = pa.timestamp("us", "UTC")
FAR = [dt.datetime(9999, 12, 31, tzinfo=dt.UTC), dt.datetime(1, 1, 1, 12, tzinfo=dt.UTC), None]


def refusal(path: Path) -> FileError:
    """The same for whoever reads: the driver, a task, and a sample."""
    found = []
    for reads in (
        lambda: parquet_schema(planned(path), NONE),
        lambda: list(read_file(planned(path), PARQUET, NONE)),
        lambda: list(first_rows(planned(path), PARQUET, NONE, 10)),
    ):
        with pytest.raises(FileError) as error:
            reads()
        found.append(error.value)
    assert len({(error.entry, error.message) for error in found}) == 1
    return found[0]


#: A column as it is, and within columns of other types.
WRAPPED = pytest.mark.parametrize(
    "wrapped",
    [
        lambda x: x,
        lambda x: pa.StructArray.from_arrays([pa.nulls(len(x), pa.int8()), x], names=["n", "x"]),
        lambda x: pa.ListArray.from_arrays(pa.array(range(len(x) + 1), pa.int32()), x),
        lambda x: pa.MapArray.from_arrays(pa.array(range(len(x) + 1), pa.int32()), pa.array(["k"] * len(x)), x),
    ],
    ids=["plain", "struct", "list", "map"],
)


@pytest.mark.parametrize("store_schema", [True, False])
@WRAPPED
def test_int96_is_a_moment(wrapped, store_schema, tmp_path):
    """As Spark writes it: in UTC, of any year; columns beside it stay as they are."""
    column = wrapped(pa.array(FAR, UTC))
    naive = pa.array([dt.datetime(2024, 1, 1)] * len(FAR), pa.timestamp("us"))
    path, table = tmp_path / "a.parquet", pa.table({"x": naive.dictionary_encode().cast(naive.type), "y": column})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, store_schema=store_schema)
    found = parquet_schema(planned(path), NONE)
    assert found.field("y").type == column.type
    (rows,) = read_file(planned(path), PARQUET, NONE)
    assert cast(rows, found, planned(path)).column("y").to_pylist() == column.to_pylist()


def test_timestamps_without_a_zone_beside_int96_stay_without(tmp_path):
    """By the file's own types, column by column."""
    path = tmp_path / "a.parquet"
    schema = pa.schema({"s": pa.struct({"n": pa.timestamp("us"), "d": pa.date32()}), "t": pa.timestamp("us")})
    pq.write_table(schema.empty_table(), path)
    assert parquet_schema(planned(path), NONE) == schema


@pytest.mark.usefixtures("without_jvm")
@pytest.mark.skipif(not hasattr(pa, "json_"), reason="this pyarrow reads JSON and UUIDs as what is stored")
@pytest.mark.parametrize("store_schema", [True, False])
@WRAPPED
def test_json_and_uuids_are_what_is_stored(wrapped, store_schema, tmp_path):
    """A text and bytes, as versions of pyarrow read them that have no types for these."""
    json, bytes_ = pa.array(['{"a": 1}', None]), pa.array([bytes(range(16)), None], pa.binary(16))
    stored = pa.table({"j": wrapped(json), "u": wrapped(bytes_)})
    typed = {"j": (pa.json_(pa.string()), json), "u": (pa.uuid(), bytes_)}
    columns = {name: wrapped(pa.ExtensionArray.from_storage(*of)) for name, of in typed.items()}
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns), path, store_schema=store_schema)
    found = parquet_schema(planned(path), NONE)
    assert [str(kind).count("extension") for kind in found.types] == [0, 0]
    schema = arrow_schema(spark_schema(planned(path), found))
    (rows,) = read_file(planned(path), PARQUET, NONE)
    assert cast(rows, schema, planned(path)).to_pylist() == stored.to_pylist()


def test_texts_that_are_not_utf_8(tmp_path):
    """Arrow does not look; DuckDB would make something else of them."""
    path = tmp_path / "a.parquet"
    bad = pa.array([b"ok", b"M\xfcller"], pa.binary()).view(pa.string())
    for column in (bad, bad.dictionary_encode(), pa.StructArray.from_arrays([bad], names=["n"])):
        pq.write_table(pa.table({"x": column}), path)
        file = planned(path)
        plain = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        (rows,) = read_file(file, PARQUET, NONE)
        with pytest.raises(FileError, match=r"EOS_FILE_MALFORMED.*a.parquet.*(?i:utf-?8)"):
            cast(rows, pa.schema({"x": plain}), file)


def with_spark(path: Path, table: pa.Table, **noted: str) -> None:
    """With these notes of Spark's. Timestamps are INT96."""
    with pq.ParquetWriter(path, table.schema, use_deprecated_int96_timestamps=True, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({f"org.apache.spark.{key}": value for key, value in noted.items()})


DAYS = pa.table({"d": pa.array([dt.date(1500, 1, 10)])})
INT96 = pa.table({"at": pa.array([dt.datetime(2024, 1, 1)], UTC)})


@pytest.mark.parametrize(
    ("table", "noted", "other", "newer"),
    [
        (INT96, {"version": "3.0.3"}, DAYS, "3.1.0"),
        (INT96, {"version": "3.5.1", "legacyINT96": ""}, DAYS, "3.1.0"),
        (DAYS, {"version": "2.4.8"}, pa.table({"n": [1]}), "3.5.1"),
        (DAYS, {"version": "3.5.1", "legacyDateTime": ""}, pa.table({"n": [1]}), "3.5.1"),
    ],
)
def test_times_of_the_old_calendar(table, noted, other, newer, tmp_path):
    """They would be other days. Spark wrote INT96 so for one version longer, and still writes either if it is told to.
    ``other``: columns that are right all the same; ``newer``: a version whose times are right."""
    path = tmp_path / "a.parquet"
    with_spark(path, table, **noted)
    assert refusal(path).entry == "EOS_FILE_MALFORMED.calendar"
    for right, notes in ((other, noted), (table, {"version": newer})):
        with_spark(path, right, **notes)
        assert parquet_schema(planned(path), NONE).names == right.column_names


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["id", "ID"], "names id, ID are equal"),
        (["v", "v"], "names v, v are equal"),
        (["v", "_FILE"], "_file and _line, in whatever letters"),
        (["_line"], "_file and _line, in whatever letters"),
    ],
)
def test_names_that_are_one_to_spark_and_duckdb(names, says, tmp_path):
    """DuckDB would read another column than the one that is named."""
    pq.write_table(pa.Table.from_arrays([pa.array([1])] * len(names), names=names), tmp_path / "a.parquet")
    error = refusal(tmp_path / "a.parquet")
    assert error.entry == "EOS_FILE_MALFORMED.columns" and says in error.message


@pytest.mark.parametrize("reads", ["schema", "rows", "digest"])
def test_a_file_that_is_gone_has_changed(reads, tmp_path):
    """The job is started again, and goes by what is there then."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": [1]}), path)
    listed = Folder(str(tmp_path)).files()[0]
    file = planned(path)
    path.unlink()
    with pytest.raises(FileError, match=r"it is gone") as error:
        if reads == "schema":
            parquet_schema(file, NONE)
        elif reads == "rows":
            list(read_file(file, PARQUET, NONE))
        else:
            with_digest(listed, NONE)
    assert error.value.entry == "EOS_FILE_CHANGED_WHILE_READ" and error.value.restart_helps


MB = 1_000_000


@pytest.mark.parametrize(("values", "most"), [(["x" * MB] * 40, 16), ([bytes([n]) * MB for n in range(40)], 16)])
def test_wide_rows_are_read_a_few_at_a_time(values, most, tmp_path):
    """So that memory does not grow with the size of a row; also where values are equal, which the file has once. A
    transform gets about as many bytes."""
    pq.write_table(pa.table({"v": values}), tmp_path / "a.parquet")
    read = list(read_file(planned(tmp_path / "a.parquet"), PARQUET, NONE))
    assert max(batch.num_rows for batch in read) <= most
    assert [line for batch in read for line in batch.column("_line").to_pylist()] == list(range(1, 41))
    assert all(piece.nbytes < 8 * MB for piece in pieces(read, PARQUET, 6 * MB))


#: The size of a file that is not kept in memory: its rows are read from the store once more.
TOO_LARGE = 33 << 20


@pytest.mark.parametrize("away", ["for good", "when the columns are read", "when rows are read"])
def test_errors_of_a_store_are_not_those_of_a_file(away, tmp_path, stored_in):
    """A restart of the job helps, also where the store is there again when it is asked why; what is damaged is so once
    more. They contain no secret."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": range(100_000)}), path, row_group_size=10_000)
    file = replace(planned(path), size=TOO_LARGE)
    left = [OSError("GET https://host?sv=2024&sig=TOPSECRET: no answer")]
    settings = HadoopSettings({"fs.azure.sas.fixed.token": "sv=2024&sig=TOPSECRET"})
    local = pyarrow.fs.LocalFileSystem()

    class Flaky:
        def get_file_info(self, path: str) -> pyarrow.fs.FileInfo:
            info = local.get_file_info(path)
            return pyarrow.fs.FileInfo(path, info.type, size=TOO_LARGE, mtime_ns=info.mtime_ns)

        def open_input_stream(self, path: str, **more: Any) -> pa.NativeFile:
            if away == "for good":
                raise OSError("GET https://host?sv=2024&sig=TOPSECRET: no answer")
            return local.open_input_stream(path, **more)

        def open_input_file(self, path: str) -> pa.NativeFile:
            return pa.PythonFile(Lost(path))

    class Lost(FileIO):
        def read(self, size: int = -1) -> bytes:
            if left and (away != "when rows are read" or self.tell() < path.stat().st_size // 2):
                raise left.pop()
            return super().read(size)

    stored_in(Store(Flaky(), str(path), local=True))
    with pytest.raises(FileError, match="no answer") as error:
        list(read_file(file, PARQUET, settings)) if "rows" in away else parquet_schema(file, settings)
    assert error.value.condition == "EOS_FILE_STORE" and "TOPSECRET" not in str(error.value)
    if away != "for good":
        assert sum(batch.num_rows for batch in read_file(file, PARQUET, settings)) == 100_000


def test_damage_is_of_the_file(tmp_path):
    """Whether Arrow calls it an error of its own or of input."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": [1, 2, 3]}), path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])  # cut short, as by a copy under way
    assert refusal(path).condition == "EOS_FILE_MALFORMED"
    for place in range(4, len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            rows = [row for batch in read_file(planned(path), PARQUET, NONE) for row in batch.column(0).to_pylist()]
        except FileError as error:
            assert error.condition == "EOS_FILE_MALFORMED"
        else:
            assert len(rows) == 3  # the byte is one of a value, a name or statistics
