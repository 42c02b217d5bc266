"""A driver that dies within a step of the protocol: the rest of the step does not happen."""

from __future__ import annotations


class Killed(Exception):
    """The driver is gone."""


def kill() -> None:
    """Raise Killed, at the point of a step where this is called."""
    raise Killed
