"""Which run of a query a write within foreachBatch belongs to, without Spark."""

from __future__ import annotations

import uuid

import pytest

from spark_eos.datasource.foreach_batch import batch_writer
from spark_eos.errors import EosError, OptionError, Superseded
from spark_eos.sink import unwritten
from tests.support.spark.frames import Frame, Writer

SPARKS = "4f3cdc16-36b7-4677-a2dc-ce9960beb8a7"


@pytest.fixture
def unnoted(monkeypatch: pytest.MonkeyPatch) -> None:
    """No ledger is there to note a write in that fails."""
    monkeypatch.setattr(unwritten, "note", lambda given: None)


def writer_of(frame: Frame, sink: str = "s") -> Writer:
    return batch_writer(frame, 3, sink=sink, query="q")


def run_of(frame: Frame) -> object:
    return writer_of(frame).given["foreachBatch.run"]


@pytest.mark.parametrize(("group", "is_run"), [(SPARKS, True), ("hourly load", False), (None, False)])
def test_the_run_is_sparks_own_where_the_job_group_is_one(group, is_run):
    """A user's own job group would name every start alike, and a start whose run was closed could never write again."""
    run = run_of(Frame(group))
    assert (run == group) == is_run and str(uuid.UUID(run)) == run
    assert run_of(Frame(group)) == run


def test_an_empty_name_names_no_query():
    """As of a variable that is not set: all such queries would be one, and rows of one count as written by another."""
    with pytest.raises(OptionError, match="'query' is empty"):
        batch_writer(Frame(), 3, sink="s", query="")


def test_a_write_that_fails_ends_the_run_that_this_process_has_named(unnoted):
    """Spark's abort has closed it for good, and the query may be started again in this process."""
    run = run_of(Frame())
    both = [writer_of(Frame(fails=ZeroDivisionError()), sink) for sink in ("s", "t")]
    writer_of(Frame(), "u").save()
    assert {writer.given["foreachBatch.run"] for writer in both} == {run_of(Frame())} == {run}
    for writer in both:
        with pytest.raises(ZeroDivisionError):
            writer.save()
    assert run_of(Frame()) == run_of(Frame()) != run
    assert run_of(Frame(SPARKS)) == SPARKS


def test_a_write_that_another_driver_has_superseded_ends_no_run(unnoted):
    """A new run would supersede that driver."""
    run = run_of(Frame())
    superseded = Superseded("EOS_SUPERSEDED", "Another run has taken over.", hint="Stop this one.")
    with pytest.raises(EosError, match="EOS_SUPERSEDED"):
        writer_of(Frame(fails=superseded)).save()
    assert run_of(Frame()) == run
