"""Two runs of one query at once, and tasks that are tried again: what needs Spark applications of its own."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.kills import query
from tests.support.kills.killed_program import running
from tests.support.kills.scene import each_is_there_once, fed_query, nothing_is_open
from tests.support.queries.data_paths import also_by
from tests.support.runs.case_cover import in_turn
from tests.support.spark.session_faults import armed
from tests.support.waiting import TIMEOUT, wait_for


def slow(*values: object):
    """A case of the long share."""
    return pytest.param(*values, marks=pytest.mark.chaos)


@pytest.fixture
def spec(view, topic, way, tmp_path) -> Iterator[query.Spec]:
    with fed_query(view, topic, tmp_path, way) as made:
        yield made


@in_turn("a second run")
@also_by("copy", "transform")
@pytest.mark.parametrize("point", [*map(slow, ["prepare.wrote", "commit.decided"]), "commit.entered"])
def test_a_checkpoint_that_is_started_twice(point, view, spec, spark, tmp_path):
    """On a copy of the checkpoint a second application goes on; the first one, when it wakes up, stops by name."""
    faults = f"{point}=hold@{5 if point.startswith('prepare') else 2}"
    with running(spec, faults, tmp_path) as first:
        first.wait_at(point)
        shutil.copytree(spec.checkpoint, f"{spec.checkpoint}-copy")
        second = query.start(spark, replace(spec, checkpoint=f"{spec.checkpoint}-copy"))
        try:
            assert second.awaitTermination(TIMEOUT)
        finally:
            second.stop()
        each_is_there_once(view, spec)
        ends = view.ends_at_rest(spec.output)
        first.release(point)
        text = first.wait_for_end()
    assert "EOS_SUPERSEDED" in text
    each_is_there_once(view, spec)
    nothing_is_open(view, spec, second.id)
    if point == "commit.decided":  # its batch was settled by the second: there was nothing left to do
        assert view.ends(spec.output) == ends
    assert view.group(spec.group, spec.input) == view.ends(spec.input)


@in_turn("a stalled opening")
@also_by("copy")
@pytest.mark.parametrize(("nth", "late_goes_on"), [(1, True), slow(3, False)])
def test_a_run_that_stalls_while_it_opens(nth, late_goes_on, view, spec, spark, tmp_path):
    """Another one has opened in its place. Before that has decided anything, the late one takes over; after that, the
    late one's checkpoint is behind. Either way one goes on and the other stops by name."""
    with running(spec, "open.taken=hold", tmp_path) as late:
        late.wait_at("open.taken")
        with armed(spark, f"commit.entered=hold@{nth}", tmp_path / "early") as held:
            shutil.copytree(spec.checkpoint, f"{spec.checkpoint}-copy")
            early = query.start(spark, replace(spec, checkpoint=f"{spec.checkpoint}-copy"))
            held.wait()
            late.release("open.taken")
            text = late.wait_for_end()
            held.release()
            wait_for(lambda: not early.isActive, "the end of the early one")
    error = str(early.exception() or "")
    assert ("EOS_SUPERSEDED" in error) == late_goes_on
    assert ("EOS_CHECKPOINT_BEHIND" in text) != late_goes_on
    each_is_there_once(view, spec)
    nothing_is_open(view, spec, early.id)


@in_turn("a second attempt")
@also_by("copy", "transform")
@pytest.mark.parametrize("point", [*map(slow, ["prepare.begun", "prepare.wrote"]), "prepare.prepared"])
def test_a_task_that_fails_is_tried_again(point, view, spec, tmp_path):
    """Under a name of its own; the first attempt's transaction is aborted, and no row is there twice."""
    with running(replace(spec, master="local[2,3]"), f"{point}=fail@6", tmp_path) as once:
        assert "fault injected" in once.wait_for_end(0)
    each_is_there_once(view, spec)
    nothing_is_open(view, spec, once.query_id)
    assert view.group(spec.group, spec.input) == view.ends(spec.input)
    assert len([name for name in view.transactions(once.query_id) if re.search(r"-1-\d-[01]-1$", name)]) == 1
