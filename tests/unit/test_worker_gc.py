"""What workers are spared."""

from __future__ import annotations

import gc
import sys
import types

from spark_eos.worker_gc import spare_collections


def test_what_is_loaded_is_kept_out_of_later_collections():
    """Once, and again when a module has come: later tasks' objects stay collectable."""
    try:
        spare_collections()
        frozen = gc.get_freeze_count()
        assert frozen > 10_000
        later = [[] for _ in range(1000)]
        spare_collections()
        assert gc.get_freeze_count() <= frozen
        sys.modules["come_since"] = types.ModuleType("come_since")
        spare_collections()
        assert gc.get_freeze_count() >= frozen + len(later)
    finally:
        sys.modules.pop("come_since", None)
        gc.unfreeze()
