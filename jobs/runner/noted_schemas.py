"""Versions of schemas that a query reads with, noted in its checkpoint: a replay decodes as the decided micro-batch.

::

    <checkpoint>/spark-eos.schemas.json
        [{"column": "value", "since": 0, "subject": "flights-value", "version": 3, "fingerprint": "5d0c…"}, …]

A query has one version of each column in a run. The file is written before the run plans anything, and says from which
micro-batch on a version is used. Another version is used from the first micro-batch that is not planned yet: if one is
planned and not committed, this run, which repeats it, keeps the old version to its end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from spark_eos.base.log import logger
from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.checkpoint.stores import open_store
from spark_eos.errors import stop
from spark_eos.spark.system_errors import may_pass

if TYPE_CHECKING:
    from spark_eos.pipelines.registry.decoding import Decoding

FILE = "spark-eos.schemas.json"

#: The decoding by a version of a subject.
Read: TypeAlias = "Callable[[str, int | Literal['latest']], Decoding]"


@dataclass(frozen=True)
class SchemaNote:
    """A note of a schema's version. ``since``: the first micro-batch that is read with this version. ``column``: key or
    value."""

    column: str
    since: int
    subject: str
    version: int
    fingerprint: str


@dataclass(frozen=True)
class Progress:
    """The last micro-batches that are planned and committed; None if there is none."""

    planned: int | None = None
    committed: int | None = None

    @property
    def repeats(self) -> bool:
        """True if the next run repeats a micro-batch."""
        return self.planned is not None and self.planned != self.committed

    @property
    def next_planned(self) -> int:
        """The first micro-batch that is not planned yet."""
        return 0 if self.planned is None else self.planned + 1


def chosen(
    column: str, subject: str, wanted: int | None, read: Read, notes: Sequence[SchemaNote], progress: Progress
) -> tuple[Decoding, SchemaNote]:
    """Return the next run's reader of a column, and its note, which may be the last one. ``wanted``: the version that
    is set; None for the note's version, or the latest where there is no note.

    Raises RegistryError: EOS_REGISTRY_CHANGED if the registry has another schema under the noted version.
    """
    last = _last(column, notes)
    stays = last is not None and last.subject == subject and wanted in (None, last.version)
    if last is None or not (stays or progress.repeats):
        decoding = read(subject, wanted or "latest")
        return decoding, _note(column, progress.next_planned, decoding)
    if not stays:
        logger.warning(
            "Micro-batch %s is repeated with version %s of subject %s, with which it was planned, as are all of this "
            "run. The next start uses the version that is set now.",
            progress.planned, last.version, last.subject,
        )  # fmt: skip
    decoding = read(last.subject, last.version)
    note = _note(column, last.since, decoding)
    if note != last:
        raise stop(
            "EOS_REGISTRY_CHANGED.version",
            registry=decoding.settings.name,
            subject=last.subject,
            version=last.version,
            why=f"its fingerprint is {note.fingerprint}, not {last.fingerprint}",
        )
    return decoding, last


def _last(column: str, notes: Sequence[SchemaNote]) -> SchemaNote | None:
    """Return the note that counts: versions that are set one after the other may all be noted for the same
    micro-batch."""
    return next((note for note in reversed(notes) if note.column == column), None)


def _note(column: str, since: int, decoding: Decoding) -> SchemaNote:
    registered = decoding.registered
    return SchemaNote(column, since, registered.subject, registered.version, registered.schema.fingerprint)


class NotedSchemas:
    """The file in a checkpoint. Raises CheckpointError where it cannot be read or written."""

    def __init__(self, location: str, settings: HadoopSettings) -> None:
        self._checkpoint = Checkpoint(location, settings)
        self._store = open_store(location, settings.on_this_machine())

    def progress(self) -> Progress:
        """Return the progress of the query."""
        return Progress(self._checkpoint.last_batch("offsets"), self._checkpoint.last_batch("commits"))

    def read(self) -> list[SchemaNote]:
        """Return the notes, oldest first."""
        text = self._checkpoint.read(FILE)
        if text is None:
            return []
        try:
            notes = [SchemaNote(**each) for each in json.loads(text)]
        except (ValueError, TypeError):
            notes = []
        if not notes:
            raise self._checkpoint.damaged(FILE, "it is not the JSON that spark-eos writes")
        return notes

    def add(self, notes: Sequence[SchemaNote]) -> None:
        """Write the notes that differ from the last note of their column, in one step. Raises CheckpointError, and
        OSError for errors that may be temporary."""
        before = self.read()
        added = [note for note in notes if note != _last(note.column, before)]
        if not added:
            return
        content = json.dumps([asdict(note) for note in (*before, *added)], indent=1).encode()
        try:
            self._store.write(FILE, content)
        except OSError as error:
            if may_pass(error):
                raise
            raise self._checkpoint.failed(FILE, error) from None
