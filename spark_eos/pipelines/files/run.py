"""A run of an ingest: it takes the ledger, so that no other run can take files, and reads which files were taken."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

from spark_eos.errors import stop
from spark_eos.pipelines.files.notes import AllNotes, Notes, Splits, Taken, noted_by, notes_of
from spark_eos.spi import SinkOptions, WriteOptions, open_own_run, own_query, own_write


@dataclass(frozen=True)
class Ingest:
    """An ingest by its name, and where it writes. ``options``: the sink's, including ``topic``, by names in any case;
    ``notes``: the topic with the notes of the files that were taken."""

    name: str
    options: Mapping[str, str]
    notes: str

    @property
    def topic(self) -> str:
        return next(value for name, value in self.options.items() if name.lower() == "topic")

    @property
    def query(self) -> str:
        """The query's id in the ledger: one for each ingest and topic."""
        return own_query(self.name, self.topic).query_id

    def write_options(self, run: str, batch: int) -> WriteOptions:
        """Return the options for writing a micro-batch. Raises OptionError."""
        return own_write(self.options, own_query(self.name, self.topic), run, batch)


class IngestRun:
    """The run that may take files, until another one is opened. ``taken``: all files that were ever taken; ``batch``:
    the number of the next micro-batch; ``unfinished``: the last one is decided, but brokers have lost rows of it, so it
    is the next one again, with the same splits."""

    def __init__(self, ingest: Ingest) -> None:
        """Open the run, settle the last decision, and read the notes, in this order: once the run is open, no other run
        can decide anything. Raises EosError."""
        self._ingest = ingest
        self.run = str(uuid.uuid4())
        options = ingest.write_options(self.run, 0)
        _check_notes(ingest, options.sink)
        opened = open_own_run(options)
        decision, noted = opened.decision, noted_by(opened.decision)
        if noted is not None and noted.topic != ingest.notes:
            raise stop("EOS_INGEST_NOTES_LOST.moved", old_topic=noted.topic, new_topic=ingest.notes)
        partition = opened.partition_of(ingest.notes)  # which checks the topic, at every start
        self._noted = noted or AllNotes(ingest.notes, partition)
        self.taken = Taken.from_notes(ingest.query, opened.records(ingest.notes, self._noted.partition), noted)
        self.unfinished = decision is not None and bool(decision.lost)
        self.batch = 0 if decision is None else decision.batch + (not self.unfinished)

    @property
    def options(self) -> WriteOptions:
        """The options for writing the next micro-batch."""
        return self._ingest.write_options(self.run, self.batch)

    def notes(self, splits: Splits) -> Notes:
        """Return the notes of the next micro-batch, which takes these files."""
        ingest, notes = self._ingest, Notes(self._noted.topic, self._noted.partition)
        if self.unfinished:
            return notes
        return replace(notes, notes=notes_of(ingest.query, ingest.name, ingest.topic, self.batch, splits))

    def mark_taken(self, splits: Splits) -> None:
        """Note that the next micro-batch is taken, when its write has returned: all of it is committed."""
        for file in (file for files in splits for file in files):
            self.taken.add(file)
        self.unfinished = False
        self.batch += 1


def _check_notes(ingest: Ingest, options: SinkOptions) -> None:
    """Raise OptionError if the topic of the notes is also used for something else."""
    others = {"topic": options.topic, "ledger.topic": options.ledger_topic, "deadLetters.topic": options.dead_letters}
    for name, other in others.items():
        if other == ingest.notes:
            raise stop("EOS_OPTION_CONFLICT.same_topic", option=name, other="notes", topic=ingest.notes, kind="notes")
