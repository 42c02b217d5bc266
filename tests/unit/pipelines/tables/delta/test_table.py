"""Where tables are, what of them is kept, and what is refused by name."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.errors import EosError, TableError
from spark_eos.pipelines.tables.delta.creation import known
from spark_eos.pipelines.tables.delta.put_if_absent import check_put_if_absent
from spark_eos.pipelines.tables.delta.table import check_appendable, location_of
from spark_eos.pipelines.tables.delta.target import DeltaReference
from spark_eos.source.schema import arrow_schema
from tests.support.judges.conditions import raises
from tests.support.servers.s3_stand_in import FINE, LOSE_REPLY, s3_stand_in
from tests.support.tables.delta_files import SCHEMA, WatchedLocation, add_version, metadata_action

S3A = {"fs.s3a.access.key": "a-key", "fs.s3a.secret.key": "a-secret", "fs.s3a.endpoint": "store:9000"}


def location(path: str, settings: dict[str, str] | None = None):
    return location_of(path, HadoopSettings(settings or {}))


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("/data/t", "/data/t"),
        ("file:/data/t", "/data/t"),
        ("file:///data/a:t", "/data/a:t"),
        ("/data/a:t", "/data/a:t"),
        ("/data/link/..//t", "/data/t"),
        ("s3a://bucket/a/t", "s3://bucket/a/t"),
        ("s3://bucket/t", "s3://bucket/t"),
    ],
)
def test_locations_are_those_of_spark(path, uri) -> None:
    """Relative ones are the driver's: tasks may have another folder."""
    assert location(path).uri == uri
    assert location("t").path == location("t").uri == str(Path.cwd() / "t")


AMBIGUOUS = ["a?b", "a#b", "a%20b", "a ", "a\\b", "a\nb", "a/../b", "./a", "a//b", "..", "a?", "a#"]
#: Addresses that are refused, and what the error says.
REFUSED = [
    *((path, f"Option 'path' is {path}") for path in ("hdfs://host/t", "dbfs:/t", "s3a:///t", "abfss://c@a.net/t")),
    *((path, "s3a://BUCKET/PATH") for path in ("file:t", "file://host/data/t")),
    *((f"s3a://bucket/{path}", "characters that can stand for something else") for path in AMBIGUOUS),
    # delta-rs decodes these in a local path, too
    *((begin + path, "something else") for begin in ("/data/", "file:/data/") for path in ("a%20b", "a\\b")),
    # as Hadoop refuses credentials; secret keys may have slashes
    *((f"s3a://a-key:{secret}@bucket/t", "credentials") for secret in ("rosebud", "rose/bud", "rose@bud")),
]


@pytest.mark.parametrize(("path", "says"), REFUSED)
def test_an_address_of_no_one_place_is_refused(path, says) -> None:
    """Of another file system, or one that Spark, tasks and delta-rs could take for different places."""
    with pytest.raises(EosError) as error:
        location(path)
    assert says in error.value.message + error.value.hint and "rose" not in repr(error.value)


@pytest.mark.parametrize("default", ["hdfs://name:8020", "s3a://bucket", "S3A://bucket/"])
def test_a_path_on_another_default_file_system_is_refused(default) -> None:
    """Tasks would write its files there, and delta-rs its log to a local disk."""
    with raises("EOS_OPTION_INVALID.value", default):
        location("/data/t", {"fs.defaultFS": default})
    assert location("file:/data/t", {"fs.defaultFS": default}).uri == "/data/t"
    assert location("/data/t", {"fs.defaultFS": "file:///"}).uri == "/data/t"


@pytest.mark.parametrize("name", ["a b", "a?b", "a#b", "ä", "p=1", "a:b", "a+b", "~", "a "])
def test_a_local_table_is_where_its_files_are(tmp_path, name) -> None:
    """Whatever the name of its folder is."""
    here = location(str(tmp_path / name))
    known(here, SCHEMA)
    assert here.has(f"_delta_log/{0:020d}.json") and [one.name for one in tmp_path.iterdir()] == [name]


