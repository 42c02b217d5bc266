"""The files of a folder: which there are, which are complete, and whether one has changed."""

from __future__ import annotations

import fnmatch
import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fastcrc.crc32 import iscsi, iso_hdlc
from pyarrow.fs import FileInfo, FileSelector, FileType

from spark_eos.base.caches import log_once
from spark_eos.errors import EosError, stop
from spark_eos.spi import HadoopSettings, NoStore, Store, open_store

#: Bytes that are read at once: of a local file as many as lines of 100 bytes or more make a record batch of, which stay
#: in a processor's cache meanwhile; of others more, as each time is a request.
BLOCK_BYTES, _FAR_BLOCK_BYTES = 896 << 10, 4 << 20
_SECOND_NS = 10**9
_S3 = re.compile(r"s3n?://")
#: How the names of files and folders begin that are left out, as drafts are.
HIDDEN = (".", "_")
#: Errors that do not go away by themselves, unlike the errors of a store that does not answer.
_LASTING = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError)
_NO_SETTINGS = HadoopSettings()
#: Size in bytes, modification time and change time in nanoseconds.
Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class File:
    """A file, by its normalised URI. ``size`` is in bytes; ``digest``: of its content, and empty until the file has
    been read. ``checksum``: of the same content, where this run of the job has read it. Both are from `HashedFile`.
    ``ctime_ns``: when content or attributes last changed, which no program can set; 0 where the store does not say.
    """

    uri: str
    size: int
    mtime_ns: int
    digest: str = ""
    checksum: str = ""
    ctime_ns: int = 0

    @property
    def stamp(self) -> Stamp:
        """Size and times: if they differ, the content may have changed."""
        return self.size, self.mtime_ns, self.ctime_ns


class Folder:
    """A folder and the folders below it, on a file system that Spark's URIs can name. Raises FileError."""

    def __init__(self, location: str, pattern: str = "*", settings: HadoopSettings = _NO_SETTINGS) -> None:
        self._pattern, self._settings = pattern, settings
        self._store = store_of(location, settings)
        self._root = os.path.realpath(self._store.root) if self._store.local else self._store.root.rstrip("/")
        self._uri = f"file://{self._root}" if self._store.local else _S3.sub("s3a://", location).rstrip("/")

    def files(self) -> list[File]:
        """Return all files whose names match the pattern, the oldest first. Files are left out if their name, or a
        folder's above them, begins with a dot or an underscore, as drafts do."""
        visible = [file for file in self._all() if not _is_hidden(self._path_of(file))]
        files = [file for file in visible if self._fits(self._path_of(file))]
        if visible and not files:
            log_once(logging.WARNING, "%s has files, but none whose name matches '%s'", self._uri, self._pattern)
        for file in files:
            if "//" in self._path_of(file):  # an object's key
                raise stop("EOS_FILE_UNREADABLE.read", uri=file.uri, why="an empty name in its path counts as none")
        return sorted(files, key=lambda file: (file.mtime_ns, file.uri))

    def _path_of(self, file: File) -> str:
        return file.uri[len(self._uri) :]

    def names(self) -> frozenset[str]:
        """Return the URIs of all files, also of hidden ones."""
        return frozenset(file.uri for file in self._all())

    def _all(self) -> list[File]:
        """Return every file below the folder. Raises FileError for one that matches, but whose name is not UTF-8, and
        where the folder is a file itself."""
        start, store = len(self._root), self._store
        with file_errors(self._uri, self._settings):
            root = store.files.get_file_info(self._root)
            if root.type == FileType.NotFound:
                self._check_may_be_absent()
            infos = [*self._walked()] if store.renames else self._listed(self._root, recursive=True)
        if root.is_file and root.size and not infos:  # an object store may have both; an empty one may be a marker
            raise stop("EOS_FILE_UNREADABLE.read", uri=self._uri, why="it is a file, and no folder")
        files, unnamed = [], False
        for info in infos:
            try:
                uri = self._uri + info.path[start:]
            except UnicodeDecodeError:
                unnamed = True
                continue
            file = _file(uri, info, store) if info.type == FileType.File else None
            if file is not None:
                files.append(file)
        if unnamed:
            self._check_names()
        return files

    def _listed(self, folder: str, *, recursive: bool) -> list[FileInfo]:
        selector = FileSelector(folder, recursive=recursive, allow_not_found=True)
        infos: list[FileInfo] = self._store.files.get_file_info(selector)
        return infos

    def _walked(self) -> Iterator[FileInfo]:
        """List folder by folder, without folders for drafts, which come and go meanwhile, and folders with names that
        are not UTF-8. Raises FileError for a folder that is within itself."""
        waiting: list[tuple[str, tuple[str, ...]]] = [(self._root, (self._root,))]
        while waiting:
            folder, above = waiting.pop()
            try:
                infos = self._listed(folder, recursive=False)
            except FileNotFoundError:  # it has come again at once
                infos = []
            for info in infos:
                try:
                    path, hidden = info.path, info.base_name.startswith(HIDDEN)
                except UnicodeDecodeError:
                    yield info
                    continue
                if info.type != FileType.Directory:
                    yield info
                elif not hidden:
                    real = os.path.realpath(path) if self._store.local else path
                    if real in above:
                        raise stop("EOS_FILE_UNREADABLE.loop", uri=self._uri + path[len(self._root) :])
                    waiting.append((path, (*above, real)))

    def _check_may_be_absent(self) -> None:
        """Raise FileError for a missing folder, except on an object store, which has no folders, only files whose names
        begin alike: there may be no file yet, or none any more."""
        if self._store.renames:
            raise stop("EOS_FILE_UNREADABLE.read", uri=self._uri, why="there is no such folder")
        log_once(logging.WARNING, "%s has no file yet, unless 'files.path' is wrong", self._uri)

    def _check_names(self) -> None:
        """Raise FileError for a file of a local folder that matches, but whose name is not UTF-8."""
        for folder, folders, names in os.walk(os.fsencode(self._root), followlinks=True):
            folders[:] = [name for name in folders if not os.fsdecode(name).startswith(HIDDEN)]
            for path in (os.path.join(folder, name) for name in names):  # noqa: PTH118  # of bytes
                below = os.fsdecode(path)[len(self._root) :]
                if _is_utf8(path) or _is_hidden(below) or not self._fits(below):
                    continue
                raise stop("EOS_FILE_UNREADABLE.name", uri=repr(path), path=path)

    def _fits(self, path: str) -> bool:
        return fnmatch.fnmatchcase(path.rpartition("/")[2], self._pattern)


