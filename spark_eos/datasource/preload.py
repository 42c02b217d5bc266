"""Imports the modules of Spark's Python processes once, in a process that forks them.

A worker that imports the source and sink by itself, with pyarrow, numpy and pandas, spends more than half a second of
processor time on it. A forked worker has them from its parent. Nothing is imported here before `preload`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
from collections.abc import Iterable

#: Modules that tasks import. pyarrow imports pandas, if it is installed, when it makes an array of Python objects.
TASK_MODULES = (
    "pandas",
    "spark_eos.source.reader",
    "spark_eos.source.task",
    "spark_eos.sink.task",
    "spark_eos.pipelines.copy.task",
)
#: Modules that Spark's Python processes import: tasks, and the processes that find the format, plan and commit.
#: stringprep is for the names of brokers.
MODULES = (
    *TASK_MODULES,
    "stringprep",
    "pyarrow.pandas_compat",
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "spark_eos.datasource.provider",
    "spark_eos.datasource.ranges",
    "spark_eos.datasource.tables",
    "spark_eos.options.parse",
    "spark_eos.options.writes",
    "spark_eos.source.batch",
    "spark_eos.sink.batch_writer",
    "spark_eos.sink.writer",
    "spark_eos.pipelines.copy.source",
)


def preload(modules: Iterable[str]) -> None:
    """Import the modules, and freeze the garbage collector, so that forks share the memory of the objects so far.

    A module that cannot be imported is left out: the process that needs it reports why.
    """
    for name in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    gc.freeze()


def reseed() -> None:
    """Give numpy in a fork random numbers of its own, in users' functions. Python's random module does so by itself."""
    numbers = sys.modules.get("numpy.random")
    if numbers is not None:
        numbers.seed()
