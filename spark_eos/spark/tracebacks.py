"""Errors of spark-eos without the Python worker's stack trace, which Spark would add to the message."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from spark_eos.errors import EosError
from spark_eos.spark.worker_exit import quiet_here

#: Read by a worker when it passes an exception to the JVM (`pyspark.util.handle_worker_exception`). Spark sets it for
#: all exceptions by ``spark.sql.execution.pyspark.udf.hideTraceback.enabled``.
_HIDDEN = "SPARK_HIDE_TRACEBACK"


@contextmanager
def hidden_traceback() -> Iterator[None]:
    """Context manager or decorator for everything that Spark calls: the stack trace of an EosError adds nothing, nor
    does that of a worker whose socket Spark has closed meanwhile (`quiet_here`).

    Any other exception is a bug and keeps its stack trace. A worker ends with the exception that it passes on, so
    nothing else is hidden.
    """
    quiet_here()
    try:
        yield
    except EosError:
        if _in_a_worker():
            os.environ[_HIDDEN] = "1"
        raise


class _WithoutOurs(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return record.exc_info is None or not isinstance(record.exc_info[1], EosError)


@cache
def quiet_callbacks() -> None:
    """Keep Py4J from printing the stack of an EosError raised in a function that the JVM calls, as in foreachBatch: the
    query ends with that error anyway. Once in a process."""
    for name in ("py4j.clientserver", "py4j.java_gateway"):
        logging.getLogger(name).addFilter(_WithoutOurs())


def _in_a_worker() -> bool:
    """Return whether this process is a Python worker of Spark: started as a module of pyspark, or forked by a daemon
    (Spark's, this package's or the user's), which has imported pyspark's worker by then."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return "pyspark.worker" in sys.modules or (spec is not None and spec.name.startswith("pyspark."))
