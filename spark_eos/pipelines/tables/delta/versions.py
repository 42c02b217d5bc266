"""The files of one version of a Delta table that has new rows or changes, by the JSON of its log.

The JSON of a version never changes. Unlike delta-rs, it says whether a file has new rows, or rows of files that
OPTIMIZE has rewritten (``dataChange``). Files are numbered from 0 in the order of the JSON.

The changes of a version are in its files of changes (``cdc``), where each row has its kind. A version without such
files has deleted all rows of the files that it removes, and then inserted all rows of the files that it adds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from posixpath import normpath
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from spark_eos.errors import stop
from spark_eos.pipelines.tables.delta.source import SourceTable, check_metadata, check_rules, of_protocol

#: Kinds of files: all of their rows were deleted or inserted, or each row has its own kind.
DELETED, INSERTED, CHANGED = "delete", "insert", "change"

#: The beginning of an absolute URI, by RFC 3986.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")

#: Files of a version. ``path``: within the table; ``size``: bytes; ``partition``: a JSON list of a text, or null, for
#: each partition column; ``kind``: one of the three.
FILES = pa.schema([("path", pa.string()), ("size", pa.int64()), ("partition", pa.string()), ("kind", pa.string())])


@dataclass(frozen=True)
class VersionFiles:
    """The files of a version, with the columns `FILES`, in their order. ``mark``: a digest of the version's JSON, or of
    the files where these are all that the table had."""

    files: pa.Table
    mark: str


@dataclass(frozen=True)
class _Actions:
    """Actions of a version that change rows, as the log has them."""

    adds: Sequence[Mapping[str, Any]]
    removes: Sequence[Mapping[str, Any]]
    changes: Sequence[Mapping[str, Any]]


def files_of(table: SourceTable, version: int, data: bytes) -> VersionFiles:
    """Return the files that a version has appended, or the files of its changes. ``data``: its JSON. Raises TableError,
    see `spark_eos.pipelines.tables.delta.log.TableLog.files`."""
    path = table.location.path
    try:
        actions = _actions(table, version, data)
        # Behind the removals, as a DELETE may add a file with a deletion vector, which is the lesser reason to stop.
        files = _files(table, version, INSERTED, actions.adds)
        if table.changes:
            removed = _files(table, version, DELETED, actions.removes)
            files = _files(table, version, CHANGED, actions.changes) or [*removed, *files]
        listed = VersionFiles(pa.Table.from_pylist(files, FILES), digest_of(data))
    except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        cause = f"version {version} of {path}: {type(error).__name__}: {error}"
        raise stop("EOS_DELTA_LOG_DAMAGED", cause=cause) from None
    names = {file["path"] for file in files if file["kind"] == DELETED}
    both = [file["path"] for file in files if file["kind"] == INSERTED and file["path"] in names]
    check_rules(table.location, [f"a file that version {version} both removes and adds, {name}" for name in both])
    return listed


def _actions(table: SourceTable, version: int, data: bytes) -> _Actions:
    actions: dict[str, list[Mapping[str, Any]]] = {"add": [], "remove": [], "cdc": []}
    operation = "unknown"
    for line in data.splitlines():
        if not line.strip():
            continue
        ((kind, body),) = json.loads(line).items()
        if kind == "cdc" or (kind in actions and body["dataChange"]):
            if kind == "remove" and not table.changes:
                cause = f"version {version} of {table.location.path} removes rows (operation {operation})"
                raise stop("EOS_DELTA_ROWS_CHANGED", cause=cause)
            actions[kind].append(body)
        elif kind == "metaData":
            check_metadata(table, version, body)
        elif kind == "protocol":
            reader, writer = int(body["minReaderVersion"]), int(body["minWriterVersion"])
            features = body.get("readerFeatures") or (), body.get("writerFeatures") or ()
            check_rules(table.location, of_protocol(reader, writer, *features))
        elif kind == "commitInfo":
            operation = body.get("operation", operation)
    return _Actions(actions["add"], actions["remove"], actions["cdc"])


def _files(table: SourceTable, version: int, kind: str, bodies: Iterable[Mapping[str, Any]]) -> list[dict[str, object]]:
    files = [_file(table, version, kind, body) for body in bodies]
    if len({file["path"] for file in files}) < len(files):
        raise ValueError("it has a file twice")
    return files


def _file(table: SourceTable, version: int, kind: str, body: Mapping[str, Any]) -> dict[str, object]:
    """Return a row of `FILES`."""
    if body.get("deletionVector") is not None:
        check_rules(table.location, [f"a file with a deletion vector in version {version}"])
    values, size = body.get("partitionValues"), body.get("size")
    if kind == DELETED and (size is None or (values is None and table.partition_by)):
        rule = f"a file that version {version} removes without saying its size and partition"
        check_rules(table.location, [rule])
    if kind != DELETED and values is None:
        raise ValueError("a file without partition values")
    values = values or {}
    if set(values) != set(table.partition_by):
        raise ValueError(f"partition values of {', '.join(sorted(values)) or 'no column'}")
    partition = json.dumps([values[name] or None for name in table.partition_by])
    return {"path": path_of(table, body["path"]), "size": int(body["size"]), "partition": partition, "kind": kind}


def path_of(table: SourceTable, path: str) -> str:
    """Return a file's path within the table: the log has paths in the form of URIs, which are decoded once. Raises
    TableError for a file elsewhere, and for a path that is not in its normal form, such as one with ``..``."""
    name = unquote(path)
    first = name.partition("/")[0]
    if _SCHEME.match(path) or "://" in path or first in ("", ".", "..") or name != normpath(name) or "\0" in name:
        raise stop("EOS_DELTA_TABLE_SETTINGS.outside", path=table.location.path, file=path)
    return name


def digest_of(data: bytes) -> str:
    """Return the mark of `VersionFiles`."""
    return blake2b(data, digest_size=8).hexdigest()
