"""A location to a file system: with which arguments each is opened."""

from __future__ import annotations

from unittest.mock import MagicMock

import pyarrow.fs
import pytest

from spark_eos.checkpoint import stores
from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.settings import S3A, HadoopSettings
from spark_eos.checkpoint.stores import NoStore, Store, absolute, open_store
from spark_eos.errors import CheckpointError
from tests.support.judges.conditions import raises

HOST = "acc.dfs.core.windows.net"


@pytest.fixture
def opened(monkeypatch):
    """``opened(kind, location, **settings)``: the path, and the arguments that pyarrow's file system was made with."""

    def open_(kind: str, location: str, settings: dict[str, str]) -> tuple[str, tuple, dict]:
        made = []
        monkeypatch.setattr(pyarrow.fs, kind, lambda *args, **kwargs: made.append((args, kwargs)))
        stores._opened.cache_clear()
        root = open_store(location, HadoopSettings(settings)).root
        stores._opened.cache_clear()
        ((args, kwargs),) = made
        return (
            root,
            args,
            {key: value for key, value in kwargs.items() if key not in ("connect_timeout", "retry_time_limit")},
        )

    return open_


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


def test_places_are_put_down_whole(monkeypatch, tmp_path):
    """The command that finishes a replay may be run in another folder."""
    monkeypatch.chdir(tmp_path)
    places = ("new", "s3a://lake/new", "/data/new")
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
            {
                "endpoint_override": AMAZON,
                "scheme": "https",
                "region": "eu-west-1",
                "force_virtual_addressing": True,
            },
        ),
        (
            {"endpoint": MINIO, "path.style.access": "true", "connection.ssl.enabled": "false"},
            {"endpoint_override": MINIO, "scheme": "http", "region": "us-east-1", "force_virtual_addressing": False},
        ),
    ],
)
@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_s3_by_hadoops_settings(opened, monkeypatch, scheme, settings, arguments):
    """Settings of the bucket take precedence over those of all buckets."""
    monkeypatch.delenv("AWS_REGION", raising=False)
    of_all = {f"fs.s3a.{name}": value for name, value in settings.items()}
    assert opened("S3FileSystem", f"{scheme}://lake/a/b", of_all) == ("lake/a/b", (), arguments)
    of_bucket = dict.fromkeys(of_all, "wrong") | {f"fs.s3a.bucket.lake.{name}": v for name, v in settings.items()}
    assert opened("S3FileSystem", f"{scheme}://lake/a/b", of_bucket) == ("lake/a/b", (), arguments)


def test_each_setting_of_s3_that_is_taken_is_used(monkeypatch):
    """What is taken without an effect would be missed in the store."""
    looked_up: set[str] = set()
    monkeypatch.setattr(pyarrow.fs, "S3FileSystem", lambda **_: None)

    class Noting(HadoopSettings):
        def get(self, name, default=None):
            looked_up.add(name)
            return super().get(name, default)

    values = {f"fs.s3a.{name}": "x" for name in S3A}
    for provider in ("x.AssumedRoleCredentialProvider", "x"):
        stores._s3("lake", Noting(values | {"fs.s3a.aws.credentials.provider": provider}))
    assert values.keys() <= looked_up


