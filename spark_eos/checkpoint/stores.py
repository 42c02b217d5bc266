"""From a location, as users write it for Spark, to a file system of pyarrow and the path in it.

======================================  =====================================================================
``/path``, ``path``                     on the default file system, ``fs.defaultFS``; by default local
``file:``                               local
``s3a://``, ``s3://``, ``s3n://``       Amazon S3 and stores with its protocol
``abfss://``, ``abfs://``, ``wasbs://`` Azure
``gs://``                               Google Cloud Storage
``hdfs://``                             HDFS, by libhdfs (``pyarrow.fs.HadoopFileSystem``)
``dbfs:/``                              Databricks, where it mounts that under /dbfs and /Volumes
any other                               the file system of that name of fsspec, if that is installed
======================================  =====================================================================
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import pyarrow
import pyarrow.fs

from spark_eos.base.caches import process_cache
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.errors import EosError

#: Seconds for which Google's client repeats a request; by itself it would do so for a quarter of an hour.
_PATIENCE_S = 20
_LOCATION = re.compile(r"(?:(?P<scheme>[A-Za-z][\w+.-]*):)?(?://(?P<authority>[^/]*))?(?P<path>.*)", re.DOTALL)


class NoStore(Exception):
    """A location cannot be opened from here. The message says why, without secrets."""


class NoAnswer(NoStore, OSError):
    """A store that has to be asked before it can be opened does not answer, which may pass, as its other OSErrors."""


@dataclass(frozen=True)
class Store:
    """A folder or file in a file system. ``local``: on a disk of this machine, or mounted as one."""

    files: pyarrow.fs.FileSystem
    root: str
    local: bool = False

    @property
    def renames(self) -> bool:
        """Return whether a file is renamed in one step, into a folder that must exist. Object stores copy and delete
        instead, and have no folders."""
        return self.local or self.files.type_name == "hdfs"

    def write(self, name: str, data: bytes) -> None:
        """Write a file. Where files are renamed in one step, a crash leaves a draft of another name, and never half a
        file; object stores have neither. Raises OSError."""
        path = f"{self.root}/{name}"
        if not self.renames:
            self._put(path, data)
            return
        draft = f"{path}.{uuid.uuid4().hex}.new"
        self.files.create_dir(str(PurePosixPath(path).parent), recursive=True)
        try:
            self._put(draft, data)
            self.files.move(draft, path)
        except BaseException:
            with suppress(Exception):
                self.files.delete_file(draft)
            raise

    def _put(self, path: str, data: bytes) -> None:
        with self.files.open_output_stream(path) as stream:
            stream.write(data)

    def why_unwritable(self) -> str | None:
        """Say why this user cannot write here, where there may be nothing yet; None where nothing stands in the way, or
        a file system alone knows. Writes nothing."""
        return why_unwritable(Path(self.root).absolute()) if self.local else None


def open_store(location: str, settings: HadoopSettings) -> Store:
    """Return the store at a location. Reads nothing there. Raises NoStore."""
    try:
        return _open_store(location, settings)
    except EosError as error:  # of a setting
        raise NoStore(error.message) from None


def local_store(location: str, settings: HadoopSettings) -> Store | None:
    """Return the store at a location, by these settings and this machine's; None unless that is on a local disk, or
    mounted as one."""
    try:
        store = open_store(location, settings.on_this_machine())
    except NoStore:
        return None
    return store if store.local else None


def _open_store(location: str, settings: HadoopSettings) -> Store:
    scheme, authority, path = _split(location)
    if not scheme:
        default, host, _ = _split(settings.default_fs or "file:///")
        scheme, authority = default or "file", authority or host
        if scheme != "file" and not path.startswith("/"):
            raise NoStore(f"it is relative to a folder of {scheme}: that only Spark knows; write the whole path")
    if scheme == "file":
        return Store(pyarrow.fs.LocalFileSystem(), path, local=True)
    if scheme == "dbfs":
        return Store(pyarrow.fs.LocalFileSystem(), _mounted(path), local=True)
    try:
        if scheme not in _OPENERS:
            return _by_fsspec(scheme, f"{scheme}://{authority}{path}")
        if scheme in _BUCKETS and not authority.partition("@")[0]:
            raise NoStore("it names no bucket")
        files = _opened(scheme, authority, settings)
    except (EosError, NoStore):
        raise
    except Exception as error:  # pyarrow and the libraries below it raise many kinds for settings that they refuse
        away = isinstance(error, ConnectionError | TimeoutError) or "AWS Error NETWORK_CONNECTION" in str(error)
        why = f"{type(error).__name__}: {settings.hide(str(error))}"
        raise (NoAnswer if away else NoStore)(why) from None
    # In an object store, a bucket or a container is the first part of the path.
    parts = (authority.partition("@")[0] if scheme in _BUCKETS else "", path.strip("/"))
    return Store(files, "/".join(filter(None, parts)) if scheme in _BUCKETS else path)


def absolute(location: str) -> str:
    """Return the location as the ledger has it: a local path is made absolute, others stay as they are."""
    return location if ":" in location.partition("/")[0] else str(Path(location).absolute())


def why_unwritable(path: Path) -> str | None:
    """Return why this user cannot write at a local path, which may not exist yet; None if nothing stands in the way.
    Writes nothing."""
    there = next(each for each in (path, *path.parents) if os.path.lexists(each))
    if not there.is_dir():
        return f"{there} is no folder"
    if os.access(there, os.W_OK | os.X_OK):
        return None
    read_only = os.statvfs(there).f_flag & os.ST_RDONLY
    return f"{there}: {os.strerror(errno.EROFS if read_only else errno.EACCES)}"


def _split(location: str) -> tuple[str, str, str]:
    """Return scheme, authority and path, as Hadoop has them: nothing is decoded, a colon after a slash ends no scheme,
    and the path is without ``//``, ``.`` and ``name/..``, even if that name is a symbolic link."""
    match = _LOCATION.fullmatch(location)
    assert match is not None  # it matches everything
    path = re.sub("/+", "/", match["path"])
    return (match["scheme"] or "").lower(), match["authority"] or "", path and posixpath.normpath(path)


