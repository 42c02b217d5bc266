"""Tables as `spark-eos verify` reads them: ids of any column, deletion vectors, renamed columns, a store of objects."""

from __future__ import annotations

import json
import string
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from spark_eos.tools.verify import IdPlace, TableAddress, side
from spark_eos.tools.verify.table_ids import TableIds
from tests.support.judges.conditions import raises
from tests.support.servers.object_store import ACCESS_KEY, SECRET_KEY, object_store
from tests.support.tables.delta_files import add_version, metadata_action


def address_of(text: str, settings: dict[str, str] | None = None) -> TableAddress:
    _, found = side([text], settings or {})
    assert found is not None
    return found


def ids_of(batch: pa.RecordBatch, where: str, *topics: str) -> list[bytes | None]:
    return TableIds.at("a table", IdPlace.parse(where), batch.schema.names, topics).ids(batch)


@pytest.mark.parametrize(
    ("type_", "value", "id_"),
    [
        (pa.string(), "é", "é".encode()),
        (pa.large_string(), "a", b"a"),
        (pa.string_view(), "a", b"a"),
        (pa.dictionary(pa.int32(), pa.string()), "a", b"a"),
        (pa.binary(), b"\xff\x00", b"\xff\x00"),
        (pa.binary_view(), b"\xff", b"\xff"),
        (pa.int64(), -(2**63), b"-9223372036854775808"),
        (pa.int8(), 7, b"7"),
        (pa.bool_(), True, b"true"),
        (pa.date32(), 0, b"1970-01-01"),
    ],
)
def test_id_in_a_column(type_: pa.DataType, value: object, id_: bytes) -> None:
    """Of any type whose values have one text; null is no id."""
    batch = pa.record_batch({"the id": pa.array([value, None], type_)})
    assert ids_of(batch, "column:the id") == [id_, None]


@pytest.mark.parametrize("type_", [pa.float64(), pa.timestamp("us"), pa.decimal128(5, 2), pa.list_(pa.int8())])
def test_a_column_that_no_id_can_be_read_from_is_refused(type_: pa.DataType) -> None:
    """By name and type, not for one row."""
    with raises("EOS_VERIFY_IMPOSSIBLE.id_column", "the id"):
        ids_of(pa.record_batch({"the id": pa.array([None], type_)}), "column:the id")


@pytest.mark.parametrize("before", ["", " "])
@pytest.mark.parametrize(
    "number",
    ["7", "-0", "1.0", "0.10", "1E+5", "12345678901234567.1", "12345678901234567.2", "1e400", "1e999", "9" * 5000],
    ids=lambda number: number[:20],
)
def test_a_number_in_json_is_its_text(before: str, number: str) -> None:
    """Two numbers that one double stands for are two ids."""
    batch = pa.record_batch({"value": [f'{before}{{"a": [1.5], "b": {{"id": {number}}}}}']})
    assert ids_of(batch, "json:b.id") == [number.encode()]


def test_other_values_in_json_as_ids() -> None:
    """Texts without quotes, booleans as in JSON; nothing else is one."""
    values = ['"1.0"', "true", "false", "null", "[1]", "{}", "NaN"]
    batch = pa.record_batch({"value": [f'{{"id": {value}}}' for value in values]})
    assert ids_of(batch, "json:id") == [b"1.0", b"true", b"false", None, None, None, b"NaN"]


def test_id_of_a_place() -> None:
    """From columns of the usual names or others; without a topic's, it is that of the one topic. Without a part,
    there is no id."""
    columns = {"topic": ["t", "u", None], "partition": [1, None, 2], "offset": [5, 6, 7]}
    batch = pa.record_batch(columns)
    assert ids_of(batch, "place", "t", "u") == [b"t-1@5", None, None]
    assert ids_of(batch.rename_columns(["a", "b", "c"]), "place:a,b,c", "t") == [b"t-1@5", None, None]
    assert ids_of(batch.select(["partition", "offset"]), "place", "x") == [b"x-1@5", None, b"x-2@7"]
    with raises("EOS_VERIFY_IMPOSSIBLE.no_topic"):
        ids_of(batch.select(["partition", "offset"]), "place", "x", "y")


def rows_of(address: TableAddress, *columns: str) -> list[dict[str, Any]]:
    snapshot = address.open()
    found = [row for batch in snapshot.batches(columns) for row in batch.to_pylist()]
    assert snapshot.rows() == len(found)
    return found


def file_of(table: Path, name: str, **columns: list[Any]) -> dict[str, Any]:
    rows = pa.table(columns)
    pq.write_table(rows, table / name)
    size, stats = (table / name).stat().st_size, json.dumps({"numRecords": rows.num_rows})
    return {
        "path": name,
        "size": size,
        "partitionValues": {},
        "modificationTime": 0,
        "dataChange": True,
        "stats": stats,
    }