def test_the_region_of_a_bucket_is_asked_for_where_nobody_says_it(opened, monkeypatch):
    """Amazon refuses requests to another region."""
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.setattr(pyarrow.fs, "resolve_s3_region", lambda bucket: f"region-of-{bucket}")
    for endpoint in ({}, {"fs.s3a.endpoint": "s3.amazonaws.com"}):
        assert opened("S3FileSystem", "s3a://lake/a", endpoint) == ("lake/a", (), {"region": "region-of-lake"})
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert opened("S3FileSystem", "s3a://lake/a", {}) == ("lake/a", (), {"region": "eu-north-1"})


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        (OSError("AWS Error NETWORK_CONNECTION during HeadBucket operation: x"), "EOS_CHECKPOINT_UNREACHABLE"),
        (ConnectionRefusedError("refused"), "EOS_CHECKPOINT_UNREACHABLE"),
        (TimeoutError("timed out"), "EOS_CHECKPOINT_UNREACHABLE"),
        (OSError("Bucket 'lake' not found"), "EOS_CHECKPOINT_STORE"),
    ],
)
def test_a_region_that_nobody_answers_for_may_be_known_later(monkeypatch, error, condition):
    """As in an outage of the network, after which a restart helps."""
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.setattr(pyarrow.fs, "resolve_s3_region", MagicMock(side_effect=error))
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
def test_azure_by_hadoops_settings(opened, settings, arguments, host):
    """Settings of the account take precedence over those of all accounts. Hosts have no case, and settings are in small
    letters."""
    assert opened("AzureFileSystem", f"abfss://box@{host}/a/B", settings) == ("box/a/B", ("acc",), arguments)


def test_another_cloud_of_azure(opened):
    """Each has names of its own for hosts."""
    _, _, arguments = opened("AzureFileSystem", "abfss://box@acc.dfs.core.chinacloudapi.cn/a", {})
    assert arguments == {
        "blob_storage_authority": ".blob.core.chinacloudapi.cn",
        "dfs_storage_authority": ".dfs.core.chinacloudapi.cn",
    }


def test_google_by_hadoops_settings(opened, monkeypatch, tmp_path):
    """The client takes a service account's file only from its variable, which is as before afterwards."""
    key, seen = tmp_path / "key.json", []
    key.write_text("{}")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setattr(
        stores, "timedelta", lambda seconds: seen.append(stores.os.environ.get(stores._GOOGLES_VARIABLE))
    )
    name = "google.cloud.auth.service.account.json.keyfile"
    assert opened("GcsFileSystem", "gs://lake/a", {name: str(key)}) == ("lake/a", (), {})
    assert "GOOGLE_APPLICATION_CREDENTIALS" not in stores.os.environ
    assert opened("GcsFileSystem", "gs://lake/a", {"fs.gs.auth.type": "UNAUTHENTICATED"})[2] == {"anonymous": True}
    with pytest.raises(NoStore, match="not on this machine"):
        opened("GcsFileSystem", "gs://lake/a", {name: str(tmp_path / "none")})


@pytest.mark.parametrize(
    ("kind", "bucket"),
    [("S3FileSystem", "s3a://lake"), ("GcsFileSystem", "gs://lake"), ("AzureFileSystem", f"abfss://lake@{HOST}")],
)
def test_a_path_in_a_bucket_is_the_one_that_hadoop_writes_to(opened, monkeypatch, kind, bucket):
    """It has neither empty names, which pyarrow refuses, nor ``..``, which would be a name like any other there."""
    monkeypatch.setenv("AWS_REGION", "r")
    for path in ("//a//b/", "/a/./b", "/a/c/../b"):
        assert opened(kind, bucket + path, {})[0] == "lake/a/b"
    assert opened(kind, bucket, {})[0] == opened(kind, f"{bucket}/", {})[0] == "lake"


def test_hdfs(opened):
    """A name without port may be one of Hadoop's own files, which libhdfs reads."""
    assert opened("HadoopFileSystem", "hdfs://nn:8020/a", {}) == ("/a", ("nn", 8020), {})
    assert opened("HadoopFileSystem", "hdfs://cluster/a", {}) == ("/a", ("cluster", 0), {})
    assert opened("HadoopFileSystem", "hdfs:///a", {}) == ("/a", ("default", 0), {})


def test_a_plain_path_is_on_the_default_file_system(opened):
    """Spark does so, too."""
    settings = {"fs.defaultFS": "s3a://lake", "fs.s3a.endpoint.region": "r"}
    assert opened("S3FileSystem", "/a/b", settings)[0] == "lake/a/b"
    with pytest.raises(NoStore, match="relative"):
        open_store("a/b", HadoopSettings(settings))
    assert open_store("file:/a", HadoopSettings(settings)).local


