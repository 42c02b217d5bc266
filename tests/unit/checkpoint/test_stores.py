"""A location to a file system: with which arguments each is opened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import chdir
from datetime import timedelta
from typing import Any
from unittest.mock import MagicMock, call

import fsspec
import pyarrow.fs
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from spark_eos.checkpoint import stores
from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.settings import S3A, HadoopSettings
from spark_eos.checkpoint.stores import NoStore, Store, absolute, open_store
from spark_eos.errors import CheckpointError
from tests.support.judges.conditions import raises

HOST = "acc.dfs.core.windows.net"


@pytest.fixture
def pyarrows(environ, monkeypatch: pytest.MonkeyPatch) -> Iterator[MagicMock]:
    """In place of pyarrow's calls that need Java, or ask Amazon. This machine has no region in its environment."""
    pyarrows = MagicMock()
    environ(AWS_REGION=None)
    for name in ("S3FileSystem", "HadoopFileSystem", "resolve_s3_region"):
        monkeypatch.setattr(pyarrow.fs, name, getattr(pyarrows, name))
    yield pyarrows
    stores._opened.cache_clear()


def made_with(files: pyarrow.fs.FileSystem) -> dict[str, Any]:
    """The arguments of a file system, as its pickle has them."""
    _, (arguments,) = files.__reduce__()
    return arguments


@pytest.mark.parametrize(
    ("location", "root"),
    [
        ("/a/b", "/a/b"),
        ("a/b", "a/b"),
        ("a/b:c", "a/b:c"),
        ("file:/a b/c%20d", "/a b/c%20d"),
        ("file:///a", "/a"),
        ("file://localhost/a", "/a"),
        ("file:////a//b/link/../c/./d/", "/a/b/c/d"),
        ("../a", "../a"),
    ],
)
def test_local_places(location, root):
    """Hadoop's rules: a colon behind a slash is part of a name, nothing is decoded, and ``..`` takes away the name
    before it, whatever that is."""
    assert open_store(location, HadoopSettings()) == Store(pyarrow.fs.LocalFileSystem(), root, local=True)


def test_places_are_put_down_whole(tmp_path):
    """The command that finishes a replay may be run in another folder."""
    places = ("new", "s3a://lake/new", "/data/new")
    with chdir(tmp_path):
        assert [absolute(place) for place in places] == [str(tmp_path / "new"), *places[1:]]


REGION, KEYS = {"endpoint.region": "r"}, {"access.key": "A", "secret.key": "B"}
KEYS_OR_NONE = {"aws.credentials.provider": "x.SimpleAWSCredentialsProvider,x.AnonymousAWSCredentialsProvider"}
NOBODY = {"aws.credentials.provider": "x.AnonymousAWSCredentialsProvider"}
ROLE = {"aws.credentials.provider": "x.AssumedRoleCredentialProvider", "assumed.role.arn": "arn:1"}
AMAZON, MINIO = "s3.eu-west-1.amazonaws.com", "minio:9000"


@pytest.mark.parametrize(
    ("settings", "arguments"),
    [
        (REGION, {"region": "r"}),
        (
            KEYS | REGION | {"session.token": "C"},
            {"access_key": "A", "secret_key": "B", "session_token": "C", "region": "r"},
        ),
        (KEYS_OR_NONE | KEYS | REGION, {"access_key": "A", "secret_key": "B", "session_token": None, "region": "r"}),
        (KEYS_OR_NONE | REGION, {"anonymous": True, "region": "r"}),
        (NOBODY | KEYS | REGION, {"anonymous": True, "region": "r"}),
        (ROLE | REGION, {"role_arn": "arn:1", "session_name": None, "external_id": None, "region": "r"}),
        (
            ROLE | REGION | {"assumed.role.session.name": "s", "assumed.role.external.id": "x-1"},
            {"role_arn": "arn:1", "session_name": "s", "external_id": "x-1", "region": "r"},
        ),
        (
            {"endpoint": AMAZON},
            {"endpoint_override": AMAZON, "scheme": "https", "region": "eu-west-1", "force_virtual_addressing": True},
        ),
        (
            {"endpoint": MINIO, "path.style.access": "true", "connection.ssl.enabled": "false"},
            {"endpoint_override": MINIO, "scheme": "http", "region": "us-east-1", "force_virtual_addressing": False},
        ),
    ],
)
@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_s3_by_hadoops_settings(pyarrows, scheme, settings, arguments):
    """Settings of the bucket take precedence over those of all buckets."""
    of_all = {f"fs.s3a.{name}": value for name, value in settings.items()}
    of_bucket = dict.fromkeys(of_all, "wrong") | {f"fs.s3a.bucket.lake.{name}": v for name, v in settings.items()}
    for given in (of_all, of_bucket):
        assert open_store(f"{scheme}://lake/a/b", HadoopSettings(given)).root == "lake/a/b"
    assert pyarrows.S3FileSystem.call_args_list == [call(connect_timeout=5, **arguments)] * 2


