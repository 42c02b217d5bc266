"""Ids that the registry does not know, as they count for the values of one column in one range of a topic.

The registry's answer may change at any time; what values become must not, from the first one that has the id to the
last, and when the range is read again. So the first answer holds, and who decides on the rows notes the unknown ids.
Known ones need no note: what an id means never changes.
"""

from __future__ import annotations

from collections.abc import Collection

from spark_eos.errors import stop


class UnknownIds:
    """``noted``: those that were unknown when a decision was made on what the values became; None for values that are
    read for the first time."""

    def __init__(self, noted: Collection[str] | None = None) -> None:
        self._names = set(noted or ())
        self._known: set[str] = set()
        self.are_noted = noted is not None

    @property
    def names(self) -> frozenset[str]:
        """Ids and GUIDs, as texts."""
        return frozenset(self._names)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def note_known(self, name: str) -> None:
        """Values with this id have become rows."""
        self._known.add(name)

    def note_unknown(self, name: str, registry: str) -> None:
        """The registry at this address does not know the id. Raises RegistryError (EOS_REGISTRY_CHANGED) where it has
        known it, as the values before became rows."""
        if self.are_noted or name in self._known:
            raise stop("EOS_REGISTRY_CHANGED.forgotten", schema=name, registry=registry)
        self._names.add(name)
