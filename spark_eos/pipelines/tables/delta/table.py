"""Delta tables by delta-rs: their location, and checks that this writer supports their rules."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa

from spark_eos.base.frozen_settings import Settings
from spark_eos.base.log import logger
from spark_eos.base.printable import hidden
from spark_eos.errors import EosError, invalid_option, stop
from spark_eos.pipelines.tables import evolution
from spark_eos.spi import HadoopSettings, Store, absolute, open_store

if TYPE_CHECKING:
    from deltalake import DeltaTable

#: Features of a table's protocol that an append of files keeps, or that have no effect unless a column or a property
#: uses them, which is checked separately.
_FEATURES = frozenset(
    {
        *("appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "deletionVectors", "generatedColumns"),
        *("invariants", "timestampNtz", "v2Checkpoint"),
    }
)
#: Properties that do not affect an append of files. Properties that do not begin with ``delta.`` are the users' own.
_PROPERTIES = re.compile(
    r"(?!delta\.)"
    r"|delta\.(appendOnly|checkpointInterval|checkpointPolicy|checkpointRetentionDuration|deletedFileRetentionDuration"
    r"|enableChangeDataFeed|enableDeletionVectors|enableExpiredLogCleanup|isolationLevel|logRetentionDuration"
    r"|minReaderVersion|minWriterVersion|parquet\.compression\.codec|randomizeFilePrefixes|randomPrefixLength"
    r"|targetFileSize|tuneFileSizesForRewrites|columnMapping\.maxColumnId)$"
    r"|delta\.(autoOptimize|checkpoint|dataSkipping|feature)[.A-Z]"
)
_FORGETS = "delta.setTransactionRetentionDuration"
MAPPING = "delta.columnMapping.mode"
#: Limits for delta-rs of each request to a store: it ends before Spark or a user loses patience.
_PATIENCE = {"timeout": "20s", "connect_timeout": "5s", "retry_timeout": "30s", "max_retries": "5"}
#: Characters of an address, or a path, that delta-rs would decode, so that its log would not be beside the files.
_DECODED = re.compile(r"[?#%\\\x00-\x1f\x7f]|\s$")
_DECODED_LOCALLY = re.compile(r"[%\\\x00]")


class StorageOptions(Settings):
    """Options of delta-rs for a store. Its repr has no values, as some are secrets."""

    def __repr__(self) -> str:
        return f"StorageOptions({sorted(self._values)})"


_NO_OPTIONS, _NO_SETTINGS = StorageOptions(), HadoopSettings()


@dataclass(frozen=True)
class Location:
    """Where a table is: ``path`` as the user names it, with Hadoop's ``settings``; ``uri`` and ``options`` for
    delta-rs."""

    path: str
    uri: str
    options: StorageOptions = _NO_OPTIONS
    settings: HadoopSettings = _NO_SETTINGS

    @property
    def is_local(self) -> bool:
        """Return whether it is on a disk of this machine, where a file that exists is never replaced."""
        return "://" not in self.uri

    def open(self, version: int | None = None) -> DeltaTable:
        """Return the table as its log is now, or at a version, on a handle of its own. Raises errors of delta-rs, and
        TableError for a file, of which that says less."""
        from deltalake import DeltaTable

        if self.is_local and Path(self.uri).is_file():
            raise stop(
                "EOS_DELTA_NO_TABLE.path", path=self.path, at=f" at {self.path}: it is a file, and a table is a folder"
            )
        return DeltaTable(self.uri, version, storage_options=dict(self.options))

    def read(self, name: str) -> bytes | None:
        """Return a file of the table, by its path in it; None where there is none. Raises OSError."""
        store = self._store()
        try:
            with store.files.open_input_stream(f"{store.root}/{name}") as stream:
                content: bytes = stream.read()
                return content
        except FileNotFoundError:
            return None

    def last_checkpoint(self) -> Mapping[str, Any]:
        """Return the log's ``_last_checkpoint``, such as ``version``, and ``size`` in actions; empty where there is
        none. Raises OSError."""
        try:
            checkpoint = json.loads(self.read("_delta_log/_last_checkpoint") or b"{}")
        except (ValueError, RecursionError):
            return {}
        return checkpoint if isinstance(checkpoint, dict) else {}

    def has(self, name: str) -> bool:
        """Return whether the table has a file at this path, whether or not its log names it. Raises OSError."""
        store = self._store()
        return bool(store.files.get_file_info(f"{store.root}/{name}").is_file)

    def drop(self, folder: str) -> None:
        """Remove a folder in the table's with all that is in it. Raises OSError."""
        store = self._store()
        store.files.delete_dir(f"{store.root}/{folder}")

    def _store(self) -> Store:
        """Return the store by pyarrow's client, with which tasks write files. The client of delta-rs holds Python's
        lock while it waits."""
        return open_store(self.path, self.settings)


