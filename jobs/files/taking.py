"""Takes the files of a folder: list, plan, write; one micro-batch after the other."""

from __future__ import annotations

import threading
import time
from collections import ChainMap
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from spark_eos.checkpoint.settings import HadoopSettings, here, of_session
from spark_eos.errors import EosError, stop
from spark_eos.pipelines.files.folder import CompleteFiles, File, Folder, Stamp, as_it_is_now, with_digest
from spark_eos.pipelines.files.notes import Splits
from spark_eos.pipelines.files.parquet import parquet_schema
from spark_eos.pipelines.files.run import IngestRun
from spark_eos.pipelines.files.source import has_rows, longest_record
from spark_eos.spark.reasons import Reason, reason

from ..runner.job import JobContext
from ..runner.lines import Batch
from ..runner.values import seconds_of
from .writing import writing_of

if TYPE_CHECKING:
    from ..ingest_files import IngestFiles

_CANCEL_S = 0.5
_LOOK_S = 0.25
#: Up to so many bytes of a micro-batch, the driver reads its files for their digests by itself, several at a time.
BYTES_READ_HERE, _READERS = 128 << 20, 8


class Taking:
    """One run of an ingest, as `spark_eos.run` runs a query: each `awaitTermination` lists the folder and takes a
    micro-batch of its files, or waits a moment."""

    def __init__(self, context: JobContext, job: IngestFiles) -> None:
        self._context, self._job, self._files = context, job, job.files
        self._settings = here(HadoopSettings(of_session(context.spark)))
        self._writing = writing_of(context.spark, self._files, job.transform, job.ingest().topic, self._settings)
        self._folder = Folder(self._files.path, self._files.pattern, self._settings)
        self._complete = CompleteFiles(self._files.unchanged_s, self._files.marker)
        self._run = IngestRun(job.ingest())
        self._readers = ThreadPoolExecutor(_READERS, "eos digest")
        self._ahead: dict[File, Future[File]] = {}
        self._same: dict[str, Stamp] = {}
        self._first: frozenset[str] | None = None
        self._next_look = 0.0
        self.recentProgress: list[dict[str, dict[str, int]]] = []

    def stop(self) -> None:
        """Nothing is under way between two calls of `awaitTermination`."""

    def awaitTermination(self, timeout: float = 0.0) -> bool:
        """One step. Whether there is nothing more to do."""
        if self._run.unfinished:
            self._finish()
            return False
        wait_s = min(timeout, self._next_look - time.monotonic())
        if wait_s > 0:
            time.sleep(wait_s)
            return False
        listed = self._folder.files()
        complete = self._complete.of(listed, self._folder.names)
        if self._first is None:
            self._first = frozenset(file.uri for file in listed)
        due = [file for file in complete if self._is_due(file)]
        splits = self._plan(due)
        if splits:
            self._read_ahead(due[len(self._limited(due)) :])
            self._write(splits)
            return False
        self._next_look = time.monotonic() + (min(1.0, self._pause_s) if self._complete.soon else self._pause_s)
        if not any(self._is_due(file) for file in listed):
            self._context.lines.idle()
        return self._job.available_now and not self._awaited(listed)

    def _finish(self) -> None:
        """The last micro-batch is decided, and has lost rows: they are written again, from the same files."""
        splits = self._run.taken.splits
        try:
            self._write([[as_it_is_now(file, self._settings) for file in files] for files in splits])
        except Exception as error:
            found = reason(error)
            if found is None or "FILE" not in found.condition.split("_"):
                raise
            raise _needed(self._run.batch, found) from None

    @property
    def _pause_s(self) -> float:
        if not self._job.available_now:
            return seconds_of(self._job.trigger)
        return min(1.0, max(_LOOK_S, self._files.unchanged_s))

    def _awaited(self, listed: Sequence[File]) -> bool:
        """Whether files that were there at the first look are still to be taken, when they have not changed for a
        while. A marker may come or not."""
        assert self._first is not None
        awaited = self._first & self._complete.expected
        return any(file.uri in awaited and self._is_due(file) for file in listed)

    def _is_due(self, file: File) -> bool:
        """Whether the file is new, or has changed since it was taken."""
        taken = self._run.taken.files.get(file.uri)
        return taken is None or file.stamp not in (taken.stamp, self._same.get(file.uri))

    def _plan(self, due: Sequence[File]) -> Splits:
        """The files of the next micro-batch, dealt to tasks; none where there is nothing to take."""
        chosen = self._checked(self._read(self._limited(due))) if due else []
        if not chosen:
            return []
        if self._files.format == "parquet":
            schema = parquet_schema(chosen[0], self._settings)
            chosen = list(takewhile(lambda file: parquet_schema(file, self._settings).equals(schema), chosen))
        return _dealt(chosen, self._job.tasks or self._context.spark.sparkContext.defaultParallelism)

    def _limited(self, due: Sequence[File]) -> list[File]:
        chosen: list[File] = []
        size = 0
        for file in due[: self._files.max_files_per_trigger]:
            size += file.size
            if chosen and self._files.max_bytes_per_trigger is not None and size > self._files.max_bytes_per_trigger:
                break
            chosen.append(file)
        return chosen

    def _read(self, files: Sequence[File]) -> list[File]:
        """The files with the digests of their contents: by Spark's tasks, or by this process, if they are so small that
        a job of Spark's would take longer. What was read ahead is not read again, unless that has failed."""
        ahead, self._ahead = self._ahead, {}
        found = {file: ahead[file].result() for file in files if file in ahead and ahead[file].exception() is None}
        left = [file for file in files if file not in found]
        digest = partial(with_digest, settings=self._settings)
        if sum(file.size for file in left) <= BYTES_READ_HERE:
            found |= zip(left, self._readers.map(digest, left), strict=True)
        else:
            sc = self._context.spark.sparkContext
            with self._cancelled_by_stop():
                read = sc.parallelize(left, min(len(left), 2 * sc.defaultParallelism)).map(digest).collect()
            found |= zip(left, read, strict=True)
        return [found[file] for file in files]

    def _read_ahead(self, due: Sequence[File]) -> None:
        """Begin to read the files of the micro-batch after the planned one, while that is written, if they are so small
        that this process reads them. A file whose size or time is another one by then is read again."""
        files = self._limited(due)
        if sum(file.size for file in files) <= BYTES_READ_HERE:
            self._ahead = {file: self._readers.submit(with_digest, file, self._settings) for file in files}

    def _checked(self, files: Sequence[File]) -> list[File]:
        """Those that are to be taken. Raises FileError for one that was taken with another content, or whose content
        was taken from another file."""
        taken, chosen = self._run.taken, []
        copies = ChainMap[str, str]({}, taken.digests)
        for file in files:
            before = taken.files.get(file.uri)
            if before is not None and before.digest == file.digest:
                self._same[file.uri] = file.stamp  # only its times are others
                continue
            if before is not None and self._files.on_changed == "fail":
                raise _changed(file)
            original = copies.get(file.digest)
            is_copy = original not in (None, file.uri) and self._files.on_copy == "fail"
            if is_copy and has_rows(file, self._files.form(), self._settings):
                raise _copied(file, str(original))
            copies.setdefault(file.digest, file.uri)
            self._same.pop(file.uri, None)  # as what was taken before this
            chosen.append(file)
        return chosen

    def _write(self, splits: Splits) -> None:
        began, number = time.monotonic(), self._run.batch
        with self._cancelled_by_stop(), self._named_record(splits):
            counts = self._writing.write(splits, self._run.options, self._run.notes(splits))
        self._run.mark_taken(splits)
        took_s = time.monotonic() - began
        files = sum(map(len, splits))
        self._context.lines.add(
            Batch(number, counts.rows_in, counts.rows_out, took_s, files=files, dropped=counts.malformed)
        )
        self.recentProgress = [{"durationMs": {"addBatch": int(1000 * took_s)}}]

    @contextmanager
    def _named_record(self, splits: Splits) -> Iterator[None]:
        """Raise an error of a row that is too large with the longest record of the files, of which it probably is."""
        try:
            yield
        except Exception as error:
            cause = reason(error)
            if cause is None or cause.condition != "EOS_ROW_TOO_LARGE":
                raise
            try:
                longest = longest_record(
                    (file for files in splits for file in files), self._files.form(), self._settings
                )
            except EosError:  # of a file that has changed meanwhile
                longest = None
            if longest is None:
                raise
            raise stop("EOS_ROW_TOO_LARGE.file", why=cause.message, **longest) from None

    @contextmanager
    def _cancelled_by_stop(self) -> Iterator[None]:
        """Meanwhile, a stop of the job cancels what Spark is at, which aborts the write unless it is decided."""
        end = threading.Event()

        def watch() -> None:
            while not end.wait(_CANCEL_S):
                if self._context.stop.asked():
                    self._context.spark.sparkContext.cancelAllJobs()

        watching = threading.Thread(target=watch, name="stop", daemon=True)
        watching.start()
        try:
            yield
        finally:
            end.set()
            watching.join()


def _dealt(files: Sequence[File], tasks: int) -> list[list[File]]:
    """The files in their order, to at most so many tasks, each with about as many bytes."""
    share = max(1, sum(file.size for file in files) / tasks)
    splits: list[list[File]] = []
    size = 0.0
    for file in files:
        if not splits or (size >= share * len(splits) and len(splits) < tasks):
            splits.append([])
        splits[-1].append(file)
        size += file.size
    return splits


def _needed(batch: int, why: Reason) -> EosError:
    return stop("EOS_FILE_NEEDED", batch=batch, why=why.message)


def _changed(file: File) -> EosError:
    return stop("EOS_FILE_CHANGED", uri=file.uri)


def _copied(file: File, original: str) -> EosError:
    return stop("EOS_FILE_COPIED", uri=file.uri, original=original)
