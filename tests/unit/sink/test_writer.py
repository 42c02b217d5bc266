"""The sink's writer on the driver, as far as it goes without a cluster."""

from __future__ import annotations

import pytest

from spark_eos.errors import ProtocolStop
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.options.parse import SinkOptions
from spark_eos.protocol.task import TaskReport, Work
from spark_eos.sink.job import Message
from spark_eos.sink.preflight import Facts
from spark_eos.sink.schema import Columns
from spark_eos.sink.spark_rows import SparkRows
from spark_eos.sink.writer import EosKafkaStreamWriter

NOWHERE = SinkOptions(KafkaProperties({"bootstrap.servers": "127.0.0.1:1"}), topic="t")
MESSAGE = Message("q", "r", Facts(60_000, 8, "d"), TaskReport(Work.WRITE, 0, 1, 1), 0.1, 0.0)


def writer() -> EosKafkaStreamWriter:
    columns = Columns(key=False, topic=False, partition=False, headers=False, timestamp=False)
    return EosKafkaStreamWriter(NOWHERE, SparkRows(columns))


@pytest.mark.parametrize("messages", [[MESSAGE, None], [None, MESSAGE], [None, None]])
def test_a_task_that_has_not_reported_stops_the_commit(messages):
    """Its rows would be missing from the decision, and nobody would look for them again."""
    with pytest.raises(ProtocolStop, match=f"{messages.count(None)} of its 2 tasks") as caught:
        writer().commit(messages, 7)
    assert caught.value.condition == "EOS_TASK_SILENT"
    assert caught.value.restart_helps