def test_each_setting_of_s3_that_is_taken_is_used(pyarrows):
    """What is taken without an effect would be missed in the store."""
    looked_up: set[str] = set()

    class Noting(HadoopSettings):
        def get(self, name, default=None):
            looked_up.add(name)
            return super().get(name, default)

    values = {f"fs.s3a.{name}": "x" for name in S3A}
    for provider in ("x.AssumedRoleCredentialProvider", "x"):
        open_store("s3a://lake", Noting(values | {"fs.s3a.aws.credentials.provider": provider}))
    assert values.keys() <= looked_up


def test_the_region_of_a_bucket_is_asked_for_where_nobody_says_it(pyarrows, environ):
    """Amazon refuses requests to another region."""
    regions = pyarrows.resolve_s3_region
    regions.side_effect = ["us-east-2", "us-west-1"]
    for endpoint in ({}, {"fs.s3a.endpoint": "s3.amazonaws.com"}):
        open_store("s3a://lake/a", HadoopSettings(endpoint))
    assert regions.call_args_list == [call("lake")] * 2
    environ(AWS_REGION="eu-north-1")
    open_store("s3a://pond/a", HadoopSettings())
    made = [call(region=region, connect_timeout=5) for region in ("us-east-2", "us-west-1", "eu-north-1")]
    assert pyarrows.S3FileSystem.call_args_list == made


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        (OSError("AWS Error NETWORK_CONNECTION during HeadBucket operation: x"), "EOS_CHECKPOINT_UNREACHABLE"),
        (ConnectionRefusedError("refused"), "EOS_CHECKPOINT_UNREACHABLE"),
        (TimeoutError("timed out"), "EOS_CHECKPOINT_UNREACHABLE"),
        (OSError("Bucket 'lake' not found"), "EOS_CHECKPOINT_STORE"),
    ],
)
def test_a_region_that_nobody_answers_for_may_be_known_later(pyarrows, error, condition):
    """As in an outage of the network, after which a restart helps."""
    pyarrows.resolve_s3_region.side_effect = error
    with raises(condition):
        Checkpoint("s3a://lake/a")


@pytest.mark.parametrize(
    ("settings", "arguments"),
    [
        ({}, {}),
        ({f"fs.azure.account.key.{HOST}": "K", "fs.azure.account.key": "other"}, {"account_key": "K"}),
        ({f"fs.azure.sas.fixed.token.{HOST}": "?sig=1"}, {"sas_token": "sig=1"}),
        (
            {
                f"fs.azure.account.oauth2.client.id.{HOST}": "I",
                f"fs.azure.account.oauth2.client.secret.{HOST}": "S",
                f"fs.azure.account.oauth2.client.endpoint.{HOST}": "https://login.microsoftonline.com/T/oauth2/token",
            },
            {"client_id": "I", "client_secret": "S", "tenant_id": "T"},
        ),
        ({"fs.azure.account.oauth2.client.id": "managed"}, {"client_id": "managed"}),
    ],
)
@pytest.mark.parametrize("host", [HOST, HOST.replace("acc", "Acc")])
def test_azure_by_hadoops_settings(settings, arguments, host):
    """Settings of the account take precedence over those of all accounts. Hosts have no case, and settings are in small
    letters."""
    store = open_store(f"abfss://box@{host}/a/B", HadoopSettings(settings))
    assert store.root == "box/a/B"
    assert made_with(store.files) == made_with(pyarrow.fs.AzureFileSystem("acc", **arguments))


def test_another_cloud_of_azure():
    """Each has names of its own for hosts."""
    made = made_with(open_store("abfss://box@acc.dfs.core.chinacloudapi.cn/a", HadoopSettings()).files)
    assert made["blob_storage_authority"] == ".blob.core.chinacloudapi.cn"
    assert made["dfs_storage_authority"] == ".dfs.core.chinacloudapi.cn"


