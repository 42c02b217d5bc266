"""Settings by name, as users give them: as texts, and as an immutable mapping that can be the key of a cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


class Settings(Mapping[str, str]):
    """An immutable, hashable mapping of setting names to values. Equal only to settings of the same class."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = dict(values or {})

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and type(self) is type(other) and self._values == other._values


def texts(options: Mapping[str, object]) -> dict[str, str]:
    """Return the options as texts, as Spark passes them on; without options that are None."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in options.items()
        if value is not None
    }
