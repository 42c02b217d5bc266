"""Retries with a time limit, and log messages about long ones."""

from __future__ import annotations

from collections.abc import Iterator

from spark_eos.base import system
from spark_eos.base.log import logger

FIRST_WAIT_S = 0.002
LONGEST_WAIT_S = 0.5
#: Seconds after which a warning names the reason for the wait.
ANNOUNCED_AFTER_S = 10.0
#: Names that such a warning lists.
_NAMED = 3


def retrying(timeout_s: float) -> Iterator[None]:
    """Yield at once, then after pauses that grow from 2 ms to half a second, until ``timeout_s`` seconds are over."""
    deadline = system.monotonic() + timeout_s
    wait_s = FIRST_WAIT_S
    yield
    while system.monotonic() + wait_s < deadline:
        system.sleep(wait_s)
        yield
        wait_s = min(wait_s * 1.5, LONGEST_WAIT_S)


class Waiting:
    """Logs long waits of a retry: a warning with names and reasons after ten seconds, and another one when the wait is
    over. If it ends in an error instead, there is no second warning."""

    def __init__(self, what: str) -> None:
        #: Name in the first warning → start of its wait, by the monotonic clock.
        self.announced: dict[str, float] = {}
        self._what = what
        self._since: dict[str, float] = {}

    def note(self, names: dict[str, str], since: float | None = None) -> None:
        """Note names that are still waited for, with reasons. ``since``: a time of the monotonic clock; by default,
        that of the first call with the name."""
        now = system.monotonic()
        for name in names:
            self._since.setdefault(name, now if since is None else since)
        late = {
            p: why for p, why in names.items() if p not in self.announced and now - self._since[p] >= ANNOUNCED_AFTER_S
        }
        if not late:
            return
        self.announced |= {name: self._since[name] for name in late}
        reasons = ", ".join(sorted(set(late.values())))
        logger.warning("%s has waited for %.0f s: %s (%s)", self._what, ANNOUNCED_AFTER_S, _listed(late), reasons)

    def over(self, *names: str) -> None:
        """Note names that are no longer waited for. The second warning comes with the last name of the first one."""
        for name in names:
            since = self._since.pop(name, None)
            if self.announced.pop(name, None) is not None and since is not None and not self.announced:
                logger.warning("%s goes on after %.0f s: %s", self._what, system.monotonic() - since, name)


def _listed(late: dict[str, str]) -> str:
    names = list(late)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
