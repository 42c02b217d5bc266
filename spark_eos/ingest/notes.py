"""What an ingest has taken: one note for each file, published with the decision on its rows.

Key and value are JSON. The key names the query, the micro-batch and the file's place in it, so that no note ever takes
the place of another one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from spark_eos.errors import EosError, stop
from spark_eos.ingest.folder import File
from spark_eos.protocol.head import Note, Noted, digest_of

#: The files of each task of a micro-batch, in the order in which it reads them.
Splits = Sequence[Sequence[File]]


def notes_of(query: str, ingest: str, topic: str, batch: int, splits: Splits) -> tuple[Note, ...]:
    """The notes of a micro-batch."""
    notes: list[Note] = []
    for task, files in enumerate(splits):
        for file in files:
            key = {"query": query, "batch": batch, "place": len(notes)}
            value = {"ingest": ingest, "topic": topic, "uri": file.uri, "size": file.size, "mtime_ns": file.mtime_ns}
            value |= {"digest": file.digest, "task": task, "tasks": len(splits)}
            notes.append((_text(key), _text(value)))
    return tuple(notes)


def _text(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


@dataclass
class Taken:
    """All that an ingest has taken. ``files``: by URI, the newest where a changed file was taken again; ``digests``:
    a URI for each content. ``splits``: those of the last micro-batch."""

    files: dict[str, File] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    splits: list[list[File]] = field(default_factory=list)

    @classmethod
    def of(cls, query: str, records: Iterable[Note], noted: Noted | None) -> Taken:
        """From the records of a partition, others' among them. Raises LedgerError unless they are all that the head
        knows of."""
        own = {key: value for key, value in records if _query(key) == query}
        found = Noted("", -1, len(own), digest_of(own.items()))
        known = noted or Noted("", -1)
        if (found.count, found.digest) != (known.count, known.digest):
            raise _lost(noted, found)
        taken = cls()
        for key, value in sorted(own.items(), key=lambda record: _place(record[0])):
            taken._add(_place(key), json.loads(value))
        return taken

    def _add(self, place: tuple[int, int], value: dict[str, object]) -> None:
        file = File(str(value["uri"]), int(str(value["size"])), int(str(value["mtime_ns"])), str(value["digest"]))
        if place[1] == 0:
            self.splits = [[] for _ in range(int(str(value["tasks"])))]
        self.splits[int(str(value["task"]))].append(file)
        self.add(file)

    def add(self, file: File) -> None:
        """Note a file. `digests` names the first file of each content; empty files are not compared."""
        self.files[file.uri] = file
        if file.size:
            self.digests.setdefault(file.digest, file.uri)


def _query(key: bytes) -> object:
    """Whose note it is; None where somebody else's record is no note."""
    try:
        return json.loads(key)["query"]
    except (ValueError, KeyError, TypeError):
        return None


def _place(key: bytes) -> tuple[int, int]:
    fields = json.loads(key)
    return fields["batch"], fields["place"]


def _lost(noted: Noted | None, found: Noted) -> EosError:
    known = 0 if noted is None else noted.count
    return stop(
        "EOS_INGEST_NOTES_LOST.lost",
        known=known,
        notes=found.count,
        difference=", different ones" if known == found.count else "",
    )