def test_google_by_a_file_of_hadoops_settings(environ, tmp_path):
    """The client takes a service account's file only from its variable, which is as before afterwards."""
    key, variable = tmp_path / "key.json", "GOOGLE_APPLICATION_CREDENTIALS"
    key.write_text("{}")
    settings = HadoopSettings({"google.cloud.auth.service.account.json.keyfile": str(key)})
    environ(**{variable: None})
    store = open_store("gs://lake/a", settings)
    assert variable not in os.environ
    with pytest.raises(pyarrow.ArrowInvalid, match=f"Credentials file from {key}"):
        store.files.get_file_info(store.root)
    environ(**{variable: "another"})
    open_store("gs://pond/a", settings)
    assert os.environ[variable] == "another"
    key.unlink()
    with pytest.raises(NoStore, match="not on this machine"):
        open_store("gs://sea/a", settings)


def test_google_without_an_account():
    """As for data that is public. Its client gives up after a while."""
    made = made_with(open_store("gs://lake/a", HadoopSettings({"fs.gs.auth.type": "UNAUTHENTICATED"})).files)
    assert (made["anonymous"], made["retry_time_limit"]) == (True, timedelta(seconds=20))


@pytest.mark.parametrize("bucket", ["s3a://lake", "gs://lake", f"abfss://lake@{HOST}"])
def test_a_path_in_a_bucket_is_the_one_that_hadoop_writes_to(bucket):
    """It has neither empty names, which pyarrow refuses, nor ``..``, which would be a name like any other there."""
    settings = HadoopSettings({"fs.s3a.endpoint.region": "r"})
    for path in ("//a//b/", "/a/./b", "/a/c/../b"):
        assert open_store(bucket + path, settings).root == "lake/a/b"
    assert open_store(bucket, settings).root == open_store(f"{bucket}/", settings).root == "lake"


@pytest.mark.parametrize(
    ("location", "name", "port"),
    [("hdfs://nn:8020/a", "nn", 8020), ("hdfs://cluster/a", "cluster", 0), ("hdfs:///a", "default", 0)],
)
def test_hdfs(pyarrows, location, name, port):
    """A name without port may be one of Hadoop's own files, which libhdfs reads."""
    assert open_store(location, HadoopSettings()).root == "/a"
    pyarrows.HadoopFileSystem.assert_called_once_with(name, port)


def test_a_plain_path_is_on_the_default_file_system():
    """Spark does so, too."""
    settings = HadoopSettings({"fs.defaultFS": "s3a://lake", "fs.s3a.endpoint.region": "r"})
    assert open_store("/a/b", settings).root == "lake/a/b"
    with pytest.raises(NoStore, match="relative"):
        open_store("a/b", settings)
    assert open_store("file:/a", settings).local


def test_dbfs_is_where_databricks_mounts_it(monkeypatch):
    """Elsewhere nobody but Spark can look into it."""
    with pytest.raises(NoStore, match="Databricks"):
        open_store("dbfs:/a", HadoopSettings())
    monkeypatch.setattr(stores.Path, "is_dir", lambda self: str(self) in ("/dbfs", "/Volumes"))
    assert open_store("dbfs:/a/b", HadoopSettings()).root == "/dbfs/a/b"
    assert open_store("dbfs:/Volumes/c/s/v", HadoopSettings()).root == "/Volumes/c/s/v"


class Objects(MemoryFileSystem):
    """An object store of fsspec: it keeps listings for as long as the process lives, names a folder in its own listing,
    and answers nothing, but an error, about the paths in ``away``. Others write to it as `MemoryFileSystem`."""

    protocol = "objects"

    def __init__(self) -> None:
        super().__init__()
        self.away: dict[str, Exception] = {}
        self._kept: dict[str, list[dict[str, Any]]] = {}

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.removeprefix("objects:/"))

    def info(self, path: str, **_: object) -> dict[str, Any]:
        if path in self.away:
            raise self.away[path]
        return super().info(path)

    def ls(self, path: str, detail: bool = True, **_: object) -> list[dict[str, Any]]:
        own = self.info(path)
        if path not in self._kept:
            self._kept[path] = [*super().ls(path, detail=True), own]
        return self._kept[path]

    def invalidate_cache(self, path: str | None = None) -> None:
        self._kept.clear()


