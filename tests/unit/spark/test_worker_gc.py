"""What workers are spared."""

from __future__ import annotations

import gc
import sys
import types

from spark_eos.spark.worker_gc import spare_collections


def is_collectable(thing: object) -> bool:
    """Whether collections look at it: what is frozen is not listed."""
    return any(each is thing for each in gc.get_objects())


def test_what_is_loaded_is_kept_out_of_later_collections():
    """Once, and again when a module has come: later tasks' objects stay collectable."""
    try:
        spare_collections()
        assert gc.get_freeze_count() > 10_000
        later = [[0]]
        spare_collections()
        assert is_collectable(later)
        sys.modules["come_since"] = types.ModuleType("come_since")
        spare_collections()
        assert not is_collectable(later)
    finally:
        sys.modules.pop("come_since", None)
        gc.unfreeze()
