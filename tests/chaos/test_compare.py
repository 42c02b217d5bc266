"""The comparison under faults: a cell of it, from the first row to the verdict."""

from __future__ import annotations

import pytest

from bench.compare.cell import BROKERS, SETTINGS, run
from bench.compare.contenders import CONTENDERS
from bench.compare.faults import FAULTS
from spark_eos.tools.devcluster import DevCluster


@pytest.mark.chaos
def test_a_copy_that_is_killed_before_its_commits_is_clean():
    """It goes on after each kill, and no error ends it."""
    (copy,) = (contender for contender in CONTENDERS if contender.name == "copy")
    (fault,) = (fault for fault in FAULTS if fault.name == "kill-before")
    with DevCluster(brokers=BROKERS, config=SETTINGS) as cluster:
        cell = run(cluster, copy, fault, 1)
    assert cell.verdict.is_clean and cell.verdict.reordered == 0
    assert cell.verdict.fed > 1_000
    assert len(cell.recoveries) == 2
    assert cell.errors == [] and not cell.stopped