@pytest.fixture
def objects() -> Iterator[Objects]:
    fsspec.register_implementation("objects", Objects, clobber=True)
    objects = fsspec.filesystem("objects")
    objects.away.clear()
    MemoryFileSystem().pipe({"/store/chk/metadata": b'{"id": "q"}', "/store/chk/offsets/1": b"v1"})
    yield objects
    MemoryFileSystem().rm("/store", recursive=True)


def test_a_listing_that_fsspec_keeps_is_read_anew(objects):
    """As of an object store, which has one instance in a process: Spark writes without it. What pyarrow does not know
    is left to fsspec."""
    assert Checkpoint("objects://store/chk").last_batch("offsets") == 1
    MemoryFileSystem().pipe("/store/chk/offsets/2", b"v1")
    assert Checkpoint("objects://store/chk").last_batch("offsets") == 2


@pytest.mark.parametrize("error", [TimeoutError, RuntimeError])
def test_a_store_of_fsspec_that_does_not_answer_is_not_empty(objects, error):
    """A used checkpoint would be taken for a new one. fsspec's file systems have errors of many kinds."""
    checkpoint = Checkpoint("objects://store/chk")
    assert (checkpoint.query_id(), checkpoint.batches("offsets"), checkpoint.names("none")) == ("q", [1], [])
    assert (checkpoint.read("none"), checkpoint.read("offsets")) == (None, None)
    objects.away = dict.fromkeys(("/store/chk/metadata", "/store/chk/offsets"), error("no answer"))
    for ask in (checkpoint.query_id, lambda: checkpoint.batches("offsets")):
        with pytest.raises(CheckpointError, match=r"EOS_CHECKPOINT_UNREACHABLE.*no answer"):
            ask()


def test_a_listing_of_fsspec_lacks_no_folder_that_does_not_answer(objects):
    """fsspec's own ``find`` leaves such folders out."""
    files = open_store("objects://store", HadoopSettings()).files
    everything = pyarrow.fs.FileSelector("/store", recursive=True)
    listed = [f"/store/chk{name}" for name in ("", "/metadata", "/offsets", "/offsets/1")]
    assert sorted(info.path for info in files.get_file_info(everything)) == listed
    with pytest.raises(NotADirectoryError):
        files.get_file_info(pyarrow.fs.FileSelector("/store/chk/offsets/1"))
    objects.away = {"/store/chk/offsets": TimeoutError()}
    with pytest.raises(TimeoutError):
        files.get_file_info(everything)


def test_a_write_that_fails_leaves_no_draft(tmp_path):
    """Nobody would look for it."""
    (tmp_path / "name").mkdir()
    with pytest.raises(OSError, match="name"):
        open_store(str(tmp_path), HadoopSettings()).write("name", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["name"]


def test_the_error_of_a_write_stays_where_its_draft_cannot_be_removed():
    """It is what stands in the way."""
    files = MagicMock()
    files.move.side_effect, files.delete_file.side_effect = OSError("no space"), OSError("no draft")
    with pytest.raises(OSError, match="no space"):
        Store(files, "/a", local=True).write("name", b"x")
    (draft,) = files.open_output_stream.call_args.args
    files.delete_file.assert_called_once_with(draft)


@pytest.mark.parametrize("location", ["viewfs://cluster/a", "abfss://box@/a", "s3a:///a"])
def test_a_store_that_cannot_be_opened_is_a_named_error(location):
    """It says what still works."""
    with raises("EOS_CHECKPOINT_STORE", location, "offsets.group.id"):
        Checkpoint(location).query_id()


@pytest.mark.parametrize(
    ("settings", "told", "shown"),
    [
        ({"fs.s3a.secret.key": "hush", "fs.s3a.endpoint": MINIO}, "no hush\n at minio:9000", "no *** at minio:9000"),
        ({"fs.s3a.endpoint": "http://ann:pa/s@host:9"}, "no http://ann:pa/s@host:9", "no http://***@host:9"),
        ({"fs.s3a.access.key": "AKID", "fs.s3a.secret.key": "KEYAKIDpart"}, "refused KEYAKIDpart", "refused ***"),
        ({"fs.azure.sas.fixed.token.a": "?sv=2&sig=S"}, "403 for https://a/x?sv=2&sig=S", "403 for https://a/x?***"),
    ],
    ids=["a key", "a user of an endpoint", "a secret within another one", "a token told without its question mark"],
)
def test_messages_are_without_secrets(settings, told, shown):
    """Whatever a library says of the settings that it was given; addresses are shown."""
    assert HadoopSettings(settings).hide(told) == shown
