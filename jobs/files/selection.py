"""Chooses the files of an ingest's next micro-batch, and deals them to its tasks. Reads files only to compute digests,
by which it recognizes copies."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.errors import stop
from spark_eos.pipelines.files.folder import File, Stamp
from spark_eos.pipelines.files.notes import Taken
from spark_eos.pipelines.files.source import has_rows

from .input import Files


class FileSelection:
    """Files that an ingest has yet to take. ``taken``: files that it has taken; it grows while this is used."""

    def __init__(self, files: Files, taken: Taken, settings: HadoopSettings) -> None:
        self._files, self._taken, self._settings = files, taken, settings
        #: By URI, the stamp under which a file had the content that was taken.
        self._same: dict[str, Stamp] = {}

    def is_due(self, file: File) -> bool:
        """Return whether the file is new, or may have changed since it was taken."""
        taken = self._taken.files.get(file.uri)
        return taken is None or file.stamp not in (taken.stamp, self._same.get(file.uri))

    def limited(self, due: Sequence[File]) -> list[File]:
        """Return as many files as a micro-batch may have, from the first one on."""
        chosen: list[File] = []
        size = 0
        for file in due[: self._files.max_files_per_trigger]:
            size += file.size
            if chosen and self._files.max_bytes_per_trigger is not None and size > self._files.max_bytes_per_trigger:
                break
            chosen.append(file)
        return chosen

    def checked(self, files: Sequence[File]) -> list[File]:
        """Return the files to be taken, with digests, except files whose content was taken already. Raises FileError
        for a file that was taken with another content, or whose content was taken from another file."""
        chosen: list[File] = []
        copies = ChainMap[str, str]({}, self._taken.digests)
        for file in files:
            before = self._taken.files.get(file.uri)
            if before is not None and before.digest == file.digest:
                self._same[file.uri] = file.stamp  # only its times are others
                continue
            if before is not None and self._files.on_changed == "fail":
                raise stop("EOS_FILE_CHANGED", uri=file.uri)
            original = copies.get(file.digest)
            is_copy = original not in (None, file.uri) and self._files.on_copy == "fail"
            if is_copy and has_rows(file, self._files.form(), self._settings):
                raise stop("EOS_FILE_COPIED", uri=file.uri, original=original)
            copies.setdefault(file.digest, file.uri)
            self._same.pop(file.uri, None)
            chosen.append(file)
        return chosen


def dealt(files: Sequence[File], tasks: int) -> list[list[File]]:
    """Deal the files, in their order, to at most so many tasks, each with about as many bytes."""
    share = max(1, sum(file.size for file in files) / tasks)
    splits: list[list[File]] = []
    size = 0.0
    for file in files:
        if not splits or (size >= share * len(splits) and len(splits) < tasks):
            splits.append([])
        splits[-1].append(file)
        size += file.size
    return splits