def _ambiguous(path: str) -> EosError:
    return invalid_option(
        "path",
        f"{path}, with characters that can stand for something else",
        "a path without % and backslashes; in an address, also without ? # .. blanks at the end and empty parts",
    )


def location_of(path: str, settings: HadoopSettings) -> Location:
    """Return the location of a table on a local disk or on S3. ``settings``: Hadoop's, of the session.

    Raises OptionError for any other file system, also where that is the default one of a path, and UnsupportedError
    where delta-rs is not installed.
    """
    try:
        import deltalake  # noqa: F401  # whether it is there
    except ImportError:
        raise stop(
            "EOS_NOT_INSTALLED.extra", use="Writing to a table past the JVM", modules="deltalake", extra="tables"
        ) from None
    path = absolute(path)  # a task's own folder may be another one
    scheme, colon, rest = path.partition(":")
    is_path = not colon or "/" in scheme
    default = settings.default_fs or "file:"
    if is_path and not default.lower().startswith("file:"):
        raise invalid_option(
            "path",
            f"{path}, which is on Hadoop's default file system, {default}",
            "the whole address, file:/PATH or s3a://BUCKET/PATH: a path alone is on a local disk",
        )
    if is_path or (scheme == "file" and re.match("(//)?/(?!/)", rest)):
        if _DECODED_LOCALLY.search(path):
            raise _ambiguous(path)
        return Location(path, open_store(path, settings).root, settings=settings)  # where tasks write its files
    parts = urlsplit(path)
    if scheme not in ("s3", "s3a", "s3n") or not parts.netloc:
        raise invalid_option(
            "path", path, "a local path or s3a://BUCKET/PATH: past the JVM, no other store can be used"
        )
    if "@" in parts.netloc or (":" in parts.netloc and "@" in rest):  # a secret key may have a slash
        raise invalid_option(
            "path",
            "an address with credentials before its bucket, which would be in messages and plans",
            "the address without them, and set fs.s3a.access.key and fs.s3a.secret.key",
        )
    if _DECODED.search(path) or not {"", ".", ".."}.isdisjoint(parts.path.removesuffix("/").split("/")[1:]):
        raise _ambiguous(path)
    return Location(path, f"s3://{parts.netloc}{parts.path}", _s3(parts.netloc, settings), settings)


def _s3(bucket: str, settings: HadoopSettings) -> StorageOptions:
    def of(name: str) -> str | None:
        return settings.get(f"fs.s3a.bucket.{bucket.lower()}.{name}") or settings.get(f"fs.s3a.{name}")

    endpoint = of("endpoint") or ""
    if endpoint and "://" not in endpoint:
        endpoint = f"{'http' if of('connection.ssl.enabled') == 'false' else 'https'}://{endpoint}"
    by_path = of("path.style.access") == "true"
    options = {
        "aws_access_key_id": of("access.key"),
        "aws_secret_access_key": of("secret.key"),
        "aws_session_token": of("session.token"),
        "aws_region": of("endpoint.region"),
        "aws_endpoint_url": None if endpoint.endswith("//s3.amazonaws.com") else endpoint,
        "aws_allow_http": "true" if endpoint.startswith("http://") else None,
        "aws_virtual_hosted_style_request": "false" if by_path else None,
    }
    return StorageOptions({name: value for name, value in options.items() if value} | _PATIENCE)


# The table


@dataclass(frozen=True)
class Table:
    """A table as its query knows it since it began. ``id``: of the table, which another one at its path does not have;
    ``columns``: name → type as JSON; ``partition_by``: the columns of its folders."""

    location: Location
    id: str
    columns: tuple[tuple[str, str], ...]
    partition_by: tuple[str, ...] = ()

    def check(self, handle: DeltaTable) -> None:
        """Check that the table can still take the files that tasks have written. Raises TableError."""
        check_appendable(self.location, handle)
        check_same(self.location, handle, dict(self.columns), self.partition_by)


