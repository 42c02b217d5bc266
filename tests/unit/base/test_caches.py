"""Results that are kept for a while, and messages that are logged once."""

from __future__ import annotations

import logging
import os
import signal
import threading

import pytest

from spark_eos.base.caches import log_once, process_cache, ttl_cache


@pytest.fixture
def calls():
    """Arguments with which `answer` was called."""
    return []


@pytest.fixture
def answer(calls):
    """A cached function, for 10 s and of two results, that gives the number of its calls."""

    @ttl_cache(10, maxsize=2)
    def answer(name: str, *, how: str = "") -> int:
        calls.append(name + how)
        return len(calls)

    return answer


def test_a_result_is_kept_until_its_time_is_over(answer, clock):
    """For 10 s from the call that computed it; using it does not prolong that."""
    assert answer("a") == 1
    clock.now += 9.9
    assert answer("a") == 1
    clock.now += 0.1
    assert answer("a") == 2
    clock.now += 9.9
    assert answer("a") == 2


def test_its_time_counts_from_the_call_and_not_from_the_answer(clock):
    """What the function saw may be as old as the call."""
    taken = []

    @ttl_cache(10, maxsize=2)
    def slow() -> int:
        taken.append(1)
        clock.now += 6
        return len(taken)

    assert slow() == 1
    clock.now += 4
    assert slow() == 2


def test_each_argument_has_its_own_result(answer, calls):
    """Keyword arguments count, too."""
    assert [answer("a"), answer("b"), answer("a"), answer("a", how="!"), answer("a", how="!")] == [1, 2, 1, 3, 3]
    assert calls == ["a", "b", "a!"]


def test_what_was_used_last_is_kept(answer, calls):
    """A third result takes the place of the least recently used one."""
    for name in ("a", "b", "a", "c", "a", "b"):
        answer(name)
    assert calls == ["a", "b", "c", "b"]


def test_an_error_is_not_kept():
    """The next call tries again."""
    outcomes = iter([OSError("not yet"), 7])

    @ttl_cache(10, maxsize=1)
    def ask() -> int:
        outcome = next(outcomes)
        if isinstance(outcome, OSError):
            raise outcome
        return outcome

    with pytest.raises(OSError, match="not yet"):
        ask()
    assert ask() == ask() == 7


def test_a_slow_call_blocks_no_other_thread(clock):
    """As a broker may be silent while another one is asked."""
    inside, go_on = threading.Event(), threading.Event()

    @ttl_cache(10, maxsize=2)
    def ask(node: int) -> int:
        if node == 1:
            inside.set()
            assert go_on.wait(60)
        return node

    thread = threading.Thread(target=ask, args=(1,), daemon=True)
    thread.start()
    assert inside.wait(60)
    assert ask(2) == 2
    go_on.set()
    thread.join(60)
    assert not thread.is_alive()


def _in_a_child(function) -> int:
    """What the function gives in a forked child, as the status that this ends with."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(function())
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_child_does_not_use_its_parents_results():
    """Connections, for example, must not be shared; the parent's own result stays."""
    pid = process_cache(maxsize=1)(os.getpid)
    assert pid() == os.getpid()
    assert _in_a_child(lambda: 3 if pid() == os.getpid() else 4) == 3
    assert pid() == os.getpid()


def test_a_child_gets_no_lock_that_a_thread_of_its_parent_holds():
    """Otherwise it would wait for a thread that it does not have."""
    inside, go_on = threading.Event(), threading.Event()

    class Slow:
        """Takes its time where the cache is searched for it."""

        def __hash__(self) -> int:
            inside.set()
            assert go_on.wait(60)
            return 1

    keep = process_cache(maxsize=1)(lambda *_: 3)
    thread = threading.Thread(target=keep, args=(Slow(),), daemon=True)
    thread.start()
    assert inside.wait(60)

    def kept() -> int:
        signal.alarm(5)  # which ends a child that waits
        return keep()

    assert _in_a_child(kept) == 3
    go_on.set()
    thread.join(60)


def test_a_message_is_logged_once(caplog):
    """By its level, its text and its values."""
    log_once.cache_clear()
    with caplog.at_level(logging.INFO, logger="spark_eos"):
        for name in ("a", "b", "a"):
            log_once(logging.WARNING, "the topic %s is small", name)
        log_once(logging.INFO, "the topic %s is small", "a")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "the topic a is small"),
        ("WARNING", "the topic b is small"),
        ("INFO", "the topic a is small"),
    ]