def test_dbfs_is_where_databricks_mounts_it(tmp_path, monkeypatch):
    """Elsewhere nobody but Spark can look into it."""
    with pytest.raises(NoStore, match="Databricks"):
        open_store("dbfs:/a", HadoopSettings())
    monkeypatch.setattr(stores.Path, "is_dir", lambda self: str(self) in ("/dbfs", "/Volumes"))
    assert open_store("dbfs:/a/b", HadoopSettings()).root == "/dbfs/a/b"
    assert open_store("dbfs:/Volumes/c/s/v", HadoopSettings()).root == "/Volumes/c/s/v"


def test_a_listing_that_fsspec_keeps_is_read_anew(monkeypatch):
    """As of an object store, which has one instance in a process: Spark writes without it. What pyarrow does not know
    is left to fsspec."""
    from fsspec.implementations.memory import MemoryFileSystem

    find, kept = MemoryFileSystem.find, {}
    monkeypatch.setattr(MemoryFileSystem, "find", lambda fs, path, **how: kept.setdefault(path, find(fs, path, **how)))
    monkeypatch.setattr(MemoryFileSystem, "invalidate_cache", lambda fs, path=None: kept.clear())
    for batch in (1, 2):
        MemoryFileSystem().pipe(f"/kept/chk/offsets/{batch}", b"v1")
        assert Checkpoint("memory://kept/chk").last_batch("offsets") == batch


@pytest.mark.parametrize("error", [TimeoutError, RuntimeError])
def test_a_store_of_fsspec_that_does_not_answer_is_not_empty(monkeypatch, error):
    """A used checkpoint would be taken for a new one. fsspec's file systems have errors of many kinds."""
    from fsspec.implementations.memory import MemoryFileSystem

    MemoryFileSystem().pipe({"/away/chk/metadata": b'{"id": "q"}', "/away/chk/offsets/1": b"v1"})
    checkpoint = Checkpoint("memory://away/chk")
    assert (checkpoint.query_id(), checkpoint.batches("offsets"), checkpoint.names("none")) == ("q", [1], [])
    assert checkpoint.read("none") is None
    for asked in ("info", "ls"):
        monkeypatch.setattr(MemoryFileSystem, asked, MagicMock(side_effect=error("no answer")))
    for ask in (checkpoint.query_id, lambda: checkpoint.batches("offsets")):
        with pytest.raises(CheckpointError, match=r"EOS_CHECKPOINT_UNREACHABLE.*no answer"):
            ask()


def test_a_listing_of_fsspec_lacks_no_folder_that_does_not_answer(monkeypatch, tmp_path):
    """fsspec's own ``find`` leaves such folders out."""
    from fsspec.implementations.local import LocalFileSystem

    file = tmp_path / "chk" / "offsets" / "1"
    file.parent.mkdir(parents=True)
    file.touch()
    store, checkpoint = open_store(f"local://{tmp_path}", HadoopSettings()), Checkpoint(f"local://{tmp_path}/chk")
    assert checkpoint.read("offsets") is None
    everything = pyarrow.fs.FileSelector(store.root, recursive=True)
    paths = [str(path) for path in (*list(file.parents)[1::-1], file)]
    assert sorted(info.path for info in store.files.get_file_info(everything)) == paths
    with pytest.raises(NotADirectoryError):
        store.files.get_file_info(pyarrow.fs.FileSelector(str(file)))
    local = LocalFileSystem()  # some list a folder itself, too
    top, log = ([*local.ls(folder, detail=True), local.info(folder)] for folder in (tmp_path, file.parent))
    monkeypatch.setattr(LocalFileSystem, "ls", MagicMock(side_effect=[top, TimeoutError, log, TimeoutError]))
    with pytest.raises(TimeoutError):
        store.files.get_file_info(everything)
    assert checkpoint.names("offsets") == ["1"]


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
def test_a_store_that_cannot_be_opened_is_a_named_error(location, monkeypatch):
    """It says what still works."""
    monkeypatch.setenv("AWS_REGION", "r")
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