def test_settings_of_hadoop_become_options_of_the_store() -> None:
    """Those of the bucket before those of all buckets; secrets do not print."""
    more = {"fs.s3a.bucket.b.secret.key": "b-secret", "fs.s3a.path.style.access": "true"}
    plain = location("s3a://b/t", S3A | more | {"fs.s3a.connection.ssl.enabled": "false"})
    assert (
        plain.options.items()
        >= {
            "aws_access_key_id": "a-key",
            "aws_secret_access_key": "b-secret",
            "aws_endpoint_url": "http://store:9000",
            "aws_allow_http": "true",
            "aws_virtual_hosted_style_request": "false",
        }.items()
    )
    assert "secret-" not in repr(plain) and "b-secret" not in repr(plain)
    tls = location("s3a://c/t", S3A).options
    assert tls["aws_endpoint_url"] == "https://store:9000" and "aws_allow_http" not in tls
    assert "aws_endpoint_url" not in location("s3a://c/t", {"fs.s3a.endpoint": "s3.amazonaws.com"}).options


def test_a_table_is_created_where_there_is_none(tmp_path) -> None:
    """And found again, with the columns of records, headers included."""
    place = location(str(tmp_path / "deep" / "t"))
    created = known(place, arrow_schema(include_headers=True), ["topic"])
    assert known(place, arrow_schema(include_headers=True)) == created  # it keeps its own partition columns
    assert DeltaTable(place.uri).metadata().partition_columns == ["topic"]
    with raises("EOS_TABLE_DIFFERS", "headers is not written"):
        known(place, arrow_schema(include_headers=False))
    with raises("EOS_DELTA_NO_TABLE"):
        known(location(str(tmp_path / "gone")), SCHEMA, create=False)


def test_no_table_is_created_that_tasks_could_not_write_to(tmp_path) -> None:
    """Else every start would find it, and no option could change it."""
    with pytest.raises(EosError, match="partitioned by key: the column is binary"):
        known(location(str(tmp_path / "t")), arrow_schema(include_headers=True), ["key"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"delta.enableDeletionVectors": "true"}, None),
        ({"delta.columnMapping.mode": "name"}, None),
        ({"delta.setTransactionRetentionDuration": "interval 1 day"}, None),
        ({"delta.deletedFileRetentionDuration": "soon"}, None),
        ({"delta.deletedFileRetentionDuration": "interval 0 hours"}, None),
        ({"delta.constraints.c": "offset > 5"}, None),
        ({"delta.inCommitTimestamp.enabled": "true"}, None),
        ({"delta.nosuch": "x"}, None),
        ({"delta.minReaderVersion": "3"}, None),
        ({"delta.appendOnly": "true", "delta.enableDeletionVectors": "true"}, "delta.enableDeletionVectors=true"),
    ],
    ids=str,
)
def test_no_table_is_created_with_properties_that_would_refuse_each_start(tmp_path, given, named) -> None:
    """They are named alone; without them, the next start creates the table."""
    here = location(str(tmp_path / "t"))
    with pytest.raises(TableError) as error:
        known(here, SCHEMA, properties=given)
    assert error.value.entry == "EOS_DELTA_TABLE_SETTINGS.new" and list(tmp_path.iterdir()) == []
    (only,) = [f"{name}={value}" for name, value in given.items()] if named is None else [named]
    assert error.value.parameters["properties"] == only
    known(here, SCHEMA)


def test_a_table_is_created_with_properties_that_bind_no_append(tmp_path) -> None:
    """And has them."""
    given = {"delta.appendOnly": "true", "delta.enableDeletionVectors": "false", "delta.checkpointPolicy": "v2"}
    given |= {"delta.deletedFileRetentionDuration": "interval 2 days", "delta.enableChangeDataFeed": "true"}
    here = location(str(tmp_path / "t"))
    known(here, SCHEMA, properties=given)
    assert DeltaTable(here.uri).metadata().configuration == given


