"""Cheaper garbage collections in Spark's Python workers."""

from __future__ import annotations

import functools
import gc
import os
import sys


def spare_collections() -> None:
    """Exclude all current objects, mostly modules, from later garbage collections of this process.

    Spark's worker daemon runs a full garbage collection after every task (`pyspark/daemon.py`). With pyarrow and pandas
    this takes some 30 ms of processor time, just when the micro-batch is waiting for its commit.
    """
    _freeze(os.getpid(), len(sys.modules))


@functools.lru_cache(maxsize=1)
def _freeze(process_id: int, modules: int) -> None:
    """Freeze the current objects, again when more modules were imported: a worker that has read may write next."""
    gc.freeze()
