"""The files of a streaming query's checkpoint: its id, and its planned and committed micro-batches. Read-only."""

from __future__ import annotations

import errno
import json
import re
from pathlib import PurePosixPath

import pyarrow.fs

from spark_eos.base.whole_numbers import plain_number
from spark_eos.checkpoint.offset_log import (
    OTHER,
    VERSION,
    OffsetLogEntry,
    Position,
    SourceLine,
    UnknownVersion,
    entry_of,
    lowest_offsets,
    source_line,
    topic_twice,
    with_text_keys,
)
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.checkpoint.stores import NoAnswer, NoStore, open_store
from spark_eos.errors import EosError, stop
from spark_eos.protocol.head import Offsets

_NO_SETTINGS = HadoopSettings()
#: Errors of a local file, or of one that is mounted, that do not pass; None is that of a file system without numbers.
_NOT_A_FILE = frozenset({None, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL})
#: Errors of a store that do not pass by themselves: no right to read, or a wrong address.
_LASTING = re.compile(r"ACCESS_DENIED|INVALID|SIGNATURE|NO_SUCH|NOT_FOUND|denied|forbidden|HTTP status 40[0134]", re.I)


class Checkpoint:
    """The checkpoint at ``location``, in one of the forms of `spark_eos.checkpoint.stores`. ``settings``: Hadoop's,
    of the session and the query.

    If the store cannot be read, every method raises CheckpointError: EOS_CHECKPOINT_UNREACHABLE if that may pass, else
    EOS_CHECKPOINT_STORE.
    """

    def __init__(self, location: str, settings: HadoopSettings = _NO_SETTINGS) -> None:
        self.location = location
        self.settings = settings.on_this_machine()
        try:
            store = open_store(location, self.settings)
        except NoAnswer as why:
            raise stop("EOS_CHECKPOINT_UNREACHABLE", location=location, name="metadata", why=why) from None
        except NoStore as why:
            raise self._closed(str(why)) from None
        self._files, self._root, self._local = store.files, store.root, store.local

    def query_id(self) -> str | None:
        """Return the query's id; None before its first start. Spark writes it before it plans the first micro-batch."""
        text = self.read("metadata")
        if text is None:
            return None
        try:
            query = json.loads(text)["id"]
        except (ValueError, KeyError, TypeError, RecursionError):
            query = None
        if not isinstance(query, str) or not query:
            raise self.damaged("metadata", "it is not the JSON that Spark writes")
        return query

    def last_batch(self, log: str) -> int | None:
        """Return the newest batch in the log ``offsets`` or ``commits``; None if there is none."""
        return max(self.batches(log), default=None)

    def batches(self, log: str) -> list[int]:
        """Return the micro-batches in the log ``offsets`` or ``commits``, in order."""
        return sorted(batch for name in self.names(log) if (batch := plain_number(name)) is not None)

    def names(self, folder: str = "") -> list[str]:
        """Return the names of the files in a folder of the checkpoint; none if the folder does not exist."""
        return [PurePosixPath(info.path).name for info in self._infos(folder)]

    def times(self, log: str) -> dict[int, float]:
        """Return micro-batch → when its file in a log was written, in seconds since 1970 by the file system's clock.
        Without the files for which the file system has no time."""
        times = {plain_number(PurePosixPath(info.path).name): info.mtime_ns for info in self._infos(log)}
        return {batch: nanos / 1e9 for batch, nanos in times.items() if batch is not None and nanos is not None}

    def _infos(self, folder: str) -> list[pyarrow.fs.FileInfo]:
        selector = pyarrow.fs.FileSelector(f"{self._root}/{folder}".rstrip("/"), allow_not_found=True)
        try:
            return list(self._files.get_file_info(selector))
        except Exception as error:  # of any kind, as file systems of fsspec pass on errors of libraries
            raise self.failed(folder or "the folder", error) from None

    def entry(self, batch: int) -> OffsetLogEntry:
        """Return the file of a micro-batch in the offset log. Raises CheckpointError (EOS_CHECKPOINT_DAMAGED) if it is
        missing or incomplete, and (EOS_CHECKPOINT_FORMAT) if it has another version."""
        name = f"offsets/{batch}"
        text = self.read(name)
        if text is None:
            raise self.damaged(name, "it is missing")
        try:
            return self._entry_of(name, text)
        except ValueError as why:
            raise self.damaged(name, str(why)) from None

    def sources(self, batch: int) -> list[str]:
        """Return the lines of the query's sources in the offset log of a micro-batch; none if the file does not exist,
        or is incomplete. Raises CheckpointError (EOS_CHECKPOINT_FORMAT)."""
        name = f"offsets/{batch}"
        try:
            return list(self._entry_of(name, self.read(name) or "").lines)
        except ValueError:
            return []

    def _entry_of(self, name: str, text: str) -> OffsetLogEntry:
        try:
            return entry_of(text)
        except UnknownVersion as other:
            version = other.version
            raise stop(
                "EOS_CHECKPOINT_FORMAT", location=self.location, name=name, version=version, known=VERSION
            ) from None

    def kafka_offsets(self, batch: int) -> Offsets:
        """End offsets of a micro-batch, exclusive, of all its Kafka sources: topic → partition → offset.

        Raises CheckpointError if the log is missing or damaged, has no Kafka source, or contains a topic twice.
        """
        lines = [source_line(text) for text in self.entry(batch).lines]
        if any(line.damaged for line in lines):
            raise self.damaged(f"offsets/{batch}", "the line of a source is truncated or overwritten")
        ours = [line for line in lines if line.kind != OTHER]
        if not ours:
            raise stop("EOS_CHECKPOINT_WITHOUT_OFFSETS.no_kafka_source", location=self.location)
        twice = topic_twice(ours)
        if twice is not None:
            raise stop("EOS_CHECKPOINT_WITHOUT_OFFSETS.topic_twice", topic=twice)
        return with_text_keys(lowest_offsets(ours))

    def topic_ids(self, batch: int) -> dict[str, str]:
        """Return topic → id, for the sources that have ids in the offset log of a micro-batch."""
        return {topic: id_ for position in self._positions(batch) for topic, id_ in position.ids.items()}

    def cluster_ids(self, batch: int) -> dict[str, str]:
        """Return topic → id of its cluster, for the sources that have it in the offset log of a micro-batch."""
        noted = [(position.cluster, position.offsets) for position in self._positions(batch)]
        return {topic: cluster for cluster, offsets in noted if cluster is not None for topic in offsets}

    def source_groups(self, batch: int) -> set[str]:
        """Return the consumer groups to which the query's sources commit their position themselves."""
        return {position.group for position in self._positions(batch) if position.group is not None}

    def _positions(self, batch: int) -> list[Position]:
        """Return the positions in the lines of all sources. Leaves damaged lines to `kafka_offsets`, which raises for
        them."""
        return [line.position for line in self.source_lines(batch)]

    def source_lines(self, batch: int) -> list[SourceLine]:
        """Parse the lines of the query's sources in the offset log of a micro-batch. Raises as `sources`."""
        return [source_line(text) for text in self.sources(batch)]

    def read(self, name: str) -> str | None:
        """Return the text of a file; None if it does not exist."""
        try:
            with self._files.open_input_stream(f"{self._root}/{name}") as stream:
                content: bytes = stream.read()
                return content.decode()
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise self.damaged(name, str(error)) from None
        except Exception as error:  # of any kind, as above
            raise self.failed(name, error) from None

    def failed(self, name: str, error: Exception) -> EosError:
        """Return the error for a file, or a folder, that cannot be read or written."""
        reason = self.settings.hide(str(error))
        if self._local and getattr(error, "errno", None) in _NOT_A_FILE:
            return self.damaged(name, reason)
        if isinstance(error, PermissionError) or (
            not self._local and _LASTING.search(self._without_names(reason, name))
        ):
            return self._closed(reason)
        return stop("EOS_CHECKPOINT_UNREACHABLE", location=self.location, name=name, why=reason)

    def _without_names(self, reason: str, name: str) -> str:
        """Return the words of a store's message without the user's names, which may be anything. Names are in paths or
        quoted: a mere word is the store's own, even if a folder has the same name."""
        parts = re.split(r"[/@:]", f"{self.location}/{self._root}/{name}")
        names = re.compile(rf"(?<!\w)(?:{'|'.join(re.escape(part) for part in parts if len(part) > 2)})(?!\w)")
        return " ".join(word for word in reason.split() if word.isalpha() or not names.search(word))

    def elsewhere(self) -> EosError:
        """Return the error for an empty location of a query that has started: Spark's files are somewhere else."""
        return self._closed("there is no file 'metadata', which Spark has written: Python reads another place")

    def _closed(self, why: str) -> EosError:
        return stop("EOS_CHECKPOINT_STORE.unreadable", location=self.location, why=why)

    def damaged(self, name: str, why: str) -> EosError:
        """Return the error for a file that cannot be used."""
        return stop("EOS_CHECKPOINT_DAMAGED.file", location=self.location, name=name, why=why)
