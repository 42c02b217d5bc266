"""Restarts without Spark: the pauses between them, and its cache."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest

from spark_eos.datasource import restarts
from spark_eos.spark.reasons import Reason


class Failed(Exception):
    """Why every start of the query fails."""


def _start() -> Any:
    raise Failed


def test_more_restarts_than_a_float_has_doublings():
    """A cluster that is away for days, and attempts without a limit: the pause stays the longest one."""
    why, pauses = Reason("EOS_X", "", "", True), []
    options: dict[str, Any] = {"explain": lambda _: why, "on_restart": lambda restart: pauses.append(restart.pause_s)}
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Failed):
        patch.setattr(restarts, "pause", lambda *_: True)
        restarts.run(_start, attempts=1_100, pause_s=10, **options)
    assert pauses == [10, 20, 40, 80, 160, *[300] * 1_095]


def test_the_cache_is_emptied_in_any_thread(session_of_another_thread):
    """Without any session there is no cache."""
    session = MagicMock()
    for known in (session, None):
        session_of_another_thread(known)
        with pytest.raises(Failed):
            restarts.run(_start, attempts=1, pause_s=0, explain=lambda _: Reason("EOS_X", "", "", True))
    session.catalog.clearCache.assert_called_once_with()


def test_a_micro_batch_counts_after_any_time_without_one():
    """Spark remembers the last hundred lines of progress, and an idle query has them, too."""
    batch, idle = {"durationMs": {"addBatch": 1}}, {"durationMs": {}}
    query = MagicMock(lastProgress=batch, recentProgress=[idle])
    query.awaitTermination.side_effect = [False, Failed] * 2
    factory = MagicMock(side_effect=[query, query, Failed])
    tried: list[int] = []
    options: dict[str, Any] = {"explain": lambda _: Reason("EOS_X", "", "", True), "pause_s": 0}
    with pytest.raises(Failed):
        restarts.run(factory, attempts=1, on_restart=lambda restart: tried.append(restart.attempt), **options)
    assert tried == [1, 1]
