"""What Spark's Python workers are spared."""

from __future__ import annotations

import functools
import gc
import os
import sys


def spare_collections() -> None:
    """Keep what is there now, the modules above all, out of later garbage collections of this process.

    Spark's worker daemon collects all garbage after every task (`pyspark/daemon.py`), which takes a worker with pyarrow
    and pandas some 30 ms of processor time, just when the micro-batch is waiting for its commit.
    """
    _freeze(os.getpid(), len(sys.modules))


@functools.lru_cache(maxsize=1)
def _freeze(process_id: int, modules: int) -> None:
    """Again when modules have come since: a worker that has read may write next."""
    gc.freeze()
