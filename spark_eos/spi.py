"""The door of the connector, for pipelines and other packages that are built on it.

These names keep their meaning, while the modules behind them may change. Each is imported when it is first used, so
that a process that plans does not load what only tasks need. All of them raise `spark_eos.errors.EosError`.
`tests/integration/test_spi.py` is a writer and a reader that are built on them, in sixty lines.

**Clusters**
    `broker_client` returns this process's `BrokerClient` for a user's properties. Call it where Spark or a user calls
    in (a reader or writer, a command, the start of a job), and pass the client on; nobody closes it, and it is not
    pickled. `cluster_id`, `describe_topics` (each a `Topic`), `begin_offsets` and `end_offsets` ask it. `end_offsets`
    are by default the last stable ones: below them, nothing is open and nothing changes.

**Options**
    `stream_options` and `sink_options` parse the options of a user, into `SourceOptions` and `SinkOptions`. A program
    that writes micro-batches itself names its query by `own_query`, and parses its options by `own_write`, into
    `WriteOptions`.

**Reading**
    `TopicWatch` follows the topics of a selection, and their ends. `ReadableRanges` yields the committed records of
    ranges of offsets, in order, as Arrow, or raises: it leaves nothing out, passes over no open transaction, and finds
    out if a topic is another one than planned. `RangesOfTask` are the ranges that Spark hands to a task as its rows.

**Writing**
    A `RowSource` is sent to the tasks of a micro-batch, and writes there, in a `Task`: `run_task` writes Arrow batches;
    a source that fetches rows itself opens the run by the task, and gives `RowBatch` after `RowBatch` (rows in the
    sink's `Columns`, see `check_columns`) to the `RowWriter` of an `Attempt`, which makes a `TaskReport` of all
    `WriteStats`. The transaction stays open: it is committed by the decision on the micro-batch, and aborted in any
    other case. `write_by_job` lets a job of Spark write one micro-batch; within a run that `open_own_run` has opened,
    each micro-batch is written once, also when the program is killed and started again.
    `CountingIterator` counts the bytes of batches. `Identity` tells which attempt of which task runs here.

**Decisions**
    A `Kind` adds bytes of a feature to the `Decision` on a micro-batch, made of what tasks have `Reported`, and
    compares them in a replay; `FeatureRecords` become visible with the decision, in one transaction. The decision has
    a `Written` for each transaction, and a `Digest` says how its rows are compared.

**Files**
    `open_store` opens a location as users write it for Spark (`Store`; `NoStore` says why it cannot), by the
    `HadoopSettings` of the session; `absolute` makes a local location independent of the process's folder.

**Processes of Spark**
    `by_value` makes a class that Spark can send with its values; `quiet_here` and `hidden_traceback` keep the stacks of
    expected errors out of Spark's logs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_eos.checkpoint.settings import HadoopSettings as HadoopSettings
    from spark_eos.checkpoint.stores import NoStore as NoStore
    from spark_eos.checkpoint.stores import Store as Store
    from spark_eos.checkpoint.stores import absolute as absolute
    from spark_eos.checkpoint.stores import open_store as open_store
    from spark_eos.kafka.admin.topics import Topic as Topic
    from spark_eos.kafka.admin.topics import begin_offsets as begin_offsets
    from spark_eos.kafka.admin.topics import cluster_id as cluster_id
    from spark_eos.kafka.admin.topics import describe_topics as describe_topics
    from spark_eos.kafka.admin.topics import end_offsets as end_offsets
    from spark_eos.kafka.net.client import BrokerClient as BrokerClient
    from spark_eos.kafka.net.client import broker_client as broker_client
    from spark_eos.options.parse import SinkOptions as SinkOptions
    from spark_eos.options.parse import SourceOptions as SourceOptions
    from spark_eos.options.parse import sink_options as sink_options
    from spark_eos.options.parse import stream_options as stream_options
    from spark_eos.options.writes import WriteOptions as WriteOptions
    from spark_eos.options.writes import own_query as own_query
    from spark_eos.options.writes import own_write as own_write
    from spark_eos.protocol.extra import FeatureRecords as FeatureRecords
    from spark_eos.protocol.extra import Kind as Kind
    from spark_eos.protocol.extra import Reported as Reported
    from spark_eos.protocol.head import Decision as Decision
    from spark_eos.protocol.head import Digest as Digest
    from spark_eos.protocol.head import Written as Written
    from spark_eos.protocol.task import TaskReport as TaskReport
    from spark_eos.sink.attempt import Attempt as Attempt
    from spark_eos.sink.attempt import RowWriter as RowWriter
    from spark_eos.sink.attempt import WriteStats as WriteStats
    from spark_eos.sink.counting import CountingIterator as CountingIterator
    from spark_eos.sink.job import Identity as Identity
    from spark_eos.sink.job import RowSource as RowSource
    from spark_eos.sink.job_write import write_by_job as write_by_job
    from spark_eos.sink.own_run import open_own_run as open_own_run
    from spark_eos.sink.rows import RowBatch as RowBatch
    from spark_eos.sink.schema import Columns as Columns
    from spark_eos.sink.schema import check_columns as check_columns
    from spark_eos.sink.task import Task as Task
    from spark_eos.sink.task import run_task as run_task
    from spark_eos.source.range_reader import RangesOfTask as RangesOfTask
    from spark_eos.source.readable import ReadableRanges as ReadableRanges
    from spark_eos.source.watch import TopicWatch as TopicWatch
    from spark_eos.spark.by_value import by_value as by_value
    from spark_eos.spark.tracebacks import hidden_traceback as hidden_traceback
    from spark_eos.spark.worker_exit import quiet_here as quiet_here

#: The names of each module.
NAMES = {
    "checkpoint.settings": ("HadoopSettings",),
    "checkpoint.stores": ("NoStore", "Store", "absolute", "open_store"),
    "kafka.admin.topics": ("Topic", "begin_offsets", "cluster_id", "describe_topics", "end_offsets"),
    "kafka.net.client": ("BrokerClient", "broker_client"),
    "options.parse": ("SinkOptions", "SourceOptions", "sink_options", "stream_options"),
    "options.writes": ("WriteOptions", "own_query", "own_write"),
    "protocol.extra": ("FeatureRecords", "Kind", "Reported"),
    "protocol.head": ("Decision", "Digest", "Written"),
    "protocol.task": ("TaskReport",),
    "sink.attempt": ("Attempt", "RowWriter", "WriteStats"),
    "sink.counting": ("CountingIterator",),
    "sink.job": ("Identity", "RowSource"),
    "sink.job_write": ("write_by_job",),
    "sink.own_run": ("open_own_run",),
    "sink.rows": ("RowBatch",),
    "sink.schema": ("Columns", "check_columns"),
    "sink.task": ("Task", "run_task"),
    "source.range_reader": ("RangesOfTask",),
    "source.readable": ("ReadableRanges",),
    "source.watch": ("TopicWatch",),
    "spark.by_value": ("by_value",),
    "spark.tracebacks": ("hidden_traceback",),
    "spark.worker_exit": ("quiet_here",),
}
_MODULE_OF = {name: module for module, names in NAMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import the module of a name."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"spark_eos.{_MODULE_OF[name]}"), name)