def _mounted(path: str) -> str:
    local = path if path.startswith("/Volumes/") else f"/dbfs{path}"
    mount = Path("/", *Path(local).parts[1:2])
    if not mount.is_dir():
        raise NoStore(f"this machine has no {mount}, under which Databricks mounts dbfs:/")
    return local


@process_cache(maxsize=8)
def _opened(scheme: str, authority: str, settings: HadoopSettings) -> pyarrow.fs.FileSystem:
    return _OPENERS[scheme](authority, settings)


# Each kind


def _s3(bucket: str, settings: HadoopSettings) -> pyarrow.fs.FileSystem:
    def of(name: str) -> str | None:
        return settings.get(f"fs.s3a.bucket.{bucket.lower()}.{name}") or settings.get(f"fs.s3a.{name}")

    arguments: dict[str, Any] = {"connect_timeout": 5}
    provider = of("aws.credentials.provider") or ""
    has_keys = bool(of("access.key") and of("secret.key"))
    first = re.search(r"Anonymous|SimpleAWS|TemporaryAWS", provider)  # Hadoop takes the first that has credentials
    if "AssumedRole" in provider and of("assumed.role.arn"):
        arguments |= {"role_arn": of("assumed.role.arn"), "session_name": of("assumed.role.session.name")}
        arguments |= {"external_id": of("assumed.role.external.id")}
    elif "Anonymous" in provider and not (has_keys and first is not None and first[0] != "Anonymous"):
        arguments["anonymous"] = True
    elif has_keys:
        arguments |= {"access_key": of("access.key"), "secret_key": of("secret.key")}
        arguments |= {"session_token": of("session.token")}
    arguments |= _s3_address(of("endpoint") or "", of)
    match = re.fullmatch(r"s3[.-]([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?", arguments.get("endpoint_override", ""))
    region = of("endpoint.region") or (match[1] if match else None) or os.environ.get("AWS_REGION")
    if not region and not arguments.get("endpoint_override"):
        region = pyarrow.fs.resolve_s3_region(bucket)
    return pyarrow.fs.S3FileSystem(region=region or "us-east-1", **arguments)


def _s3_address(endpoint: str, of: Callable[[str], str | None]) -> dict[str, Any]:
    """Return arguments for ``fs.s3a.endpoint``, a host with or without scheme and port. The endpoint of all regions is
    left to pyarrow, which knows the one of the bucket's region."""
    encrypted = (of("connection.ssl.enabled") or "true").lower() != "false"
    parts = urlsplit(endpoint if "://" in endpoint else f"{'https' if encrypted else 'http'}://{endpoint}")
    if not parts.netloc or parts.netloc == "s3.amazonaws.com":
        return {}
    by_path = (of("path.style.access") or "false").lower() == "true"
    return {"endpoint_override": parts.netloc, "scheme": parts.scheme, "force_virtual_addressing": not by_path}


def _azure(authority: str, settings: HadoopSettings) -> pyarrow.fs.FileSystem:
    """Open an Azure container. ``authority`` is ``container@account.dfs.core.windows.net``. A setting ends with that
    host, in small letters, or is for every account without it."""
    host = authority.partition("@")[2].lower()

    def of(name: str) -> str | None:
        return settings.get(f"fs.azure.{name}.{host}") or settings.get(f"fs.azure.{name}")

    account, _, domain = host.partition(".")
    arguments: dict[str, Any] = {}
    if of("account.key"):
        arguments["account_key"] = of("account.key")
    elif of("sas.fixed.token"):
        arguments["sas_token"] = (of("sas.fixed.token") or "").removeprefix("?")
    elif of("account.oauth2.client.id"):
        arguments["client_id"] = of("account.oauth2.client.id")
        tenant = urlsplit(of("account.oauth2.client.endpoint") or "").path.strip("/").partition("/")[0]
        if of("account.oauth2.client.secret"):
            arguments |= {"client_secret": of("account.oauth2.client.secret"), "tenant_id": tenant}
    if domain and not domain.endswith("core.windows.net"):  # another cloud
        rest = domain.partition(".")[2]
        arguments |= {"blob_storage_authority": f".blob.{rest}", "dfs_storage_authority": f".dfs.{rest}"}
    return pyarrow.fs.AzureFileSystem(account, **arguments)


