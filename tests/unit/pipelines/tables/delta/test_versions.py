"""What versions of a table append or change, against what delta-rs lists; and what is refused, by logs made for it."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_eos.errors import EosError
from spark_eos.pipelines.tables.delta.log import TableLog
from spark_eos.pipelines.tables.delta.source import SourceTable, source_table
from spark_eos.pipelines.tables.delta.table import Location
from spark_eos.pipelines.tables.delta.versions import path_of
from tests.support.judges.conditions import raises
from tests.support.runs.input_counts import COUNTS
from tests.support.tables.delta_files import add_version


def opened(path: Path, *, changes: bool = False) -> SourceTable:
    return source_table(Location(str(path), str(path)), changes=changes)


def append(path: Path, *values: str, **more: Any) -> None:
    write_deltalake(str(path), pa.table({"value": list(values)}), mode="append", **more)


def listed(path: Path, version: int) -> set[str]:
    """The files of a version, as delta-rs lists them."""
    return {str(Path(uri).relative_to(path)) for uri in DeltaTable(str(path), version=version).file_uris()}


def log_file(path: Path, version: int) -> Path:
    return path / "_delta_log" / f"{version:020d}.json"


def added(name: str = "a.parquet", **more: Any) -> dict[str, Any]:
    return {"add": {"path": name, "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True} | more}


def removed(name: str = "a.parquet", **more: Any) -> dict[str, Any]:
    return {"remove": {"path": name, "partitionValues": {}, "size": 2, "dataChange": True} | more}


def changed(name: str = "_change_data/c.parquet", **more: Any) -> dict[str, Any]:
    return {"cdc": {"path": name, "partitionValues": {}, "size": 3, "dataChange": False} | more}


def metadata_of(path: Path, version: int = 0) -> dict[str, Any]:
    lines = map(json.loads, log_file(path, version).read_text().splitlines())
    found: dict[str, Any] = next(line["metaData"] for line in lines if "metaData" in line)
    return found


def stopped(ask: Callable[..., object], *arguments: Any, **more: Any) -> EosError:
    """The error with which a query stops when it asks this."""
    with pytest.raises(EosError) as error:
        ask(*arguments, **more)
    return error.value


def refusal(path: Path, *actions: dict[str, Any], changes: bool = False) -> EosError:
    """Why a version that comes while the query runs is refused."""
    log = TableLog(opened(path, changes=changes))
    return stopped(log.files, add_version(path, *actions))


RECORDED = {"delta.enableChangeDataFeed": "true"}
MAPPED = {"delta.columnMapping.mode": "name"}


@pytest.fixture
def path(tmp_path) -> Path:
    """Of a table with one version that has a row."""
    append(tmp_path / "table", "0")
    return tmp_path / "table"


@pytest.fixture
def feed(tmp_path) -> Path:
    """Of such a table that records its changes."""
    append(tmp_path / "feed", "0", configuration=RECORDED)
    return tmp_path / "feed"


def test_each_version_has_the_files_that_it_appended(path) -> None:
    """OPTIMIZE appends none, and a version that is not there yet is none."""
    for n in range(1, 4):
        append(path, str(n))
    DeltaTable(str(path)).optimize.compact()
    append(path, "5")
    log = TableLog(opened(path))
    for version in (0, 1, 2, 3, 5):
        before = listed(path, version - 1) if version else set()
        found = log.files(version)
        assert found is not None and set(found.files["path"].to_pylist()) == listed(path, version) - before
    compacted = log.files(4)
    assert compacted is not None and compacted.files.num_rows == 0 and listed(path, 4) != listed(path, 3)
    assert log.files(6) is None


def test_partitions_and_names_are_those_of_the_files(tmp_path) -> None:
    """Whatever characters they have, by the log and by delta-rs."""
    path = tmp_path / "table"
    rows = {"value": ["a", "b", "c"], "p": ["1 2", "ü%/=x", None], "q": pa.array([1, None, 3], pa.int32())}
    write_deltalake(str(path), pa.table(rows), partition_by=["q", "p"])
    log = TableLog(opened(path))
    by_log, by_library = log.files(0), log.first(0)
    assert by_log is not None
    found = sorted(by_log.files.to_pylist(), key=lambda row: row["path"])
    assert found == by_library.files.to_pylist()
    assert sorted(json.loads(row["partition"]) for row in found if "1 2" in row["partition"]) == [["1", "1 2"]]
    assert all((path / row["path"]).stat().st_size == row["size"] for row in found)


def test_partitions_are_the_same_texts_whichever_way_they_are_read(tmp_path) -> None:
    """Whoever wrote them: the name of null in directories is a string in a log."""
    path, texts = tmp_path / "table", ["__HIVE_DEFAULT_PARTITION__", "null", "", None, "ü"]
    DeltaTable.create(str(path), pa.schema({"value": pa.string(), "p": pa.string()}), partition_by=["p"])
    add_version(path, *(added(f"{n}.parquet", partitionValues={"p": text}) for n, text in enumerate(texts)))
    log = TableLog(opened(path))
    found = log.files(1)
    assert found is not None
    assert [json.loads(row) for row in found.files["partition"].to_pylist()] == [[text or None] for text in texts]
    assert log.first(1).files.equals(found.files)


def test_the_first_files_are_in_the_same_order_with_and_without_a_checkpoint(path) -> None:
    """And have one mark."""
    for n in range(1, 12):
        add_version(path, added(f"{n}.parquet"))
    before = TableLog(opened(path)).first(11)
    DeltaTable(str(path)).create_checkpoint()
    add_version(path, added("12.parquet"))
    after = TableLog(opened(path)).first(11)
    assert before.mark == after.mark and before.files.equals(after.files)
    assert before.files["path"].to_pylist() == sorted(listed(path, 11))


VECTOR = {"storageType": "u"}
KNOWN = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": []}


@pytest.mark.parametrize(
    ("changes", "actions", "entry"),
    [
        (False, [{"remove": {"path": "a", "dataChange": True}}], "EOS_DELTA_ROWS_CHANGED"),
        (False, [added(deletionVector=VECTOR)], "EOS_DELTA_TABLE_SETTINGS.reading"),
        (False, [added(deletionVector=VECTOR), removed()], "EOS_DELTA_ROWS_CHANGED"),
        (False, [added("s3://b/a.parquet")], "EOS_DELTA_TABLE_SETTINGS.outside"),
        (False, [added(), added()], "EOS_DELTA_LOG_DAMAGED"),
        (False, [added(partitionValues={"p": "1"})], "EOS_DELTA_LOG_DAMAGED"),
        (False, [{"add": {"path": "a", "partitionValues": {}, "size": 1}}], "EOS_DELTA_LOG_DAMAGED"),
        (False, [added(size=1 << 63)], "EOS_DELTA_LOG_DAMAGED"),
        (False, [added(size=math.inf)], "EOS_DELTA_LOG_DAMAGED"),
        (False, [added("\ud800.parquet")], "EOS_DELTA_LOG_DAMAGED"),
        (False, [{"protocol": {"minReaderVersion": 4, "minWriterVersion": 7}}], "EOS_DELTA_TABLE_SETTINGS.reading"),
        (False, [{"protocol": KNOWN | {"readerFeatures": ["typeWidening"]}}], "EOS_DELTA_TABLE_SETTINGS.reading"),
        (False, [{"protocol": KNOWN | {"writerFeatures": ["unheardOf"]}}], "EOS_DELTA_TABLE_SETTINGS.reading"),
        (True, [added(deletionVector=VECTOR)], "EOS_DELTA_TABLE_SETTINGS.reading"),
        (True, [added("b", deletionVector=VECTOR), changed()], "EOS_DELTA_TABLE_SETTINGS.reading"),
        (True, [removed(deletionVector=VECTOR)], "EOS_DELTA_TABLE_SETTINGS.reading"),
        (True, [added("a"), removed("a")], "EOS_DELTA_TABLE_SETTINGS.reading"),
        (True, [removed(size=None)], "EOS_DELTA_TABLE_SETTINGS.reading"),
        (True, [removed("s3://b/a.parquet")], "EOS_DELTA_TABLE_SETTINGS.outside"),
        (True, [removed(), removed()], "EOS_DELTA_LOG_DAMAGED"),
        (True, [changed(), changed()], "EOS_DELTA_LOG_DAMAGED"),
        (True, [changed(partitionValues=None)], "EOS_DELTA_LOG_DAMAGED"),
        (True, [changed(size=None)], "EOS_DELTA_LOG_DAMAGED"),
        (True, [removed(partitionValues={"p": "1"})], "EOS_DELTA_LOG_DAMAGED"),
    ],
)
def test_what_a_version_may_not_have_is_refused(feed, changes, actions, entry) -> None:
    """By name; of changes also where files of changes would do, as the next version may have none."""
    assert refusal(feed, *actions, changes=changes).entry == entry


PARTS = ["..", ".", "", "a", "%2e%2e", "%2E.", "%252e%252e", "p=..", "...", "..%2f", "%2f", "%252f", "a%00", "%5c.."]
BEGINNINGS = ["", "", "", "/", "//host/", "%2F", "file:", "FILE:///", "s3://b/", "s3a:/", "hdfs:", "a:b/", "p=1:2/"]


def generated_path(seed: int) -> str:
    random = Random(seed)
    return random.choice(BEGINNINGS) + "/".join(random.choices(PARTS, k=random.randint(1, 5)))


def is_inside(root: Path, path: str) -> bool:
    """Whether it is a relative URI, and its decoded path below the root, by libraries alone."""
    parts = urlsplit(path)
    decoded = unquote(parts.path)
    if parts.scheme or parts.netloc or "\0" in decoded:
        return False
    joined = (root / decoded).resolve()
    return joined != root and joined.is_relative_to(root)


@COUNTS
def test_no_path_of_a_log_leads_out_of_the_table(path, count) -> None:
    """Whatever is accepted is below the table's folder, and each file has one path."""
    table, accepted, inside = opened(path), 0, 0
    for seed in range(count):
        given = generated_path(seed)
        inside += is_inside(path, given)
        try:
            name = path_of(table, given)
        except EosError as error:
            assert error.entry == "EOS_DELTA_TABLE_SETTINGS.outside"
            assert not is_inside(path, given) or {".", "..", ""} & set(unquote(given).split("/")), given
            continue
        accepted += 1
        assert is_inside(path, given) and str((path / name).resolve()) == f"{path}/{name}", given
    assert 0 < accepted < inside < count


