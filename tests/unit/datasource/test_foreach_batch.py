"""Which run of a query a write within foreachBatch belongs to, without Spark."""

from __future__ import annotations

import uuid

import pytest

from spark_eos.datasource.foreach_batch import batch_writer
from spark_eos.errors import EosError, OptionError, Superseded
from spark_eos.sink import unwritten

SPARKS = "4f3cdc16-36b7-4677-a2dc-ce9960beb8a7"


class Frame:
    """As Spark's DataFrame, its session, context and writer. ``group``: the thread's job group; None in a thread of the
    user's own, where Spark names no query either. ``fails``: the error of ``save()``."""

    def __init__(self, group: str | None = None, fails: Exception | None = None) -> None:
        known = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "3", "spark.jobGroup.id": group}
        self.sparkSession = self.sparkContext = self
        self.getLocalProperty = (known if group else {}).get
        self.write = Writer()
        self.write.fails = fails


class Writer:
    """As Spark's DataFrameWriter."""

    fails: Exception | None = None

    def format(self, source: str) -> Writer:
        return self

    mode = format

    def options(self, **options: str) -> Writer:
        self.run = options["foreachBatch.run"]
        return self

    def save(self, *_: object, **__: object) -> None:
        if self.fails is not None:
            raise self.fails


def run_of(frame: Frame) -> str:
    return batch_writer(frame, 3, sink="s", query="q").run


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


def test_a_write_that_fails_ends_the_run_that_this_process_has_named(monkeypatch):
    """Spark's abort has closed it for good, and the query may be started again in this process."""
    monkeypatch.setattr(unwritten, "note", lambda given: None)
    run, failing = run_of(Frame()), Frame(fails=ZeroDivisionError())
    both = [batch_writer(failing, 3, sink=sink, query="q") for sink in ("s", "t")]
    batch_writer(Frame(), 3, sink="u", query="q").save()
    assert {writer.run for writer in both} == {run_of(Frame())} == {run}
    for writer in both:
        with pytest.raises(ZeroDivisionError):
            writer.save()
    assert run_of(Frame()) == run_of(Frame()) != run
    assert run_of(Frame(SPARKS)) == SPARKS


def test_a_write_that_another_driver_has_superseded_ends_no_run(monkeypatch):
    """A new run would supersede that driver."""
    monkeypatch.setattr(unwritten, "note", lambda given: None)
    run = run_of(Frame())
    superseded = Superseded("EOS_SUPERSEDED", "Another run has taken over.", hint="Stop this one.")
    with pytest.raises(EosError, match="EOS_SUPERSEDED"):
        batch_writer(Frame(fails=superseded), 3, sink="s", query="q").save()
    assert run_of(Frame()) == run
