"""Which write within foreachBatch it is: as users name it, to the last space, in options and in the ledger."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.datasource.foreach_batch import batch_writer
from spark_eos.errors import OptionError
from spark_eos.options.writes import own_query, write_options
from spark_eos.pipelines.files.run import Ingest
from spark_eos.protocol.head import ForeachBatchWrite
from spark_eos.protocol.names import INGESTS
from tests.support.judges.conditions import raises

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:1"}


@given(st.tuples(st.text(" a\t", min_size=1), st.text(" a\t", min_size=1)))
def test_the_write_that_options_describe_is_the_one_that_was_named(names):
    """Two sinks whose names differ by a space are two: the second one's rows are not those of the first one."""
    query, sink = names
    options = {f"foreachBatch.{name}": text for name, text in {"query": query, "sink": sink, "run": "r"}.items()}
    if query.strip() and sink.strip():
        parsed = write_options(SERVERS | options | {"foreachBatch.batch": "0"})
        assert parsed.write == ForeachBatchWrite(query, sink)
    else:
        with pytest.raises(OptionError, match="EOS_OPTION_INVALID"):
            write_options(SERVERS | options | {"foreachBatch.batch": "0"})


@pytest.mark.parametrize("name", ["flights", " flights ", "flights 1 all"])
def test_an_ingest_opens_the_query_that_its_writes_belong_to(name):
    """Its start looks under the ledger key under which its writes decide."""
    ingest = Ingest(name, SERVERS | {"topic": "all"}, "notes")
    write = ingest.write_options("r", 3).write
    assert write is not None
    assert (write, write.query_id) == (own_query(ingest.name, ingest.topic), ingest.query)


def test_the_topic_of_an_ingest_in_any_case():
    """Like all options of Spark."""
    topics = [Ingest("i", SERVERS | {name: "all"}, "notes").topic for name in ("topic", "Topic", "TOPIC")]
    assert set(topics) == {"all"}


def test_a_query_that_is_named_like_an_ingest_is_refused():
    """Its writes would be taken for the ingest's."""
    nobody = type("DataFrame", (), {"sparkSession": type("Session", (), {})()})()
    with raises("EOS_OPTION_RESERVED", "names that begin with 'ingest '"):
        batch_writer(nobody, 0, query=f"{INGESTS}flights")


@pytest.mark.parametrize("name", ["query", "run", "batch", "sink"])
def test_an_option_that_batch_writer_sets_is_refused_alone(name):
    """Whoever reads its name somewhere, such as in a plan, is told who sets it."""
    with pytest.raises(OptionError, match=rf"EOS_OPTION_UNSUPPORTED.*'foreachBatch\.{name}'.*spark_eos\.batch_writer"):
        write_options(SERVERS | {"topic": "t", f"foreachBatch.{name}": "1"})


def test_options_that_nobody_sets_by_hand_are_not_listed():
    """Only those that users may set."""
    for unknown in ("zzz", "foreachBatch.sinks"):
        with pytest.raises(OptionError, match="EOS_OPTION_UNKNOWN") as raised:
            write_options(SERVERS | {unknown: "1"})
        assert "foreachBatch" not in raised.value.hint and "job.id" in raised.value.hint
