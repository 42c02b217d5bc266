"""Protobuf schemas as descriptors: files with the files that they import, and the messages in them.

A schema is a text in the language of .proto files, or a serialized descriptor in base64, as Confluent's client for
Python registers it. It imports its references, and files that Confluent's clients know without one. An import is a name
among these and nothing else: it never leads to a file of this machine, or to a module of Python.
"""

from __future__ import annotations

import base64
import importlib
import os
import pkgutil
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache, lru_cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from spark_eos.base.printable import excerpt
from spark_eos.errors import stop
from spark_eos.pipelines.registry.schemas import Schema, check_kind, not_installed

try:
    import grpc_tools
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError
except ImportError as missing:
    raise not_installed(missing) from None

#: Packages with the modules of files that are known without a reference.
_PACKAGES = ("google.protobuf", "google.type", "confluent_kafka.schema_registry.confluent")
#: Runs protoc, and exits with 3 where it refuses a file: Python itself exits with 1 where the compiler cannot run.
_PROTOC = "import sys; from grpc_tools import protoc; sys.exit(protoc.main(sys.argv) and 3)"
_REFUSED = 3
#: Lines of protoc's own log, such as that a file names no syntax.
_LOGGED = re.compile(r"^(WARNING: All log|[IWEF]\d{4} ).*\n?", re.MULTILINE)
#: Names of files that protoc can be given, neither its options nor its lists of paths.
_NAME = re.compile(r"[^-@:=][^:=]{0,999}")


def message_named(schema: Schema, name: str | None) -> Descriptor:
    """Return the message with this full name; without a name, the first in the file. Raises RegistryError
    (EOS_REGISTRY_SCHEMA)."""
    if name is None:
        return message_at(schema, (0,))
    file, pool = _file(schema)
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        known = ", ".join(message.full_name for message in file.message_types_by_name.values())
        raise stop("EOS_REGISTRY_SCHEMA.no_message", message=name, known=known) from None


def message_at(schema: Schema, path: tuple[int, ...]) -> Descriptor:
    """Return the message at these indexes. Raises RegistryError (EOS_REGISTRY_SCHEMA).

    Protobuf has a nested message for the entries of each map. Confluent's client for Python counts these, and that for
    Java does not. Indexes that lead to two different messages by these rules are refused.
    """
    check_kind(schema, "PROTOBUF")
    file, _ = _file(schema)
    matches = {name: message for entries in (True, False) for name, message in _followed(file, path or (0,), entries)}
    if len(matches) > 1:
        raise stop("EOS_REGISTRY_SCHEMA.ambiguous", path=list(path), messages=" or ".join(matches))
    if not matches:
        known = ", ".join(file.message_types_by_name)
        raise stop("EOS_REGISTRY_SCHEMA.no_message", message=list(path), known=known)
    return next(iter(matches.values()))


def path_of(schema: Schema, message: Descriptor) -> tuple[int, ...]:
    """Return the indexes of a message. Raises RegistryError (EOS_REGISTRY_SCHEMA) where some clients would take them
    for another message's."""
    path: list[int] = []
    inner = message
    while inner is not None:
        outer = inner.containing_type
        siblings = outer.nested_types if outer else inner.file.message_types_by_name.values()
        path.insert(0, [each.full_name for each in siblings].index(inner.full_name))
        inner = outer
    file, _ = _file(schema)
    if not all(_followed(file, tuple(path), entries) == [(message.full_name, message)] for entries in (True, False)):
        raise stop("EOS_REGISTRY_SCHEMA.ambiguous", path=f"of {message.full_name}", messages="different messages")
    return tuple(path)


def _followed(file: Any, path: tuple[int, ...], entries: bool) -> list[tuple[str, Descriptor]]:  # noqa: ANN401  # a file
    """Return the full name and the message at this path; none where the path leads nowhere, or to the entries of a map.
    ``entries``: whether entries of maps are counted."""
    siblings, message = list(file.message_types_by_name.values()), None
    for number in path:
        siblings = [each for each in siblings if entries or not each.GetOptions().map_entry]
        if number >= len(siblings):
            return []
        message = siblings[number]
        siblings = list(message.nested_types)
    return [] if message is None or message.GetOptions().map_entry else [(message.full_name, message)]