def test_a_version_that_is_cut_off_is_refused(path) -> None:
    """Half an action is none; nor are lists within lists beyond what Python parses."""
    log = TableLog(opened(path))
    version = add_version(path, added())
    for text in (json.dumps(added())[:-9], "[" * 100_000):
        log_file(path, version).write_text(text)
        assert stopped(log.files, version).condition == "EOS_DELTA_LOG_DAMAGED"


def test_changes_of_columns_id_and_mapping_are_refused(path) -> None:
    """New columns since the query started; before that, they are known. Files of a mapping have other names of
    columns."""
    metadata = metadata_of(path)
    field = {"name": "more", "type": "long", "nullable": True, "metadata": {}}
    schema = json.loads(metadata["schemaString"])
    wider = metadata | {"schemaString": json.dumps(schema | {"fields": [*schema["fields"], field]})}
    assert refusal(path, {"metaData": wider}).condition == "EOS_DELTA_SCHEMA_CHANGED"
    assert TableLog(opened(path)).files(1) is not None
    assert refusal(path, {"metaData": wider | {"id": "another"}}).condition == "EOS_OTHER_TABLE"
    log_file(path, 2).unlink()
    assert refusal(path, {"metaData": wider | {"configuration": MAPPED}}).entry == "EOS_DELTA_TABLE_SETTINGS.reading"


