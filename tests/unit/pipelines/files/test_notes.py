"""What was taken, from the notes of all micro-batches, and whether these are all."""

from __future__ import annotations

import pytest

from spark_eos.errors import LedgerError
from spark_eos.pipelines.files.folder import File
from spark_eos.pipelines.files.notes import Taken, notes_of
from spark_eos.protocol.head import Noted, Notes

A, B, C = (File(f"file:///{name}", 5, 7, f"blake2b-{name}", ctime_ns=9) for name in "abc")
A2 = File(A.uri, 6, 8, "blake2b-a2")
FIRST = notes_of("q", "ingest", "topic", 0, [[A], [B, C]])
SECOND = notes_of("q", "ingest", "topic", 1, [[A2]])
OTHERS = notes_of("r", "other", "topic", 0, [[A]])
NOTED = Notes("n", 0, SECOND).added_to(Notes("n", 0, FIRST).added_to(None))


def test_files_and_the_splits_of_the_last_micro_batch():
    """In whatever order the records come, others' among them; of a file that was taken twice, the newest."""
    taken = Taken.of("q", reversed([*FIRST, *OTHERS, (b"no note", b""), (b"[" * 200_000, b""), *SECOND]), NOTED)
    assert taken.files == {A.uri: A2, B.uri: B, C.uri: C}
    assert taken.splits == [[A2]]
    assert taken.digests == {file.digest: file.uri for file in (A, B, C, A2)}
    first = Taken.of("q", FIRST, Notes("n", 0, FIRST).added_to(None))
    assert first.splits == [[A], [B, C]]


@pytest.mark.parametrize(
    ("records", "noted"),
    [
        (FIRST, NOTED),
        ([*FIRST, *SECOND], None),
        ([], NOTED),
        ([*FIRST, (SECOND[0][0], OTHERS[0][1])], NOTED),
    ],
    ids=["too few", "too many", "none", "as many, another one"],
)
def test_notes_that_are_not_those_of_the_head(records: list[tuple[bytes, bytes]], noted: Noted | None):
    """Whoever went on with them would take files twice."""
    with pytest.raises(LedgerError, match="EOS_INGEST_NOTES_LOST"):
        Taken.of("q", records, noted)


def test_notes_as_an_option():
    """They travel to the process that commits as text."""
    notes = Notes("n", 3, FIRST)
    assert Notes.from_text(notes.as_text()) == notes
