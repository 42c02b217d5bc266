"""The commit of a micro-batch's files to an Iceberg table: once, beside others, and into this table only."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from pyiceberg.table.update.snapshot import _FastAppendFiles

from spark_eos.errors import TableError
from spark_eos.pipelines.tables.iceberg import memory, snapshots
from tests.support.tables.delta_files import FIRST, QUERY, SECOND, micro_batch
from tests.support.tables.table_kinds import committed, expected, files_of

TAG = f"eos-{QUERY}"


def test_a_summary_has_the_end_offsets_of_all_partitions(kind, target) -> None:
    """Of those, too, that its micro-batch has not read, as the snapshots of earlier ones may have expired."""
    for batch in (FIRST, SECOND, micro_batch(2), micro_batch(3, (2, 7, 8))):
        committed(target, batch)
        kind.tidy()
    table = kind.load()
    tagged = table.snapshot_by_id(table.refs()[TAG].snapshot_id)
    assert tagged is not None and tagged.summary is not None
    assert json.loads(str(tagged.summary["spark-eos.ranges"])) == {"t/0": [5, 5], "t/1": [2, 2], "t/2": [7, 8]}


def test_an_outcome_that_stays_unknown_stops_the_query(kind, target, meanwhile) -> None:
    """Without what is secret in the catalog's properties."""
    named = kind.target(**{"catalog.password": "rosebud"})

    def fail() -> None:
        meanwhile("table.asked", fail)  # the next time, too
        raise OSError("no answer with rosebud from postgresql://user:swordfish@host/db")

    meanwhile("table.asked", fail)
    with pytest.raises(TableError) as error:
        named.commit(FIRST, files_of(named, FIRST), 5, is_there=False, patience_s=0.1)
    assert error.value.condition == "EOS_TABLE_UNCLEAR" and error.value.restart_helps
    assert "no answer with ***" in error.value.message
    assert kind.places() == Counter()


def test_what_the_table_remembers_outlives_snapshots(kind, target) -> None:
    """Also where the table lets tags expire at once."""
    committed(target, FIRST)
    with kind.load().transaction() as transaction:
        transaction.set_properties({"history.expire.max-ref-age-ms": "1"})
    kind.append({"topic": "foreign", "partition": 9, "offset": 0})
    kind.append({"topic": "foreign", "partition": 9, "offset": 1})
    kind.tidy()
    assert len(kind.load().metadata.snapshots) == 2
    assert kind.load().refs()[TAG].max_ref_age_ms == (1 << 63) - 1
    assert committed(target, FIRST).again
    assert not committed(target, SECOND).again
    assert kind.places() == expected(FIRST, SECOND) + Counter({(9, 0): 1, (9, 1): 1})


def test_to_stage_a_snapshot_changes_nothing_of_what_was_read(kind, target) -> None:
    """The table's metadata is not copied for it, by what is private in pyiceberg."""
    committed(target, FIRST)
    table = kind.load()
    before = table.metadata.model_dump_json()
    snapshots.stage(table, [], memory.summary_of(SECOND, 2, {}, "an id"))
    assert table.metadata.model_dump_json() == before == kind.load().metadata.model_dump_json()


def test_small_manifests_are_merged_as_the_table_says(kind, target) -> None:
    """Beside rows that others append and delete. A table that is created says so."""
    with kind.load().transaction() as transaction:
        assert transaction.table_metadata.properties["commit.manifest-merge.enabled"] == "true"
        transaction.set_properties({"commit.manifest.min-count-to-merge": "4"})
    batches = [micro_batch(n, (0, n, n + 1), (1, n, n + 1)) for n in range(12)]
    counts = []
    for batch in batches:
        committed(target, batch)
        if batch.number == 5:
            kind.append({"topic": "foreign", "partition": 9, "offset": 9})
            kind.load().delete("partition = 1 and offset = 2")
        snapshot = kind.load().current_snapshot()
        assert snapshot is not None
        counts.append(len(snapshot.manifests(kind.load().io)))
    assert max(counts) <= 6 and counts.count(1) > 1
    assert kind.places() == expected(*batches) - Counter([(1, 2)]) + Counter([(9, 9)])
    with kind.load().transaction() as transaction:
        transaction.set_properties({"commit.manifest-merge.enabled": "false"})
    for number in range(12, 18):
        committed(target, micro_batch(number))
        committed(target, micro_batch(number))
    assert committed(target, micro_batch(17)).again


@pytest.mark.parametrize("deletes", ["true", "false"])
def test_old_metadata_is_deleted_as_the_table_says(kind, target, deletes) -> None:
    """All that it no longer names, and nothing else."""
    with kind.load().transaction() as transaction:
        transaction.set_properties(
            {"write.metadata.delete-after-commit.enabled": deletes, "write.metadata.previous-versions-max": "3"}
        )
    batches = [micro_batch(n, (0, n, n + 1)) for n in range(8)]
    for batch in batches:
        committed(target, batch)
    table = kind.load()
    named = {*(entry.metadata_file for entry in table.metadata.metadata_log), table.metadata_location}
    there = {f"file://{file}" for file in kind.folder.rglob("*.metadata.json")}
    assert len(named) == 4 and (there == named if deletes == "true" else there > named)
    assert kind.places() == expected(*batches)


def test_another_pyiceberg_is_not_trusted(kind, target, monkeypatch) -> None:
    """One that would change more than branch and tag."""
    right = _FastAppendFiles._commit
    monkeypatch.setattr(_FastAppendFiles, "_commit", lambda self: ((right(self)[0] * 2), ()))
    with pytest.raises(TableError) as error:
        committed(target, FIRST)
    assert error.value.condition == "EOS_ICEBERG_LIBRARY" and not kind.load().metadata.snapshots
