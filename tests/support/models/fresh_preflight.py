"""The driver's checks as a process makes them that has made none yet."""

from __future__ import annotations

from spark_eos.sink import preflight


def forget_checks() -> None:
    """Forget all results that the checks before a micro-batch go by for a while."""
    for cached in (preflight._of_cluster, preflight._is_readable, preflight._check_checkpoint):
        cached.cache_clear()
