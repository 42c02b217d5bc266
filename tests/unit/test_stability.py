"""What version 0.1.0 has written is read, as docs/stability.md promises. What it has in common with what this version
writes may only be added to; the records themselves (written_by_0_1_0.json) never change.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.runner.noted_schemas import FILE, NotedSchemas, SchemaNote
from spark_eos.checkpoint.offset_log import OURS, source_line, to_spark
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.ledger.record_forms import own_topic_of
from spark_eos.ops.dead_letters import RECEIPT
from spark_eos.pipelines.files.notes import AllNotes, Taken
from spark_eos.pipelines.mirror import entries, offset_map, owner
from spark_eos.protocol.head_codec import decode, encode

WRITTEN = json.loads((Path(__file__).parent / "written_by_0_1_0.json").read_text())
QUERY = "0f2a7c1e-5b1d-4d8a-9a3e-7c0d1e2f3a4b"


def missing(old: Any, new: Any, at: str = "") -> list[str]:
    """Where ``new`` lacks something of ``old``, or has it otherwise; both as JSON."""
    if isinstance(old, dict) and isinstance(new, dict):
        lacks = [f"{at}/{key}" for key in old.keys() - new.keys()]
        return lacks + [
            found for key in old.keys() & new.keys() for found in missing(old[key], new[key], f"{at}/{key}")
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) <= len(new):
        return [found for i, each in enumerate(old) for found in missing(each, new[i], f"{at}/{i}")]
    return [] if old == new else [at]


@pytest.mark.parametrize("name", WRITTEN["heads"])
def test_a_head_is_read_with_all_that_it_says(name: str):
    """Whatever a replay of its decision, or a start, goes by: what was read is written again."""
    text = WRITTEN["heads"][name].encode()
    lost = missing(json.loads(text), json.loads(encode(decode(text))))
    assert set(lost) <= {"/written_by"}


def test_the_position_of_a_source_is_read_with_all_that_it_notes():
    """Ids, epochs, group, cluster, what was left: each guards against rows that are others than before."""
    line = source_line(WRITTEN["offsets"])
    assert (line.kind, line.damaged) == (OURS, False)
    assert missing(json.loads(WRITTEN["offsets"]), to_spark(line.position)) == []


def test_the_records_of_a_mirror_are_read():
    """Where rows are, where topics come from, and whose they are."""
    key, value = (text.encode() for text in WRITTEN["map entry"])
    entry = entries.from_record(key, value)
    assert entry is not None
    assert entries.to_record(entry) == (key, value)
    assert owner.to_record(owner.from_record(0, *(text.encode() for text in WRITTEN["map claim"]))) == tuple(
        text.encode() for text in WRITTEN["map claim"]
    )
    target, source, cluster = "Zr2b5hJTzqf1v1cYl7b2AA", "6xQ2b5hJTzqf1v1cYl7b2A", "5L6g3nShT-eMCtK--X86sw"
    origin = offset_map._origin(*(text.encode() for text in WRITTEN["map origin"]))
    assert origin == offset_map.Origin("east.flights", target, "flights", source, (cluster,))


def test_the_notes_of_an_ingest_are_read():
    """As the files that were taken, by task, and as those that the ledger has counted."""
    records = [(key.encode(), value.encode()) for key, value in WRITTEN["notes"]["records"]]
    taken = Taken.from_notes(QUERY, records, AllNotes("notes", 0, len(records), WRITTEN["notes"]["digest"]))
    assert [[file.uri for file in task] for task in taken.splits] == [
        ["file:/in/a.csv"],
        ["file:/in/b.csv", "file:/in/c.csv"],
    ]
    assert taken.digests == {"d1": "file:/in/a.csv", "d3": "file:/in/c.csv"}


def test_the_records_that_are_no_rows_are_known_by_their_form():
    """No stream reads them, and no row goes where they are."""
    ours = [
        (QUERY, WRITTEN["heads"]["decided"]),
        *WRITTEN["notes"]["records"],
        WRITTEN["map entry"],
        WRITTEN["map origin"],
    ]
    assert None not in [own_topic_of(key.encode(), value.encode()) for key, value in ours]


def test_the_schemas_that_a_job_reads_with_are_read(tmp_path: Path):
    """So that a replay decodes as the micro-batch was decided."""
    (tmp_path / FILE).write_text(WRITTEN["spark-eos.schemas.json"])
    notes = NotedSchemas(str(tmp_path), HadoopSettings({})).read()
    assert notes == [SchemaNote("value", 0, "flights-value", 3, "5d0c")]


def test_receipts_of_dead_letters_keep_their_name():
    """By it, letters that were sent again are left out the next time."""
    assert RECEIPT == "__spark_eos.resent"
