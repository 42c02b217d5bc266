"""What a commit of a micro-batch says about its rows, by the offset log of the query's checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.delta.batches import Batches, BatchNote
from spark_eos.checkpoint.files import Checkpoint
from spark_eos.errors import CheckpointError
from tests.support.judges.conditions import raises

OFFSETS = st.dictionaries(
    st.sampled_from(["a", "b", "a.b", "t/0"]),
    st.dictionaries(st.sampled_from(["0", "1", "10"]), st.integers(0, 2**63 - 1), min_size=1),
    max_size=3,
)
IDS = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["one", "two"]))
SOURCES = st.lists(st.tuples(OFFSETS, IDS), min_size=1, max_size=2)
#: What else a source notes, by which rows do not differ.
MARKS = st.dictionaries(st.sampled_from(["#group", "#cluster", "#left"]), st.integers())


def written(folder: str, batch: int, sources: list[tuple[dict, dict]], marks: dict) -> None:
    lines = [json.dumps(offsets | ({"#ids": ids} if ids else {}) | marks) for offsets, ids in sources]
    file = Path(folder, "offsets", str(batch))
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n".join(["v1", "{}", *lines]))


def note(start: list, end: list, marks: dict) -> BatchNote:
    with TemporaryDirectory() as folder:
        written(folder, 6, start, marks)
        written(folder, 7, end, marks)
        return BatchNote.from_checkpoint(Checkpoint(folder), 7, {"rows": 1}, "id")


@given(SOURCES, SOURCES, SOURCES, SOURCES, MARKS, MARKS)
def test_notes_are_equal_where_offsets_and_topics_are(start, end, start2, end2, marks, marks2) -> None:
    """Of each source, before and after; whatever else is noted, and in whatever order."""
    start, start2 = (start * 2)[: len(end)], (start2 * 2)[: len(end2)]
    one, other = note(start, end, marks), note(start2, end2, marks2)
    assert (one.digest == other.digest) == ((start, end) == (start2, end2))
    again = [({topic: dict(reversed(found.items())) for topic, found in reversed(each.items())}, i) for each, i in end]
    assert note(start, again, marks2).digest == one.digest
    ends = {f"{topic}/{partition}": offset for topic, found in end[0][0].items() for partition, offset in found.items()}
    assert {place: last for place, (_, last) in one.ranges.items() if "source" not in place}.items() <= ends.items()


@given(SOURCES, st.none() | st.text())
def test_a_note_is_read_as_it_was_written(end, theirs) -> None:
    """Beside what the session's settings say of commits."""
    one = note((end * 2)[: len(end)], end, {})
    text = one.text(theirs)
    assert BatchNote.read(text) == one
    assert json.loads(text).get("userMetadata") == theirs


@given(st.recursive(st.none() | st.integers() | st.text() | st.floats(), lambda each: st.lists(each) | st.dictionaries(
    st.sampled_from(["spark-eos", "batch", "ranges", "counts", "digest", "attempt"]) | st.text(), each
)) | st.binary().map(lambda raw: raw.decode("latin-1")))  # fmt: skip
def test_what_others_write_is_no_note(what) -> None:
    """Nor does it end the job with an error of Python."""
    text = what if isinstance(what, str) else json.dumps(what)
    for each in (text, json.dumps({"spark-eos": what}), None, "[" * 100_000):
        assert BatchNote.read(each) is None


def test_a_note_names_its_first_ranges() -> None:
    """In a message there is no room for thousands."""
    many = {f"t/{n}": (0, 1000 * n + 1000) for n in range(6)}
    said = str(BatchNote(1, "", many, {}, "", ""))
    assert said == "offsets t/0 0 to 1,000, t/1 0 to 2,000, t/2 0 to 3,000, t/3 0 to 4,000 and 2 more"
    assert str(BatchNote(1, "", {}, {}, "", "")) == "no new offsets"


@pytest.mark.parametrize("text", ["", "v1\n{}", 'v1\n{}\n{"t":', "v1\n{}\n[]", "v1\n{}\n5"])
def test_an_offset_log_that_is_damaged_is_an_error(tmp_path: Path, text: str) -> None:
    """A micro-batch whose offsets are not known is not taken for another one."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text(text)
    with pytest.raises(CheckpointError, match="EOS_CHECKPOINT_DAMAGED"):
        BatchNote.from_checkpoint(Checkpoint(str(tmp_path)), 0, {}, "id")


def test_a_source_without_offsets_so_far_has_none(tmp_path: Path) -> None:
    """Spark writes a dash for it."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text('v1\n{}\n-\n{"t":{"0":5}}')
    assert BatchNote.from_checkpoint(Checkpoint(str(tmp_path)), 0, {}, "id").ranges == {"t/0 (source 2)": (0, 5)}


def test_a_merge_needs_to_know_its_query() -> None:
    """No identity is invented for it, as a replay would not have the same."""
    spark = Mock()
    spark.sparkContext.getLocalProperty.return_value = None
    with raises("EOS_DELTA_WITHOUT_QUERY"):
        Batches("/table", "/checkpoint").once(spark, 0, pytest.fail, dict, pytest.fail)