def _google(bucket: str, settings: HadoopSettings) -> pyarrow.fs.FileSystem:
    """Open a bucket of Google. The client takes the file of a service account only from an environment variable, set
    while it is created."""
    arguments: dict[str, Any] = {"retry_time_limit": timedelta(seconds=_PATIENCE_S)}
    root = urlsplit(settings.get("fs.gs.storage.root.url", ""))
    if root.netloc:
        arguments |= {"endpoint_override": root.netloc, "scheme": root.scheme}
    kind = settings.get("fs.gs.auth.type", "")
    file = next((settings[name] for name in _KEY_FILES if settings.get(name)), None)
    if kind.upper() == "UNAUTHENTICATED":
        return pyarrow.fs.GcsFileSystem(anonymous=True, **arguments)
    if file is None:
        return pyarrow.fs.GcsFileSystem(**arguments)
    if not Path(file).is_file():
        raise NoStore(f"the service account's file {file} is not on this machine")
    before = os.environ.get(_GOOGLES_VARIABLE)
    os.environ[_GOOGLES_VARIABLE] = file
    try:
        return pyarrow.fs.GcsFileSystem(**arguments)
    finally:
        if before is None:
            del os.environ[_GOOGLES_VARIABLE]
        else:
            os.environ[_GOOGLES_VARIABLE] = before


_GOOGLES_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"
_KEY_FILES = ("fs.gs.auth.service.account.json.keyfile", "google.cloud.auth.service.account.json.keyfile")


def _hdfs(authority: str, settings: HadoopSettings) -> pyarrow.fs.FileSystem:
    """Open HDFS. libhdfs reads Hadoop's configuration files itself; a name without a port may be a name service defined
    there."""
    host, _, port = authority.partition(":")
    return pyarrow.fs.HadoopFileSystem(host or "default", int(port or 0))


def _by_fsspec(scheme: str, location: str) -> Store:
    try:
        import fsspec.core
    except ImportError:
        raise NoStore(f"pyarrow has no file system {scheme}:, and fsspec is not installed") from None
    files, root = fsspec.core.url_to_fs(location)
    files.invalidate_cache()  # one instance serves the whole process, and may keep listings for good
    return Store(pyarrow.fs.PyFileSystem(_Fsspec(files)), root)


class _Fsspec(pyarrow.fs.FSSpecHandler):  # type: ignore[misc]  # pyarrow has no types
    """A file system of fsspec that raises the error of a store that does not answer. pyarrow's own handler takes it for
    empty then, as fsspec's ``isfile``, ``isdir`` and ``exists`` do: a used checkpoint would be a new one."""

    def get_file_info_selector(self, selector: pyarrow.fs.FileSelector) -> list[pyarrow.fs.FileInfo]:
        base = selector.base_dir.strip("/")
        try:
            listed = {info["name"]: info for info in self.fs.ls(selector.base_dir, detail=True)}
        except FileNotFoundError:  # every selector of this package allows it
            return []
        infos = [self._create_file_info(path, info) for path, info in listed.items()]
        if any(info.is_file and info.path.strip("/") == base for info in infos):
            raise NotADirectoryError(selector.base_dir)
        infos = [info for info in infos if info.path.strip("/") != base]
        folders = [info.path for info in infos if info.type == pyarrow.fs.FileType.Directory]
        for folder in folders if selector.recursive else ():
            below = pyarrow.fs.FileSelector(folder, allow_not_found=True, recursive=True)
            infos += self.get_file_info_selector(below)
        return infos

    def open_input_file(self, path: str) -> pyarrow.PythonFile:
        if self.fs.info(path)["type"] != "file":
            raise FileNotFoundError(path)
        return pyarrow.PythonFile(self.fs.open(path, mode="rb"), mode="r")

    open_input_stream = open_input_file


_OPENERS: dict[str, Callable[[str, HadoopSettings], pyarrow.fs.FileSystem]] = {
    **dict.fromkeys(("s3", "s3a", "s3n"), _s3),
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), _azure),
    "gs": _google,
    "hdfs": _hdfs,
}
#: Schemes whose authority begins with a bucket or container.
_BUCKETS = frozenset(_OPENERS) - {"hdfs"}