@lru_cache(maxsize=256)
def _file(schema: Schema) -> tuple[Any, DescriptorPool]:
    """Return the schema as a file descriptor, in a pool of its own. Raises RegistryError (EOS_REGISTRY_SCHEMA)."""
    name, references = f"{schema.fingerprint}.proto", schema.all_references()
    for each in references:
        if not _is_path(each):
            raise stop("EOS_REGISTRY_SCHEMA.import", name=each, problem="no path within its folder")
    schemas = {**references, name: schema}
    serialized = {each: _serialized(one.text, each) for each, one in schemas.items()}
    files = _known() | {each: file for each, file in serialized.items() if file is not None}
    texts = {each: schemas[each].text for each, file in serialized.items() if file is None}
    if texts:
        files |= _compiled(texts, name if name in texts else None, files, schema.fingerprint)
    pool = DescriptorPool()
    try:
        for each in _in_order(files, name, schema.fingerprint):
            pool.Add(files[each])
    except TypeError as error:
        raise _refused(schema.fingerprint, str(error)) from None
    return pool.FindFileByName(name), pool


def _serialized(text: str, name: str) -> FileDescriptorProto | None:
    """Return the file of a serialized schema, by this name; None for a text in the language of .proto files."""
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, DecodeError):
        return None
    file.name = name
    return file


@cache
def _known() -> dict[str, FileDescriptorProto]:
    """Return Protobuf's own files, Google's common types and Confluent's, by name."""
    files = {}
    try:
        for package in map(importlib.import_module, _PACKAGES):
            for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
                if module.name.endswith("_pb2"):
                    descriptor = importlib.import_module(module.name).DESCRIPTOR
                    files[descriptor.name] = FileDescriptorProto.FromString(descriptor.serialized_pb)
    except ImportError as missing:
        raise not_installed(missing) from None
    return files


def _in_order(files: Mapping[str, FileDescriptorProto], name: str, fingerprint: str) -> list[str]:
    """Return the names of a file and of all that it imports, each behind its own imports. Raises RegistryError
    (EOS_REGISTRY_SCHEMA)."""
    imports: dict[str, list[str]] = {}
    waiting = [name]
    while waiting:
        each = waiting.pop()
        if each not in files:
            raise stop("EOS_REGISTRY_SCHEMA.import", name=each, problem="not among its references")
        if each not in imports:
            imports[each] = list(files[each].dependency)
            waiting += imports[each]
    try:
        return list(TopologicalSorter(imports).static_order())
    except CycleError as error:
        raise _refused(fingerprint, f"files import one another: {', '.join(error.args[1])}") from None


def _compiled(
    texts: Mapping[str, str], root: str | None, others: Mapping[str, FileDescriptorProto], fingerprint: str
) -> dict[str, FileDescriptorProto]:
    """Compile texts, and the files that they import, by protoc. ``root``: the text that is compiled, with its imports;
    None for all. ``others``: files that need no compiler. Raises RegistryError (EOS_REGISTRY_SCHEMA), with protoc's
    words."""
    with tempfile.TemporaryDirectory(prefix="spark-eos-protobuf-") as work:
        arguments = [f"-I{Path(grpc_tools.__file__).with_name('_proto')}", "--descriptor_set_in=known"]
        Path(work, "known").write_bytes(FileDescriptorSet(file=others.values()).SerializeToString())
        for number, (name, text) in enumerate(texts.items()):
            # Under a name of ours, of which protoc knows by which name it is imported.
            file = "schema" if name == root else f"reference{number}"
            Path(work, file).write_bytes(text.encode(errors="surrogatepass"))
            arguments.insert(number, f"-I{name}={file}")
        wanted = ["--include_imports", "--descriptor_set_out=/dev/stdout", *(texts if root is None else [root])]
        paths = os.pathsep.join(map(os.path.abspath, sys.path))
        done = subprocess.run(
            [sys.executable, "-P", "-c", _PROTOC, *arguments, *wanted],
            cwd=work,
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
    if done.returncode == _REFUSED:
        raise _refused(fingerprint, _LOGGED.sub("", done.stderr.decode(errors="replace")))
    if done.returncode:
        raise stop(
            "EOS_WORKER_DIED.killed",
            process="The Protobuf compiler, a process of its own,",
            how=f"it ended with status {done.returncode}: {excerpt(done.stderr[-1000:])}",
        )
    return {file.name: file for file in FileDescriptorSet.FromString(done.stdout).file}


def _is_path(name: str) -> bool:
    """Tell whether protoc takes the name for a file to import, and for nothing else."""
    return bool(_NAME.fullmatch(name)) and name.isprintable() and not {"", ".", ".."} & {*name.split("/")}


def _refused(fingerprint: str, why: str) -> Exception:
    return stop(
        "EOS_REGISTRY_SCHEMA.protoc", fingerprint=fingerprint, why=excerpt("; ".join(why.split("\n"))).rstrip(".; ")
    )
