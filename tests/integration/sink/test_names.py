"""Transactional ids on a real coordinator: what may be taken, and what must not be changed."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from spark_eos.errors import LedgerError
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.producer.arrow import ArrowProducer
from spark_eos.options.parse import sink_options
from spark_eos.protocol.head import Head
from spark_eos.protocol.names import TaskId, task_name
from spark_eos.protocol.open import open_run
from spark_eos.protocol.ports import State
from spark_eos.protocol.task import free_name
from tests.support.models.open_query import session_of


def test_a_resubmitted_stage_leaves_the_open_transaction_of_its_predecessor_alone(cluster, topic):
    """Attempt 0 of a second stage attempt must not abort what attempt 0 of the first has prepared."""
    name = topic(1)
    options = sink_options({"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": name})
    query, first = str(uuid.uuid4()), TaskId(generation=1, partition=0, slot=0)
    own = session_of(options, query)

    def free() -> str:
        return free_name(options.prefix, query, first, Head("run", 1, (), 5), own.coordinator)

    prepared = ArrowProducer(broker_client(options.kafka), free(), 60_000)
    prepared.init()
    prepared.write(name, 1, value=pa.array([b"row"]))
    prepared.flush()

    assert prepared.name == task_name(options.prefix, query, first)
    assert free() == task_name(options.prefix, query, TaskId(1, 0, 0, attempt=1))
    assert own.coordinator.describe([prepared.name])[prepared.name].state is State.ONGOING
    prepared.abort()
    prepared.close()
    assert free() == prepared.name


def test_a_query_keeps_its_prefix(cluster, topic):
    """Under another prefix the ledger's id is another one, so that a run which is still alive would not be fenced."""
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic(1)}
    query = str(uuid.uuid4())

    def begin(run: str, prefix: str) -> int:
        options = sink_options(given | {"transactionalIdPrefix": prefix})
        ports = session_of(options, query).ports
        return open_run(ports, run, 0, endtxn_version=5, prefix=prefix).generation

    assert begin("first", "one") == 1
    with pytest.raises(LedgerError, match=r"EOS_LEDGER_PREFIX_CHANGED.*'one'.*'other'"):
        begin("second", "other")
    assert begin("second", "one") == 2
