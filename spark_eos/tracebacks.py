"""Errors of ours without the stack of the Python worker, which Spark would print as a part of the message."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from spark_eos.errors import EosError

_HIDDEN = "SPARK_HIDE_TRACEBACK"
"""What a worker goes by when it hands an exception to the JVM (`pyspark.util.handle_worker_exception`); for every
exception, Spark sets it by ``spark.sql.execution.pyspark.udf.hideTraceback.enabled``."""


@contextmanager
def hidden_traceback() -> Iterator[None]:
    """Around, or as a decorator of, all that Spark calls: an EosError says what is wrong, and its stack is no news.

    Any other exception is a defect, and keeps its stack. A worker ends with the exception that it hands over, so that
    nothing else is hidden.
    """
    try:
        yield
    except EosError:
        if _in_a_worker():
            os.environ[_HIDDEN] = "1"
        raise


def _in_a_worker() -> bool:
    """Whether this process is a Python worker of Spark's, started as a module of pyspark."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
