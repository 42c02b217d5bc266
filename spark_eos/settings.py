"""Settings by name, as users give them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


class Settings(Mapping[str, str]):
    """Texts by name that do not change and can be a key of a cache; equal to settings of the same kind."""

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