def without(file: dict[str, Any], *numbers: int) -> dict[str, Any]:
    """The file with a deletion vector, within the log, for these rows: a bitmap with one container."""
    container = struct.pack(f"<{len(numbers)}H", *numbers)
    bitmap = struct.pack("<iiHHi", 12346, 1, 0, len(numbers) - 1, 16) + container
    data = struct.pack("<iqi", 1681511377, 1, 0) + bitmap
    vector = {"storageType": "i", "pathOrInlineDv": z85(data), "sizeInBytes": len(data)}
    return file | {"deletionVector": vector | {"cardinality": len(numbers)}}


def z85(data: bytes) -> str:
    """ZeroMQ's text of bytes: five characters for each four."""
    digits = string.digits + string.ascii_lowercase + string.ascii_uppercase + ".-:+=^!/*?&<>()[]{}@%$#"
    words = struct.iter_unpack(">I", data + bytes(-len(data) % 4))
    return "".join(digits[word // 85**n % 85] for (word,) in words for n in range(4, -1, -1))


def field(name: str, type_: str, **more: object) -> dict[str, Any]:
    return {"name": name, "type": type_, "nullable": True, "metadata": more}


def test_rows_under_deletion_vectors_are_not_there(tmp_path) -> None:
    """As other writers delete rows without a new file."""
    both = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **both}}
    file = file_of(tmp_path, "a.parquet", n=list(range(6)))
    add_version(tmp_path, protocol, metadata_action([field("n", "long")], {}), {"add": file})
    removed = {"path": "a.parquet", "dataChange": True, "deletionTimestamp": 0}
    add_version(
        tmp_path,
        {"remove": removed},
        {"add": without(file, 1, 4)},
        {"commitInfo": {"operation": "DELETE", "timestamp": 0}},
    )
    address = address_of(f"delta:{tmp_path}")
    assert [row["n"] for row in rows_of(address, "n")] == [0, 2, 3, 5]
    (removal,) = address.open().removals()
    assert removal.startswith("DELETE at ")


def test_renamed_columns_have_their_values(tmp_path) -> None:
    """By the names in the files, where the table maps columns."""
    mapped = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
    names = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    others = {"delta.columnMapping.id": 2, "delta.columnMapping.physicalName": "the id"}
    fields = [field("the id", "long", **names), field("col-1", "string", **others)]
    file = file_of(tmp_path, "a.parquet", **{"col-1": [1, 2], "the id": ["x", "y"]})
    protocol = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
    add_version(tmp_path, protocol, metadata_action(fields, mapped), {"add": file})
    assert rows_of(address_of(f"delta:{tmp_path}"), "the id", "col-1") == [
        {"the id": 1, "col-1": "x"},
        {"the id": 2, "col-1": "y"},
    ]


def test_a_table_is_read_as_it_was_when_it_was_opened(tmp_path) -> None:
    """What is appended or deleted later does not count."""
    write_deltalake(tmp_path, pa.table({"n": [1, 2]}))
    snapshot = address_of(f"delta:{tmp_path}").open()
    write_deltalake(tmp_path, pa.table({"n": [3]}), mode="overwrite")
    assert [row for batch in snapshot.batches(["n"]) for row in batch.column(0).to_pylist()] == [1, 2]
    assert snapshot.rows() == 2


def test_a_table_in_an_object_store(tmp_path) -> None:
    """By the settings that checkpoints have, and by those of its bucket."""
    with object_store(tmp_path) as store:
        keys = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY, "aws_region": "us-east-1"}
        there = {"aws_endpoint_url": f"http://{store.address}", "aws_allow_http": "true"}
        rows = pa.table({"n": [1, 2], "a b": ["x", None]})
        write_deltalake(f"s3://{store.bucket}/t", rows, storage_options=keys | there)
        ours = f"fs.s3a.bucket.{store.bucket}."
        of_bucket = {name.replace("fs.s3a.", ours): value for name, value in store.settings.items()}
        for settings in (store.settings, {**of_bucket, "fs.s3a.endpoint": "http://127.0.0.1:1"}):
            address = address_of(f"delta:s3a://{store.bucket}/t", settings)
            assert rows_of(address, "a b", "n") == [{"a b": "x", "n": 1}, {"a b": None, "n": 2}]


@pytest.mark.parametrize(("text", "module"), [("delta:/t", "deltalake"), ("iceberg:a.b", "pyiceberg")])
def test_without_the_library_the_extra_is_named(not_installed, text, module) -> None:
    """For each kind of table."""
    not_installed(module)
    with raises("EOS_NOT_INSTALLED.extra", module):
        address_of(text).open()


def test_no_error_has_a_secret_or_a_user_of_an_address() -> None:
    """Of a setting, and of what the catalog hands out; nor what is left of a secret that has another one in it."""
    address = address_of("iceberg:a.b", {"catalog.uri": "https://bob:pa/sswd@db/cat", "s3.access-key-id": "minio"})
    secrets = {"s3.endpoint": "https://bob:pa/sswd@store/s3", "s3.secret-access-key": "minio123"}
    with raises("EOS_VERIFY_IMPOSSIBLE.table", "ValueError: no *** at") as caught, address.refused(secrets):
        raise ValueError("no minio123 at 'https://bob:pa/sswd@db/v1' or 'https://bob:pa/sswd@store/v1'")
    assert [part for part in ("bob", "sswd", "minio", "123") if part in str(caught.value)] == []
