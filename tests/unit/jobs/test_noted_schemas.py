"""Which version of a schema a run reads with: the noted one until another one is set, and for what is repeated."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from typing import Literal
from unittest.mock import Mock

import pytest

from jobs.runner import noted_schemas
from jobs.runner.noted_schemas import FILE, NotedSchemas, Progress, SchemaNote, chosen
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.errors import EosError
from spark_eos.pipelines.registry.decoding import Decoding
from spark_eos.pipelines.registry.schemas import Registered, Schema
from spark_eos.pipelines.registry.settings import registry_settings
from tests.support.judges.conditions import raises

SETTINGS = registry_settings("http://localhost:8081")
LATEST = 3
#: Nothing is planned; nothing is to be repeated; micro-batch 5 is.
NEW, IDLE, REPEATS = Progress(), Progress(5, 5), Progress(5, 4)


def read(subject: str, version: int | Literal["latest"], text: str = '"string"') -> Decoding:
    """From a registry in which each version of a subject is another schema."""
    number = LATEST if version == "latest" else version
    return Decoding(SETTINGS, Registered(subject, number, number, Schema("AVRO", f"{text} {subject} {number}")))


def note(version: int, since: int = 0, subject: str = "orders-value", column: str = "value") -> SchemaNote:
    fingerprint = read(subject, version).registered.schema.fingerprint
    return SchemaNote(column, since, subject, version, fingerprint)


@pytest.mark.parametrize(
    ("wanted", "notes", "progress", "expected"),
    [
        (None, [], NEW, note(LATEST)),
        (2, [], NEW, note(2)),
        (None, [], IDLE, note(LATEST, 6)),  # the job did not decode before
        (None, [note(1)], IDLE, note(1)),
        (None, [note(1), note(2, 4)], REPEATS, note(2, 4)),
        (1, [note(1)], REPEATS, note(1)),
        (2, [note(1)], IDLE, note(2, 6)),
        (1, [note(2)], IDLE, note(1, 6)),
        (2, [note(1)], REPEATS, note(1)),
        (None, [note(1, subject="other")], IDLE, note(LATEST, 6)),
        (None, [note(1, subject="other")], REPEATS, note(1, subject="other")),
        (None, [note(1, column="key")], IDLE, note(LATEST, 6)),
    ],
)
def test_the_noted_version_stays_until_another_one_is_set(wanted, notes, progress, expected):
    """Which then is read from the first micro-batch that is not planned; one that is repeated is read as before."""
    decoding, found = chosen("value", "orders-value", wanted, read, notes, progress)
    assert found == expected
    assert (decoding.registered.subject, decoding.registered.version) == (expected.subject, expected.version)


def test_a_version_that_has_become_another_schema_is_refused():
    """The registry was made anew: its ids, too, are those of other schemas."""

    def anew(subject: str, version: int | Literal["latest"]) -> Decoding:
        return read(subject, version, '"long"')

    with raises("EOS_REGISTRY_CHANGED.version") as caught:
        chosen("value", "orders-value", None, anew, [note(1)], IDLE)
    assert not caught.value.restart_helps


def test_notes_are_in_the_checkpoint(tmp_path):
    """Also in one that is not there yet; each once, and nothing else is left behind."""
    noted = NotedSchemas(str(tmp_path / "checkpoint"), HadoopSettings())
    assert noted.read() == [] and noted.progress() == NEW
    noted.add([note(1)])
    noted.add([note(1), note(2, 4)])
    noted.add([note(2, 4)])
    assert NotedSchemas(str(tmp_path / "checkpoint"), HadoopSettings()).read() == [note(1), note(2, 4)]
    assert [file.name for file in (tmp_path / "checkpoint").iterdir()] == [FILE]
    for folder, last in (("offsets", 5), ("commits", 4)):
        (tmp_path / "checkpoint" / folder).mkdir()
        (tmp_path / "checkpoint" / folder / str(last)).touch()
    assert noted.progress() == REPEATS


@pytest.mark.parametrize("planned", [None, 5])
def test_a_version_that_is_set_back_before_a_micro_batch_is_planned_is_noted_once_more(tmp_path, planned):
    """Runs that plan nothing, as with a version that the query cannot read: the one that plans has the last note."""
    noted = NotedSchemas(str(tmp_path), HadoopSettings())
    progress = Progress(planned, planned)
    for wanted in (3, 4, 3, 4, 3):
        decoding, found = chosen("value", "orders-value", wanted, read, noted.read(), progress)
        noted.add([note(1, column="key"), found])
        assert decoding.registered.version == noted.read()[-1].version == wanted
    repeats = Progress(progress.next_planned, planned)
    decoding, _ = chosen("value", "orders-value", 3, read, noted.read(), repeats)
    assert decoding.registered.version == 3
    assert noted.read().count(note(1, column="key")) == 1


@pytest.mark.parametrize("text", ["", "[", "[]", "{}", '[{"column": "value"}]', "[1]"])
def test_notes_that_are_damaged_are_refused(tmp_path, text):
    """Rather than taken for none."""
    (tmp_path / FILE).write_text(text)
    with pytest.raises(EosError, match="EOS_CHECKPOINT_DAMAGED"):
        NotedSchemas(str(tmp_path), HadoopSettings()).read()


def test_notes_that_cannot_be_written_are_an_error(tmp_path):
    """Else a restart could read with another version."""
    (tmp_path / "checkpoint").write_text(json.dumps({}))
    with pytest.raises(EosError, match="EOS_CHECKPOINT"):
        NotedSchemas(str(tmp_path / "checkpoint"), HadoopSettings()).add([note(1)])


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, OSError], NotedSchemas]:
    """``refused(location, error)``: notes in a checkpoint that refuses to be written by this error."""

    def refused(location: str, error: OSError) -> NotedSchemas:
        monkeypatch.setattr(noted_schemas, "open_store", lambda *_: Mock(write=Mock(side_effect=error)))
        return NotedSchemas(location, HadoopSettings())

    return refused


def test_notes_that_cannot_be_written_now_are_no_damage(tmp_path, refused):
    """On a disk that is full, or in a store that does not answer, the job is told that a restart helps."""
    with pytest.raises(OSError, match="No space left"):
        refused(str(tmp_path), OSError(errno.ENOSPC, "No space left on device")).add([note(1)])
    with raises("EOS_CHECKPOINT_UNREACHABLE") as caught:
        refused("memory://checkpoint", OSError("curl: no answer")).add([note(1)])
    assert caught.value.restart_helps
