"""What a job looks at before Spark starts: all that needs no Spark comes within seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spark_eos.kafka.net.client import broker_client
from spark_eos.options.parse import SinkOptions
from spark_eos.sink.preflight import check_cluster

#: A setting by which Spark brings modules, so that nobody else can import them before it.
PY_FILES = "spark.submit.pyFiles"


@dataclass(frozen=True)
class Check:
    """Something that a job looks at before Spark starts, without writing anything. ``what``: in words; ``look`` raises
    EosError."""

    what: str
    look: Callable[[], object]


def output_check(sink: SinkOptions) -> Check:
    """The check of brokers, topics and group of a sink, which its first micro-batch makes again."""
    topics = [f"the topic {sink.topic}" if sink.topic else "the brokers' settings"]
    topics += [f"the dead-letter topic {sink.dead_letters}"] if sink.dead_letters else []
    topics += [f"the group {sink.group_id}"] if sink.group_id else []
    return Check(f"{', '.join(topics)}, to write there", lambda: check_cluster(broker_client(sink.kafka), sink))
