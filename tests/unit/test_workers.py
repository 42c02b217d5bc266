"""What workers are spared."""

from __future__ import annotations

import gc

from spark_eos.workers import spare_collections


def test_what_is_loaded_is_kept_out_of_later_collections():
    """Once in a process: later tasks' objects stay collectable."""
    try:
        spare_collections()
        frozen = gc.get_freeze_count()
        assert frozen > 10_000
        later = [[] for _ in range(1000)]
        spare_collections()
        assert gc.get_freeze_count() <= frozen
        assert later
    finally:
        gc.unfreeze()
