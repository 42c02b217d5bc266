"""The files that an ingest has taken: one note for each, published with the decision on its rows.

Key and value are JSON. The key has the query, the micro-batch and the file's number in it, so that no note replaces
another one. The decision's extra has a digest of all notes up to it, so that a reader knows whether it has found
them all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from spark_eos.errors import stop
from spark_eos.pipelines.files.folder import File
from spark_eos.spi import FeatureRecords, Kind, Reported

if TYPE_CHECKING:
    from spark_eos.spi import Decision

#: The files of each task of a micro-batch, in the order in which the task reads them.
Splits = Sequence[Sequence[File]]

#: Key and value of a record. No two notes of a query have the same key.
Note = tuple[bytes, bytes]

_SUM = 1 << 64


@dataclass(frozen=True)
class AllNotes:
    """All notes of a query up to a decision: where they are, how many, and the sum of their digests."""

    topic: str
    partition: int
    count: int = 0
    digest: int = 0

    def with_more(self, records: Sequence[Note]) -> AllNotes:
        """Return all notes with the notes of one more decision."""
        digest = (self.digest + digest_of(records)) % _SUM
        return AllNotes(self.topic, self.partition, self.count + len(records), digest)


@dataclass(frozen=True)
class Notes(Kind):
    """Notes of one micro-batch, with their topic and partition; empty if it is decided already."""

    name = "notes of files"
    lasting = True

    topic: str
    partition: int
    notes: tuple[Note, ...] = ()

    @property
    def records(self) -> FeatureRecords:
        """See `Kind.records`."""
        return FeatureRecords(self.topic, self.partition, self.notes)

    def body(self, before: bytes | None, reports: Sequence[Reported]) -> bytes:
        """Return all notes up to this micro-batch."""
        noted = AllNotes(self.topic, self.partition) if before is None else _read(before)
        assert (noted.topic, noted.partition) == (self.topic, self.partition), noted
        return _text(asdict(noted.with_more(self.notes)))

    def compare(self, last: Decision, reports: Sequence[Reported]) -> None:
        """Do nothing for a replay: it reads the noted files, and its rows are compared."""


def noted_by(decision: Decision | None) -> AllNotes | None:
    """Return all notes up to a decision. Raises LedgerError for a decision that another version has made."""
    extra = None if decision is None else decision.extra
    if extra is None:
        return None
    if extra.kind != Notes.name:
        raise Notes.unreadable(ValueError(extra.kind))
    return _read(extra.body)


def _read(body: bytes) -> AllNotes:
    try:
        return AllNotes(**json.loads(body))
    except (ValueError, TypeError, RecursionError) as error:
        raise Notes.unreadable(error) from None


def digest_of(records: Iterable[Note]) -> int:
    """Return a sum, so that it does not depend on the order."""
    return sum(map(_digest, records)) % _SUM


def _digest(record: Note) -> int:
    key, value = record
    framed = b"%d:%b%b" % (len(key), key, value)
    return int.from_bytes(hashlib.blake2b(framed, digest_size=8).digest(), "big")


def notes_of(query: str, ingest: str, topic: str, batch: int, splits: Splits) -> tuple[Note, ...]:
    """Return the notes of a micro-batch."""
    notes: list[Note] = []
    for task, files in enumerate(splits):
        for file in files:
            key = {"query": query, "batch": batch, "place": len(notes)}
            value = {"ingest": ingest, "topic": topic, "uri": file.uri, "size": file.size, "mtime_ns": file.mtime_ns}
            value |= {"ctime_ns": file.ctime_ns, "digest": file.digest, "task": task, "tasks": len(splits)}
            notes.append((_text(key), _text(value)))
    return tuple(notes)


def _text(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


@dataclass
class Taken:
    """All files that an ingest has taken. ``files``: by URI, as they were when they were last taken; ``digests``: a URI
    for each content; ``splits``: splits of the last micro-batch."""

    files: dict[str, File] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    splits: list[list[File]] = field(default_factory=list)

    @classmethod
    def from_notes(cls, query: str, records: Iterable[Note], noted: AllNotes | None) -> Taken:
        """Read notes from the records of a partition, which may include other ingests' notes. Raises LedgerError unless
        they are exactly the notes that the ledger has counted."""
        own = {key: value for key, value in records if _query(key) == query}
        read = AllNotes("", -1, len(own), digest_of(own.items()))
        known = noted or AllNotes("", -1)
        if (read.count, read.digest) != (known.count, known.digest):
            raise stop(
                "EOS_INGEST_NOTES_LOST.lost",
                known=known.count,
                notes=read.count,
                difference=", different ones" if known.count == read.count else "",
            )
        taken = cls()
        for key, value in sorted(own.items(), key=lambda record: _place(record[0])):
            taken._add(_place(key), json.loads(value))
        return taken

    def _add(self, number: tuple[int, int], value: dict[str, object]) -> None:
        size, mtime_ns, ctime_ns = (int(str(value[name])) for name in ("size", "mtime_ns", "ctime_ns"))
        file = File(str(value["uri"]), size, mtime_ns, str(value["digest"]), ctime_ns=ctime_ns)
        if number[1] == 0:
            self.splits = [[] for _ in range(int(str(value["tasks"])))]
        self.splits[int(str(value["task"]))].append(file)
        self.add(file)

    def add(self, file: File) -> None:
        """Add a file. `digests` keeps the first file of each content, and no empty files."""
        self.files[file.uri] = file
        if file.size:
            self.digests.setdefault(file.digest, file.uri)


def _query(key: bytes) -> object:
    """Return the query of a note; None for a record that is no note."""
    try:
        return json.loads(key)["query"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _place(key: bytes) -> tuple[int, int]:
    fields = json.loads(key)
    return fields["batch"], fields["place"]
