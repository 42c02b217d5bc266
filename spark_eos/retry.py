"""Retries with a time limit, and what the log is told of those that take long."""

from __future__ import annotations

from collections.abc import Iterator

from spark_eos import system
from spark_eos.log import logger

FIRST_WAIT_S = 0.002
LONGEST_WAIT_S = 0.5
#: After this time, a line of the log says what is waited for.
ANNOUNCED_AFTER_S = 10.0
#: Places that such a line names.
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
    """What is waited for while it is tried again: once it has taken ten seconds, the log gets a warning with the places
    and the reason, and another one when it is over. Where it ends in an error, that is all that is said."""

    def __init__(self, what: str) -> None:
        #: The places that the log was told of, since when they are waited for.
        self.announced: dict[str, float] = {}
        self._what = what
        self._since: dict[str, float] = {}

    def note(self, places: dict[str, str], since: float | None = None) -> None:
        """These are still waited for, for these reasons; ``since``: by the monotonic clock, if not since the first
        call that named them."""
        now = system.monotonic()
        for place in places:
            self._since.setdefault(place, now if since is None else since)
        late = {
            p: why for p, why in places.items() if p not in self.announced and now - self._since[p] >= ANNOUNCED_AFTER_S
        }
        if not late:
            return
        self.announced |= {place: self._since[place] for place in late}
        reasons = ", ".join(sorted(set(late.values())))
        logger.warning("%s has waited for %.0f s: %s (%s)", self._what, ANNOUNCED_AFTER_S, _listed(late), reasons)

    def over(self, *places: str) -> None:
        """These are waited for no longer. The log is told when that is so for all that it was told of."""
        for place in places:
            since = self._since.pop(place, None)
            if self.announced.pop(place, None) is not None and since is not None and not self.announced:
                logger.warning("%s goes on after %.0f s: %s", self._what, system.monotonic() - since, place)


def _listed(places: dict[str, str]) -> str:
    names = list(places)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
