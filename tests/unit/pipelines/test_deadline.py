"""Calls with a limit of time."""

from __future__ import annotations

import threading

import pytest

from spark_eos.pipelines.deadline import Overdue, within


def test_a_call_returns_or_raises_as_without_a_limit() -> None:
    """Also None, and errors that are not of Exception."""
    assert within(30, lambda: None, "t") is None
    assert within(30, lambda: threading.current_thread().name, "a thread") == "a thread"

    def fails() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        within(30, fails, "t")


def test_a_call_that_is_overdue_is_left_alone() -> None:
    """It ends when it can, and keeps no process alive."""
    ended = threading.Event()
    with pytest.raises(Overdue, match=r"no answer within 0\.01 s"):
        within(0.01, ended.wait, "the late one")
    (late,) = (thread for thread in threading.enumerate() if thread.name == "the late one")
    assert late.daemon
    ended.set()
    late.join(30)
    assert not late.is_alive()