MAPPING_PROTOCOL = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}


@pytest.fixture(params=[False, True], ids=["appends", "changes"])
def later(request, feed) -> tuple[Path, bool]:
    """The path of a table, and whether its changes are read."""
    return feed, request.param


def test_a_beginning_with_what_the_table_no_longer_has_is_refused(later) -> None:
    """Its metadata and protocol may be of a version before that: with column mapping, files have other names of
    columns, and would be read as nulls."""
    path, changes = later
    metadata = metadata_of(path)
    mapped = metadata | {"configuration": metadata["configuration"] | MAPPED}
    schema = json.loads(metadata["schemaString"])
    for number, field in enumerate(schema["fields"], 1):
        names = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
        field["metadata"] = names
    begun = add_version(path, MAPPING_PROTOCOL, {"metaData": mapped | {"schemaString": json.dumps(schema)}})
    between = add_version(path, added())
    ended = add_version(path, {"metaData": metadata})
    log = TableLog(opened(path, changes=changes))
    assert log.files(between) is not None
    for version in (begun, between):
        for check in (log.check_begin, log.first):
            with raises("EOS_DELTA_TABLE_SETTINGS.reading", f"columnMapping.mode=name in version {version}"):
                check(version)
    for version in (0, ended):
        log.check_begin(version)


def test_a_beginning_with_a_feature_that_was_dropped_is_refused(later) -> None:
    """By the protocol of that version, also where delta-rs cannot open it."""
    path, changes = later
    of_writers = {"writerFeatures": ["unheardOf"]}
    of_all = of_writers | {"readerFeatures": ["unheardOf"]}
    for features, entry in ((of_writers, "EOS_DELTA_TABLE_SETTINGS.reading"), (of_all, "EOS_DELTA_FAILED")):
        add_version(path, {"protocol": KNOWN | features})
        version = add_version(path, added())
        add_version(path, {"protocol": KNOWN})
        assert stopped(TableLog(opened(path, changes=changes)).check_begin, version).entry == entry