def test_names_that_need_column_mapping_are_refused(tmp_path) -> None:
    """In new tables and of new columns: otherwise Spark could not write to them."""
    here = location(str(tmp_path / "t"))
    for name in ("a b", "a,b", "a;b", "{", "}", "(", ")", "a\nb", "a\tb", "a=b"):
        for column, kind in ((name, pa.int32()), ("s", pa.list_(pa.struct([(name, pa.int32())])))):
            wide = pa.schema([*SCHEMA, (column, kind)])
            for refused in (
                lambda wide=wide: known(here, wide),
                lambda wide=wide: DeltaReference(here).widened(SCHEMA, wide),
            ):
                with raises("EOS_TABLE_COLUMNS.name"):
                    refused()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("there", "says"),
    [
        ([("topic", pa.string()), ("partition", pa.int32())], "the table has no offset"),
        ([*SCHEMA, pa.field("more", pa.string())], "more is not written"),
        ([("topic", pa.string()), ("partition", pa.int64()), ("offset", pa.int64())], "partition is long in the table"),
        ([("topic", pa.string()), ("partition", pa.int32()), ("OFFSET", pa.int64())], "OFFSET is not written"),
        (
            [SCHEMA.field(0), SCHEMA.field(1), pa.field("offset", pa.int64(), nullable=False)],
            "long NOT NULL in the table",
        ),
    ],
)
def test_a_table_with_other_columns_is_refused(tmp_path, there, says) -> None:
    """Each difference is named."""
    DeltaTable.create(str(tmp_path), pa.schema(there))
    with raises("EOS_TABLE_DIFFERS", says):
        known(location(str(tmp_path)), SCHEMA)


def test_the_order_of_columns_is_the_tables_own(tmp_path) -> None:
    """Files name their columns."""
    DeltaTable.create(str(tmp_path), pa.schema([*reversed(list(SCHEMA))]))
    known(location(str(tmp_path)), SCHEMA)


# Rules


def with_first_version(folder: Path, *, protocol: dict | None = None, properties: dict | None = None, metadata=None):
    """A table whose first version was written by another program."""
    fields = json.loads(Schema.from_arrow(SCHEMA).to_json())["fields"]
    fields[2]["metadata"] = metadata or {}
    protocol = protocol or {"minReaderVersion": 1, "minWriterVersion": 2}
    add_version(folder, {"protocol": protocol}, metadata_action(fields, properties or {}))
    return location(str(folder))


def features(*writer: str, reader: tuple[str, ...] = ()) -> dict:
    found = {"minReaderVersion": 3 if reader else 1, "minWriterVersion": 7, "writerFeatures": [*writer, *reader]}
    return found | ({"readerFeatures": list(reader)} if reader else {})


@pytest.mark.parametrize(
    "parts",
    [
        {"protocol": features("appendOnly", "invariants", "changeDataFeed", "checkConstraints", "generatedColumns")},
        {"protocol": features("appendOnly", reader=("deletionVectors", "v2Checkpoint", "timestampNtz"))},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}},
        {"properties": {"delta.appendOnly": "true", "delta.checkpoint.writeStatsAsJson": "true"}},
        {"properties": {"delta.feature.appendOnly": "supported", "delta.dataSkippingNumIndexedCols": "3"}},
        {"properties": {"delta.autoOptimize.optimizeWrite": "true", "owner": "me"}},
        {"properties": {"delta.columnMapping.mode": "none"}},
        {"metadata": {"comment": "an offset"}},
    ],
)
def test_what_binds_no_append_is_taken(tmp_path, parts) -> None:
    """Features, properties and comments."""
    known(with_first_version(tmp_path, **parts), SCHEMA)


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"properties": {"delta.constraints.small": "offset < 3"}}, "delta.constraints.small=offset < 3"),
        ({"properties": {"delta.columnMapping.mode": "name"}}, "delta.columnMapping.mode=name"),
        ({"properties": {"delta.enableRowTracking": "true"}}, "delta.enableRowTracking=true"),
        ({"properties": {"delta.universalFormat.enabledFormats": "iceberg"}}, "delta.universalFormat"),
        ({"metadata": {"delta.invariants": '{"expression": {"expression": "offset < 3"}}'}}, "on column offset"),
        ({"metadata": {"delta.generationExpression": "partition + 1"}}, "delta.generationExpression on column offset"),
        ({"metadata": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}}, "__CHAR_VARCHAR_TYPE_STRING on column offset"),
        ({"protocol": features("identityColumns")}, "the feature identityColumns"),
        ({"protocol": features("rowTracking", "domainMetadata")}, "the feature rowTracking"),
        ({"protocol": features("inCommitTimestamp")}, "the feature inCommitTimestamp"),
        ({"protocol": features("somethingNew")}, "somethingNew"),
    ],
)
def test_rules_that_files_would_break_are_refused(tmp_path, parts, says) -> None:
    """By name; those that delta-rs itself refuses end by its words."""
    with pytest.raises(TableError) as error:
        known(with_first_version(tmp_path, **parts), SCHEMA)
    assert error.value.entry in ("EOS_DELTA_TABLE_SETTINGS.rules", "EOS_DELTA_FAILED")
    assert says in error.value.message


