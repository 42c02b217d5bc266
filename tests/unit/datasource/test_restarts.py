"""Restarts without Spark: the pauses between them."""

from __future__ import annotations

from typing import Any

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