def test_a_beginning_with_other_partition_columns_is_refused(later) -> None:
    """Of which files have no values."""
    path, changes = later
    write_deltalake(str(path), pa.table({"value": ["1"], "p": ["x"]}), mode="append", schema_mode="merge")
    add_version(path, {"metaData": metadata_of(path, 1) | {"partitionColumns": ["p"]}})
    log = TableLog(opened(path, changes=changes))
    log.check_begin(2)
    for check in (log.check_begin, log.first):
        with raises("EOS_DELTA_TABLE_SETTINGS.reading", "other partition columns in version 1"):
            check(1)


def test_appends_begin_with_any_version_that_a_cleaned_log_still_has(feed) -> None:
    """What the table was then, nobody can say: nor which files it had, nor whether it recorded its changes."""
    path = feed
    for value in ("1", "2", "3"):
        append(path, value)
    DeltaTable(str(path)).create_checkpoint()
    log_file(path, 0).unlink()
    assert stopped(TableLog(opened(path, changes=True)).check_begin, 1).entry == "EOS_DELTA_DATA_LOSS.log"
    log = TableLog(opened(path))
    for version in (1, 2, 3):
        log.check_begin(version)
        assert log.files(version) is not None
    assert stopped(log.first, 1).entry == "EOS_DELTA_DATA_LOSS.log"
    assert log.first(3).files.num_rows == 4
    (checkpoint,) = path.glob("_delta_log/*.checkpoint.parquet")
    checkpoint.write_bytes(b"")
    for ask in (log.first, log.check_begin):  # a store that fails now is no log that was cleaned
        assert stopped(ask, 2).entry == "EOS_DELTA_FAILED"
    shutil.rmtree(path)
    assert stopped(log.first, 2).entry == "EOS_DELTA_NO_TABLE.path"


def test_comments_and_properties_change_nothing(path) -> None:
    """As ALTER TABLE … SET TBLPROPERTIES does."""
    metadata = metadata_of(path) | {"description": "a table", "configuration": {"delta.appendOnly": "true"}}
    log = TableLog(opened(path))
    version = add_version(path, {"metaData": metadata}, added())
    found = log.files(version)
    assert found is not None and found.files["path"].to_pylist() == ["a.parquet"]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_version_that_is_gone_is_not_one_that_is_still_to_come(path, checkpoint) -> None:
    """The next one, or a checkpoint, shows the difference."""
    for n in (1, 2, 3):
        append(path, str(n))
    table = opened(path)
    if checkpoint:
        DeltaTable(str(path)).create_checkpoint()
        log_file(path, 2).unlink()
        log_file(path, 3).unlink()
    else:
        log_file(path, 2).unlink()
    assert stopped(TableLog(table).files, 2).entry == "EOS_DELTA_DATA_LOSS.log"
    assert TableLog(table).files(4) is None


def test_a_table_that_was_recreated_or_put_back_is_noticed(path, tmp_path) -> None:
    """By the JSON that was read, or where that is gone, by its id and version."""
    append(path, "1")
    log = TableLog(opened(path))
    mark = log.mark(1)
    assert mark is not None
    log.check(1, mark)
    shutil.copytree(path, tmp_path / "copy")
    log_file(path, 1).unlink()
    with pytest.raises(EosError, match="at version 0"):
        log.check(1, mark)
    shutil.rmtree(path)
    assert stopped(log.check, 1, mark).condition == "EOS_DELTA_NO_TABLE"
    for n in ("0", "1"):
        append(path, n)
    assert stopped(log.check, 1, mark).condition == "EOS_OTHER_TABLE"


@pytest.mark.parametrize("last_checkpoint", ["as it is", "missing", "garbage", "older"])
def test_versions_that_are_gone_are_not_waited_for(path, last_checkpoint) -> None:
    """Though nothing but the newest version shows that they were there."""
    for n in range(1, 12):
        add_version(path, added(f"{n}.parquet"))
    log = TableLog(opened(path))
    marks = {version: log.mark(version) for version in (2, 7, 8, 11)}
    DeltaTable(str(path)).create_checkpoint()
    told = path / "_delta_log" / "_last_checkpoint"
    if last_checkpoint == "missing":
        told.unlink()
    elif last_checkpoint != "as it is":
        told.write_text({"garbage": "{", "older": '{"version": 1, "size": 1}'}[last_checkpoint])
    for version in range(9):
        log_file(path, version).unlink()
    log = TableLog(opened(path))
    for version in (2, 7):
        with raises("EOS_DELTA_DATA_LOSS.log", f"version {version + 1} of"):
            log.check(version, str(marks[version]))
    for version in (8, 11):
        log.check(version, str(marks[version]))
    for version in (9, 10, 11):
        log_file(path, version).unlink()
    log.check(11, str(marks[11]))
    assert log.files(12) is None