def _is_hidden(path: str) -> bool:
    return any(part.startswith(HIDDEN) for part in path.strip("/").split("/"))


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def store_of(location: str, settings: HadoopSettings) -> Store:
    """Return the file system of a location, and the path there. Raises FileError."""
    try:
        with file_errors(location, settings):  # also of a store that may answer later
            return open_store(location, settings)
    except NoStore as error:
        raise stop("EOS_FILE_UNREADABLE.read", uri=location, why=error) from None


@contextmanager
def file_errors(uri: str, settings: HadoopSettings) -> Iterator[None]:
    """Turn errors of a file system into FileError, which names the file and contains no secret."""
    try:
        yield
    except OSError as error:
        why = settings.hide(str(error)).rstrip(".")
        if isinstance(error, _LASTING):
            raise stop("EOS_FILE_UNREADABLE.read", uri=uri, why=why) from None
        raise stop("EOS_FILE_STORE", uri=uri, why=why) from None


def current(file: File, settings: HadoopSettings) -> File | None:
    """Return the file as its file system describes it now, without a digest; None if it is gone."""
    store = store_of(file.uri, settings)
    with file_errors(file.uri, settings):
        info = store.files.get_file_info(store.root)
    return _file(file.uri, info, store) if info.is_file else None


def _file(uri: str, info: FileInfo, store: Store) -> File | None:
    """Return the file; None if it is gone. Some object stores give milliseconds when they list files, but seconds when
    they describe one: only seconds count there. Raises FileError for a store that gives no times."""
    if info.mtime_ns is None:
        why = "its file system does not say when a file was written, so that a change could not be seen"
        raise stop("EOS_FILE_UNREADABLE.read", uri=uri, why=why)
    if not store.local:
        return File(uri, info.size, info.mtime_ns - info.mtime_ns % _SECOND_NS)
    try:
        return File(uri, info.size, info.mtime_ns, ctime_ns=Path(info.path).stat().st_ctime_ns)
    except FileNotFoundError:
        return None


def as_it_is_now(file: File, settings: HadoopSettings) -> File:
    """Return a file that was taken, with the size and time that it has now, and the digest that it had then; the file
    itself if it is gone."""
    now = current(file, settings)
    return file if now is None else replace(now, digest=file.digest)


def with_digest(file: File, settings: HadoopSettings) -> File:
    """Return the file with the digest of its content. Raises FileError if it changes while it is read."""
    hashed = HashedFile(replace(file, digest="", checksum=""), settings)
    for _ in hashed.blocks():
        pass
    check_unchanged(file, settings)
    return replace(file, digest=hashed.digest, checksum=hashed.checksum)


