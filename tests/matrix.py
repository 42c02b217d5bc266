"""Runs test suites on each version of Kafka, and writes what came of it into the table of docs/versions.md.

``python -m tests.matrix`` runs the cells that are not green yet, one after the other, each within a time limit;
what is done is noted in docs/versions.json, so that a run goes on where the one before was stopped. ``--only`` and
``--scenario`` (repeat) choose cells, ``--again`` runs those that are green, too.
"""

from __future__ import annotations

import sys

from tests.cells import ROOT, Cells

#: Of Kafka, with transaction.version; None where there is no such feature, which counts as 0.
CLUSTERS: dict[str, tuple[str, int | None]] = {
    "3.7.2": ("3.7.2", None),
    "3.9.2": ("3.9.2", None),
    **{f"{v}/{level}": (v, level) for v in ("4.0.2", "4.1.2", "4.3.1", "4.4.0") for level in (0, 1, 2)},
}
_KILLS = "tests/chaos/test_kills.py::test_a_kill_at_every_point_loses_and_doubles_nothing"
_POINTS = ("open.published-dead", "prepare.prepared-zombie", "commit.between-zombie")
_COPY, _MIRROR = "tests/integration/pipelines/copy", "tests/integration/pipelines/mirror"
SCENARIOS: dict[str, tuple[str, ...]] = {
    "reading": (
        "tests/integration/source/test_raw.py",
        "tests/integration/source/test_small_ranges.py",
        "tests/integration/source/test_rows.py",
    ),
    "ledger": ("tests/integration/kafka/test_ledger.py", "tests/integration/kafka/test_ports.py"),
    "writing": ("tests/integration/sink/test_sink.py",),
    "copies": (
        f"{_COPY}/test_copies.py::test_a_copy_is_what_the_source_holds",
        f"{_COPY}/test_copies.py::test_a_transform_sees_the_rows_and_says_what_is_written",
        f"{_COPY}/test_replays.py::test_what_was_lost_is_written_again_and_nothing_else",
        f"{_COPY}/test_replays.py::test_a_lost_transaction_of_several_partitions_is_written_again",
    ),
    "mirror": (
        f"{_MIRROR}/test_mirror.py::test_topics_are_mirrored",
        f"{_MIRROR}/test_mirror.py::test_what_was_lost_is_written_again",
        f"{_MIRROR}/test_landed.py",
    ),
    "kills": tuple(f"{_KILLS}[{point}]" for point in _POINTS),
    "two-phase": ("tests/chaos/test_two_phase.py::test_a_driver_that_dies_while_nothing_expires",),
    "change": ("tests/chaos/test_versions.py::test_the_feature_changes_in_the_middle_of_a_batch",),
}


def applies(cluster: str, scenario: str) -> bool:
    """Brokers before 4.3 offer no two-phase commit. The feature's changes begin with levels of their own."""
    version, level = CLUSTERS[cluster]
    if scenario == "two-phase":
        return level == 2 and version in ("4.3.1", "4.4.0")
    return scenario != "change" or level == 2


def python(cluster: str) -> tuple[list[str], list[str]]:
    """This interpreter, with the arguments that choose the version."""
    version, level = CLUSTERS[cluster]
    options = [f"--kafka-version={version}"] + ([] if level is None else [f"--transaction-version={level}"])
    return [sys.executable], options


CELLS = Cells(
    name="table of brokers",
    head="Kafka, `transaction.version`",
    notes=ROOT / "docs" / "versions.json",
    rows={name: f"{version}, {'none' if level is None else level}" for name, (version, level) in CLUSTERS.items()},
    scenarios=SCENARIOS,
    applies=applies,
    python=python,
)

if __name__ == "__main__":
    sys.exit(CELLS.main("python -m tests.matrix", __doc__))