@pytest.mark.parametrize(
    ("schema", "partition_by", "entry"),
    [
        ({"value": pa.string(), "at": pa.timestamp("us", "UTC")}, ["at"], "EOS_DELTA_TABLE_SETTINGS.reading"),
        ({"value": pa.string(), "p": pa.float64()}, ["p"], "EOS_TABLE_COLUMNS.partition"),
    ],
)
def test_partition_columns_without_one_meaning_are_refused(tmp_path, schema, partition_by, entry) -> None:
    """At the start."""
    DeltaTable.create(str(tmp_path / "t"), pa.schema(list(schema.items())), partition_by=partition_by)
    assert stopped(opened, tmp_path / "t").entry == entry


def test_a_column_mapping_is_refused_at_the_start(path) -> None:
    """As is a place without a table."""
    add_version(path, MAPPING_PROTOCOL, {"metaData": metadata_of(path) | {"configuration": MAPPED}})
    assert stopped(opened, path).condition in ("EOS_DELTA_TABLE_SETTINGS", "EOS_DELTA_FAILED")
    assert stopped(opened, path / "none").condition == "EOS_DELTA_NO_TABLE"


# Changes


@pytest.mark.parametrize(
    ("actions", "kinds"),
    [
        ([added()], ["insert a.parquet"]),
        ([removed()], ["delete a.parquet"]),
        ([added("b"), removed("a"), added("c"), removed("d")], ["delete a", "delete d", "insert b", "insert c"]),
        ([added("b"), removed("a"), changed("_change_data/c%2520d")], ["change _change_data/c%20d"]),
        ([added("b", dataChange=False), removed("a", dataChange=False)], []),
        ([added("b"), removed("a", dataChange=False)], ["insert b"]),
        ([], []),
    ],
)
def test_a_version_has_the_files_of_its_changes(feed, actions, kinds) -> None:
    """Where there are files of changes, these are all; otherwise what it removes, and then what it adds."""
    log = TableLog(opened(feed, changes=True))
    found = log.files(add_version(feed, *actions))
    assert found is not None
    assert [f"{row['kind']} {row['path']}" for row in found.files.to_pylist()] == kinds


def test_a_removed_file_needs_the_values_of_its_partition(tmp_path) -> None:
    """Which the log may leave out."""
    rows = pa.table({"value": ["a"], "p": ["x"]})
    write_deltalake(str(tmp_path / "t"), rows, partition_by=["p"], configuration=RECORDED)
    log = TableLog(opened(tmp_path / "t", changes=True))
    found = log.files(add_version(tmp_path / "t", removed(partitionValues={"p": "x"})))
    assert found is not None and found.files["partition"].to_pylist() == ['["x"]']
    assert (
        stopped(log.files, add_version(tmp_path / "t", removed(partitionValues=None))).entry
        == "EOS_DELTA_TABLE_SETTINGS.reading"
    )


def test_a_table_that_does_not_record_its_changes_is_refused(path, feed) -> None:
    """At the start, by a version that ends it, and at a version before it began."""
    assert stopped(opened, path, changes=True).entry == "EOS_DELTA_TABLE_SETTINGS.change_feed"
    log = TableLog(opened(feed, changes=True))
    ended = metadata_of(feed) | {"configuration": {"delta.enableChangeDataFeed": "false"}}
    assert stopped(log.files, add_version(feed, {"metaData": ended})).entry == "EOS_DELTA_TABLE_SETTINGS.changes"
    append(path, "1")
    DeltaTable(str(path)).alter.set_table_properties(RECORDED)
    append(path, "3")
    later = TableLog(opened(path, changes=True))
    for version in (2, 3):
        later.check_begin(version)
        assert later.files(version) is not None
    with raises("EOS_DELTA_TABLE_SETTINGS.changes", "version 1 of"):
        later.check_begin(1)
    assert stopped(later.first, 1).entry == "EOS_DELTA_TABLE_SETTINGS.changes"


def test_columns_that_changes_have_are_refused(feed) -> None:
    """In any spelling: a reader could not tell which is which."""
    rows = pa.table({"value": ["1"], "_Change_Type": ["x"]})
    write_deltalake(str(feed), rows, mode="append", schema_mode="merge")
    with raises("EOS_DELTA_TABLE_SETTINGS.reading", "the column _Change_Type beside"):
        opened(feed, changes=True)
    opened(feed)
