"""Takes the files of a folder: list, plan, write; one micro-batch after the other."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.datasource.restarts import pause
from spark_eos.errors import EosError, stop
from spark_eos.pipelines.files.folder import CompleteFiles, File, Folder, as_it_is_now, with_digest
from spark_eos.pipelines.files.notes import Splits
from spark_eos.pipelines.files.parquet import parquet_schema
from spark_eos.pipelines.files.run import IngestRun
from spark_eos.pipelines.files.source import longest_record
from spark_eos.spark.reasons import reason

from ..runner.job import JobContext
from ..runner.lines import Batch
from ..runner.values import seconds_of
from .selection import FileSelection, dealt
from .writing import writing_of

if TYPE_CHECKING:
    from ..ingest_files import IngestFiles

_CANCEL_S = 0.5
_LOOK_S = 0.25
#: The most bytes of a micro-batch whose files the driver reads for their digests by itself, several at a time.
BYTES_READ_HERE, _READERS = 128 << 20, 8


class FolderIngest:
    """One run of an ingest. ``written``: how many micro-batches it has written; ``finished``: with availableNow, all
    that was there has been taken."""

    def __init__(self, context: JobContext, job: IngestFiles) -> None:
        """Open the run, which ends every other one of the ingest, and settle its last decision. Raises EosError."""
        self._context, self._job, self._files = context, job, job.files
        self._settings = HadoopSettings.from_session(context.spark).on_this_machine()
        self._writing = writing_of(context.spark, self._files, job.transform, job.ingest().topic, self._settings)
        self._folder = Folder(self._files.path, self._files.pattern, self._settings)
        self._complete = CompleteFiles(self._files.unchanged_s, self._files.marker)
        self._run = IngestRun(job.ingest())
        self._selection = FileSelection(self._files, self._run.taken, self._settings)
        self._readers = ThreadPoolExecutor(_READERS, "eos digest")
        self._ahead: dict[File, Future[File]] = {}
        self._first: frozenset[str] | None = None
        self.written = 0
        self.finished = False

    def run(self) -> None:
        """Take files until the job is asked to stop or, with availableNow, until none is left. Raises EosError, and
        errors of Spark."""
        while not self._context.stop.asked():
            if not self.take():
                if self.finished:
                    return
                pause(self._pause_s, self._context.stop.asked)

    @property
    def _pause_s(self) -> float:
        """For how many seconds to wait until the folder is listed again."""
        if self._job.available_now:
            return min(1.0, max(_LOOK_S, self._files.unchanged_s))
        pause_s = max(_LOOK_S, seconds_of(self._job.trigger))
        return min(1.0, pause_s) if self._complete.soon else pause_s

    def take(self) -> bool:
        """List the folder, and write the next micro-batch if there are files to take. Returns whether it wrote one."""
        if self._run.unfinished:
            self._finish()
            return True
        listed = self._folder.files()
        complete = self._complete.select(listed, self._folder.names)
        if self._first is None:
            self._first = frozenset(file.uri for file in listed)
        due = [file for file in complete if self._selection.is_due(file)]
        splits = self._plan(due)
        if splits:
            self._read_ahead(due[len(self._selection.limited(due)) :])
            self._write(splits)
            return True
        if not any(self._selection.is_due(file) for file in listed):
            self._context.lines.idle()
        self.finished = self._job.available_now and not self._awaited(listed)
        return False

    def _finish(self) -> None:
        """Write the last micro-batch again, which is decided and has lost rows, from the same files."""
        splits = self._run.taken.splits
        try:
            self._write([[as_it_is_now(file, self._settings) for file in files] for files in splits])
        except Exception as error:
            why = reason(error)
            if why is None or why.condition == "EOS_FILE_STORE" or "FILE" not in why.condition.split("_"):
                raise
            raise stop("EOS_FILE_NEEDED", batch=self._run.batch, why=why.message) from None

    def _awaited(self, listed: Sequence[File]) -> bool:
        """Return whether files that were there when the run began will still be complete, and are not taken yet. A
        marker may never come, so files that lack theirs do not count."""
        assert self._first is not None
        awaited = self._first & self._complete.expected
        return any(file.uri in awaited and self._selection.is_due(file) for file in listed)

    def _plan(self, due: Sequence[File]) -> Splits:
        """Return the files of the next micro-batch, dealt to tasks; none where there is nothing to take."""
        chosen = self._selection.checked(self._read(self._selection.limited(due))) if due else []
        if not chosen:
            return []
        if self._files.format == "parquet":
            schema = parquet_schema(chosen[0], self._settings)
            chosen = list(takewhile(lambda file: parquet_schema(file, self._settings).equals(schema), chosen))
        return dealt(chosen, self._job.tasks or self._context.spark.sparkContext.defaultParallelism)

    def _read(self, files: Sequence[File]) -> list[File]:
        """Return the files with the digests of their contents: by Spark's tasks, or by this process, if they are so
        small that a job of Spark's would take longer. A file that was read ahead is not read again, unless that has
        failed."""
        ahead, self._ahead = self._ahead, {}
        read = {file: ahead[file].result() for file in files if file in ahead and ahead[file].exception() is None}
        left = [file for file in files if file not in read]
        digest = partial(with_digest, settings=self._settings)
        if sum(file.size for file in left) <= BYTES_READ_HERE:
            read |= zip(left, self._readers.map(digest, left), strict=True)
        else:
            sc = self._context.spark.sparkContext
            with self._cancelled_by_stop():
                by_tasks = sc.parallelize(left, min(len(left), 2 * sc.defaultParallelism)).map(digest).collect()
            read |= zip(left, by_tasks, strict=True)
        return [read[file] for file in files]

    def _read_ahead(self, due: Sequence[File]) -> None:
        """Begin to read the files of the micro-batch after the planned one, while that is written, if they are so small
        that this process reads them. A file whose size or time is another one by then is read again."""
        files = self._selection.limited(due)
        if sum(file.size for file in files) <= BYTES_READ_HERE:
            self._ahead = {file: self._readers.submit(with_digest, file, self._settings) for file in files}

    def _write(self, splits: Splits) -> None:
        began, number = time.monotonic(), self._run.batch
        with self._cancelled_by_stop(), self._named_record(splits):
            counts = self._writing.write(splits, self._run.options, self._run.notes(splits))
        self._run.mark_taken(splits)
        self.written += 1
        took_s, files = time.monotonic() - began, sum(map(len, splits))
        self._context.lines.add(
            Batch(number, counts.rows_in, counts.rows_out, took_s, files=files, dropped=counts.malformed)
        )

    @contextmanager
    def _named_record(self, splits: Splits) -> Iterator[None]:
        """Name, in the error of a row that is too large, the longest record of the files: it is probably that one."""
        try:
            yield
        except Exception as error:
            cause = reason(error)
            if cause is None or cause.condition != "EOS_ROW_TOO_LARGE":
                raise
            files = (file for files in splits for file in files)
            try:
                longest = longest_record(files, self._files.form(), self._settings)
            except EosError:  # of a file that has changed meanwhile
                longest = None
            if longest is None:
                raise
            raise stop("EOS_ROW_TOO_LARGE.file", why=cause.message, **longest) from None

    @contextmanager
    def _cancelled_by_stop(self) -> Iterator[None]:
        """Cancel Spark's jobs when the job is asked to stop: that aborts the write, unless it is decided."""
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