def test_rules_within_a_type_are_found(tmp_path) -> None:
    """Of a field in an array of structs."""
    header = pa.struct([pa.field("value", pa.binary(), metadata={"a.rule": "x"})])
    DeltaTable.create(str(tmp_path), pa.schema({"headers": pa.list_(pa.field("element", header))}))
    place = location(str(tmp_path))
    with pytest.raises(TableError, match=r"a\.rule on column headers\.value"):
        check_appendable(place, place.open())


# Stores


def test_a_store_that_keeps_conditions_is_taken() -> None:
    """What was tried there is gone afterwards."""
    with s3_stand_in() as store:
        place = store.location("t")
        check_put_if_absent(place)
        assert store.puts and not any(store.objects.values())
        assert known(place, SCHEMA).id


def test_a_store_that_ignores_conditions_is_refused() -> None:
    """Before the table is touched."""
    with s3_stand_in() as store:
        store.conditions = False
        with raises("EOS_DELTA_STORE_UNSAFE"):
            known(store.location("t"), SCHEMA)
        assert not any(store.objects.values())


def test_a_store_is_not_accused_of_what_lost_replies_leave_open() -> None:
    """None of the commits at once knows then that it has succeeded. That round is repeated, a few times."""
    with s3_stand_in() as store:
        commits, lost = Counter(), 1

        def fault(key: str) -> str:
            commits[key] += key.endswith("1.json")
            return LOSE_REPLY if commits[key] == 1 and len(+commits) <= lost else FINE

        store.fault = fault
        check_put_if_absent(store.location("t"))
        assert len(+commits) == 4
        lost = 99
        with raises("EOS_DELTA_FAILED"):
            known(store.location("t"), SCHEMA)


def test_a_store_that_cannot_be_read_while_it_is_tried_stops_the_query(tmp_path) -> None:
    """At once: nothing waits for a commit that does not come."""
    opened: list[DeltaTable] = []

    def twice(handle: DeltaTable) -> DeltaTable:
        opened.append(handle)
        if len(opened) > 2:
            raise OSError("no answer")
        return handle

    with pytest.raises(OSError, match="no answer"):
        check_put_if_absent(WatchedLocation(str(tmp_path), str(tmp_path), watch=twice))


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (["above/t"], "it is a file"),
        (["above"], "is no folder"),
        (["above/t/part-0.parquet"], "has other files: part-0.parquet"),
        (["above/t/day=1/part-0.parquet"], "has other files: day=1"),
        (["above/t/part-0.parquet", "above/t/_delta_log/none"], "has other files: part-0.parquet"),
    ],
)
def test_no_table_is_made_of_what_is_none(made, says, tmp_path: Path) -> None:
    """Readers would miss these files in the table, and VACUUM would remove them."""
    path = tmp_path / "above" / "t"
    for file in made:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("a,b\n")
    before = sorted(tmp_path.rglob("*"))
    place = DeltaReference(location(str(path)))
    for refused in (lambda: known(location(str(path)), SCHEMA), lambda: place.check_new(SCHEMA)):
        with pytest.raises(TableError) as error:
            refused()
        assert error.value.entry.startswith("EOS_DELTA_NO_TABLE.") and says in error.value.message
        assert sorted(tmp_path.rglob("*")) == before


def test_a_table_is_made_beside_what_readers_and_vacuum_leave_alone(tmp_path: Path) -> None:
    """Such as the query's own checkpoint."""
    for name in ("_checkpoint", ".sync"):
        (tmp_path / name).mkdir()
    DeltaReference(location(str(tmp_path))).check_new(SCHEMA)
    assert known(location(str(tmp_path)), SCHEMA).id
