"""Schema ids in one column of one range of offsets that the registry does not know.

A registry may learn an id at any time. All values of the range must be decoded by one answer, also when the range is
read again. So the first answer counts for the whole range, and a decision on the range notes its unknown ids. Known ids
need no note, as an id never changes its schema.
"""

from __future__ import annotations

from collections.abc import Collection

from spark_eos.errors import stop


class UnknownIds:
    """``noted``: the unknown ids that the decision on the range has noted; None for a range without a decision."""

    def __init__(self, noted: Collection[str] | None = None) -> None:
        self._names = set(noted or ())
        self._known: set[str] = set()
        self.are_noted = noted is not None

    @property
    def names(self) -> frozenset[str]:
        """The unknown ids and GUIDs, as texts."""
        return frozenset(self._names)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def note_known(self, name: str) -> None:
        """Note that values with this id were decoded."""
        self._known.add(name)

    def note_unknown(self, name: str, registry: str) -> None:
        """Note that the registry at this address does not know the id. Raises RegistryError (EOS_REGISTRY_CHANGED)
        where values with this id were decoded before."""
        if self.are_noted or name in self._known:
            raise stop("EOS_REGISTRY_CHANGED.forgotten", schema=name, registry=registry)
        self._names.add(name)