def check_appendable(location: Location, handle: DeltaTable) -> None:
    """Check that the table has no rule that an append of files would break, as delta-rs does not. Raises TableError."""
    path, properties = location.path, handle.metadata().configuration
    if _FORGETS in properties:
        name = f"delta.`{path}`"
        raise stop("EOS_DELTA_TABLE_SETTINGS.forgets", path=path, duration=properties[_FORGETS], name=name)
    protocol = handle.protocol()
    features = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
    rules = [f"the feature {name}" for name in sorted(features - _FEATURES)]
    if protocol.min_writer_version > 7 or protocol.min_reader_version > 3:
        rules.append(f"protocol {protocol.min_reader_version}, {protocol.min_writer_version}")
    for name, value in sorted(properties.items()):
        if not (value == "none" if name == MAPPING else _PROPERTIES.match(name)):
            rules.append(f"the property {name}={value}")
    for name, keys in _rules(json.loads(handle.schema().to_json())["fields"]):
        rules.append(f"{', '.join(keys)} on column {name}")
    if rules:
        raise stop("EOS_DELTA_TABLE_SETTINGS.rules", path=path, rules="; ".join(rules))


def _rules(fields: Sequence[Mapping[str, Any]], above: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield columns and fields within them that have metadata beside a comment, with the names of that."""
    for each in fields:
        name = above + each["name"]
        keys = sorted(each.get("metadata", {}).keys() - {"comment"})
        if keys:
            yield name, keys
        yield from _rules(_fields_within(each["type"]), f"{name}.")


def _fields_within(kind: Any) -> list[Mapping[str, Any]]:  # noqa: ANN401  # JSON
    """Return the fields of the structs in a type."""
    if not isinstance(kind, dict):
        return []
    inner = [field for key in ("elementType", "keyType", "valueType") for field in _fields_within(kind.get(key))]
    return [*kind.get("fields", ()), *inner]


def columns_of(schema: pa.Schema) -> dict[str, str]:
    """Return name → Delta's type as JSON, and whether it may be null, for columns with Arrow's types."""
    from deltalake import Schema

    return columns_in(Schema.from_arrow(schema).to_json())


def columns_in(text: str) -> dict[str, str]:
    """Return name → type of each column, as `columns_of`, for a schema in Delta's JSON."""
    return {each["name"]: json.dumps(_plain(each), sort_keys=True) for each in json.loads(text)["fields"]}


def _plain(node: Any) -> Any:  # noqa: ANN401  # JSON
    if isinstance(node, dict):
        return {key: _plain(value) for key, value in node.items() if key != "metadata"}
    return [_plain(item) for item in node] if isinstance(node, list) else node


def check_same(location: Location, handle: DeltaTable, written: Mapping[str, str], partition_by: Sequence[str]) -> None:
    """Check that the table has exactly these columns and partition columns. Raises TableError."""
    unlike = differences(written, columns_in(handle.schema().to_json()))
    folders = list(handle.metadata().partition_columns)
    if folders != list(partition_by):
        unlike.append(f"it is partitioned by {', '.join(folders) or 'nothing'}, not by {', '.join(partition_by)}")
    if unlike:
        raise stop("EOS_TABLE_DIFFERS", path=location.path, differences="; ".join(unlike))


def differences(written: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """See `evolution.differences`; both are as of `columns_in`."""
    return evolution.differences(written, there, _kind)


def _kind(text: str) -> str:
    """Describe a type for messages."""
    column = json.loads(text)
    kind = column["type"] if isinstance(column["type"], str) else json.dumps(column["type"])
    return kind if column["nullable"] else f"{kind} NOT NULL"


def taken_back(location: Location, handle: DeltaTable) -> bool:
    """Take back the newest version by a RESTORE to the one before, which fails if there is a newer one than the handle
    has read. Returns whether that has worked."""
    try:
        handle.restore(handle.version() - 1)
    except Exception as error:
        cause = without_secrets(error, location)
        logger.warning("version %d of the table %s could not be taken back: %s", handle.version(), location.path, cause)
        return False
    return True


def columns_there(location: Location) -> tuple[pa.Schema, tuple[str, ...]] | None:
    """Return the columns and the partition columns of the table at the location; None where there is none. Raises
    TableError (EOS_DELTA_FAILED)."""
    from deltalake.exceptions import TableNotFoundError

    with refused(location):
        try:
            handle = location.open()
        except TableNotFoundError:
            return None
        return pa.schema(handle.schema().to_arrow()), tuple(handle.metadata().partition_columns)


@contextmanager
def refused(location: Location) -> Iterator[None]:
    """Turn exceptions of delta-rs or the store within the block into TableError (EOS_DELTA_FAILED)."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError, ValueError) as error:
        raise stop("EOS_DELTA_FAILED", cause=f"{without_secrets(error, location)}, table {location.path}") from None


def without_secrets(error: BaseException, location: Location) -> str:
    """Return a library's message in one line, without the values of options."""
    secrets = [value for name, value in location.options.items() if "key" in name or "token" in name]
    text = hidden(" ".join(f"{type(error).__name__}: {error}".split()), secrets, location.options.values())
    return text[:400].rstrip(".:")