class HashedFile:
    """A file's content, to be read once from start to end.

    ``checksum`` of the read bytes: two CRCs, which cost a small part of the digest. They are enough to
    see that a file is still as this run of the job has read it. ``digest`` of the read bytes tells files apart
    for ever; it is only known for a file without a checksum to compare with.
    """

    def __init__(self, file: File, settings: HadoopSettings) -> None:
        self._file, self._settings = file, settings
        self._hash = None if file.checksum else hashlib.blake2b(digest_size=16)
        self._crcs = 0, 0

    @property
    def digest(self) -> str:
        assert self._hash is not None
        return f"blake2b-{self._hash.hexdigest()}"

    @property
    def checksum(self) -> str:
        return "crcs-{:08x}{:08x}".format(*self._crcs)

    def check(self) -> None:
        """Raise FileError unless the content that was read is the one that was planned."""
        planned = self._file
        if planned.checksum != self.checksum if planned.checksum else planned.digest != self.digest:
            raise changed_meanwhile(planned, "its content is different, though its size and time are the same")

    def blocks(self) -> Iterator[bytes]:
        """Yield the content in blocks, each as it was read at once. Raises FileError."""
        for block in blocks_of(self._file, self._settings):
            self._crcs = iscsi(block, self._crcs[0]), iso_hdlc(block, self._crcs[1])
            if self._hash is not None:
                self._hash.update(block)
            yield block


def blocks_of(file: File, settings: HadoopSettings) -> Iterator[bytes]:
    """Yield a file's content in blocks, each as it was read at once. Raises FileError."""
    store = store_of(file.uri, settings)
    size = BLOCK_BYTES if store.local else _FAR_BLOCK_BYTES
    with file_errors(file.uri, settings):
        try:
            with store.files.open_input_stream(store.root, compression=None) as data:
                while block := data.read(size):
                    yield block
        except FileNotFoundError:
            raise changed_meanwhile(file, "it is gone") from None


def check_unchanged(file: File, settings: HadoopSettings) -> None:
    """Raise FileError unless the file is as it was listed. To be called before the first byte and after the last; for
    changes that neither size nor modification time shows, `HashedFile.check` looks at the content."""
    now = current(file, settings)
    if now is None or (now.size, now.mtime_ns) != (file.size, file.mtime_ns):
        raise changed_meanwhile(file, "it is gone" if now is None else _difference(file, now))


def _difference(was: File, now: File) -> str:
    if was.size != now.size:
        return f"it had {was.size:,} bytes, and has {now.size:,} now"
    return "it was written to"


def changed_meanwhile(file: File, how: str) -> EosError:
    """Return the error for a file that has changed since it was listed. ``how``: the difference from the listing."""
    return stop("EOS_FILE_CHANGED_WHILE_READ", uri=file.uri, how=how)


def malformed(file: File, why: str) -> EosError:
    """Return the error for a file that is not as the config says."""
    return stop("EOS_FILE_MALFORMED.content", uri=file.uri, why=" ".join(why.split()))


class CompleteFiles:
    """Decides which files are complete: files that this process has seen unchanged for a while, by its own clock; files
    with a marker beside them; or all, if files are renamed into the folder. ``expected``: the URIs of the files that
    were complete when `select` was last called, or will be if they do not change; ``soon``: some will be within a
    second.

    Object stores give times in whole seconds. A file that is replaced within the second in which it was written has the
    same time. So a file is complete only after it has been seen for a second: a later one has a different time.
    """

    def __init__(
        self, unchanged_s: float = 0.0, marker: str | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._unchanged_s, self._marker, self._clock = unchanged_s, marker, clock
        self._seen: dict[str, tuple[Stamp, float]] = {}
        self.expected: frozenset[str] = frozenset()
        self.soon = False

    def select(self, files: Sequence[File], names: Callable[[], frozenset[str]] = frozenset) -> list[File]:
        """Return the files that are complete now. ``names``: gives the URIs of all files in the folder."""
        if self._marker is not None:
            marked = names()
            own = [file for file in files if not file.uri.endswith(self._marker)]
            files = [file for file in own if file.uri + self._marker in marked]
        self.expected = frozenset(file.uri for file in files)
        moment = self._clock()
        seen = {}
        for file in files:
            stamp, since = self._seen.get(file.uri, (None, moment))
            seen[file.uri] = file.stamp, since if stamp == file.stamp else moment
        self._seen = seen
        since_s = {file: moment - seen[file.uri][1] for file in files}
        self.soon = any(self._unchanged_s <= since_s[file] < _grain_s(file) for file in files)
        return [file for file in files if since_s[file] >= max(self._unchanged_s, _grain_s(file))]


def _grain_s(file: File) -> float:
    """Return for how many seconds a file can be written to without a change of its modification time."""
    return 0.0 if file.mtime_ns % _SECOND_NS else 1.0
