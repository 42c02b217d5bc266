"""What was taken, from the notes of all micro-batches, and whether these are all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_eos.errors import LedgerError
from spark_eos.pipelines.files.folder import File
from spark_eos.pipelines.files.notes import AllNotes, Notes, Taken, noted_by, notes_of
from spark_eos.protocol.commit import _next_decision, _records_to_write
from spark_eos.protocol.head import Decision, Extra, Head
from spark_eos.protocol.head_codec import decode, encode
from spark_eos.protocol.task import MicroBatch, TaskReport, Work

A, B, C = (File(f"file:///{name}", 5, 7, f"blake2b-{name}", ctime_ns=9) for name in "abc")
A2 = File(A.uri, 6, 8, "blake2b-a2")
FIRST = notes_of("q", "ingest", "topic", 0, [[A], [B, C]])
SECOND = notes_of("q", "ingest", "topic", 1, [[A2]])
OTHERS = notes_of("r", "other", "topic", 0, [[A]])
NOTED = AllNotes("n", 0).with_more(FIRST).with_more(SECOND)


def test_files_and_the_splits_of_the_last_micro_batch():
    """In whatever order the records come, others' among them; of a file that was taken twice, the newest."""
    taken = Taken.from_notes("q", reversed([*FIRST, *OTHERS, (b"no note", b""), (b"[" * 200_000, b""), *SECOND]), NOTED)
    assert taken.files == {A.uri: A2, B.uri: B, C.uri: C}
    assert taken.splits == [[A2]]
    assert taken.digests == {file.digest: file.uri for file in (A, B, C, A2)}
    first = Taken.from_notes("q", FIRST, AllNotes("n", 0).with_more(FIRST))
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
def test_notes_that_are_not_those_of_the_head(records: list[tuple[bytes, bytes]], noted: AllNotes | None):
    """Whoever went on with them would take files twice."""
    with pytest.raises(LedgerError, match="EOS_INGEST_NOTES_LOST"):
        Taken.from_notes("q", records, noted)


def test_notes_are_counted_over_all_decisions_and_written_with_a_new_one():
    """A replay's were written with its decision."""
    reports = (TaskReport(Work.WRITE, 0, 1, 1),)
    first, more = Notes("n", 0, FIRST), Notes("n", 0, SECOND)
    head = Head("r", 3, (), 5)
    for batch, notes in enumerate((first, more)):
        micro_batch = MicroBatch("r", batch, reports, kind=notes)
        assert _records_to_write(micro_batch, head.decision) == notes.records
        head = decode(encode(replace(head, decision=_next_decision(None, micro_batch, head, None))))
        assert _records_to_write(micro_batch, head.decision) is None
    assert noted_by(head.decision) == NOTED
    again = MicroBatch("r", 1, reports, kind=Notes("n", 0))
    assert _next_decision(None, again, head, None) == head.decision


@pytest.mark.parametrize("extra", [Extra("ranges", b"{}"), Extra(Notes.name, b'{"topic":"n","more":1}', True)])
def test_what_another_version_has_noted_stops_the_ingest(extra: Extra):
    """As if nothing were noted, it would take files twice."""
    with pytest.raises(LedgerError, match="EOS_LEDGER_FORMAT"):
        noted_by(Decision(0, 0, 1, 1, 1, None, (), extra=extra))
