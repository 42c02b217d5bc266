"""Classes that Spark hands to its Python processes whole, and not by their names."""

from __future__ import annotations

from typing import TypeVar

C = TypeVar("C")


def by_value(base: type[C], /, **attributes: object) -> type[C]:
    """A class like ``base`` with these attributes, which travel with it, in bytes that Spark never prints.

    One that its module has under its qualified name would travel by that name only, without them.
    """
    names = {"__module__": base.__module__, "__qualname__": f"by_value.<locals>.{base.__qualname__}"}
    return type(base.__name__, (base,), {**attributes, **names})
