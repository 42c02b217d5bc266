"""The project's modules as syntax trees."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, eq=False)
class Module:
    """One file. ``path``: relative to the repository."""

    path: str
    tree: ast.Module


@cache
def modules(folder: str) -> list[Module]:
    """The Python files of a folder."""
    paths = sorted((ROOT / folder).rglob("*.py"))
    return [Module(path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())) for path in paths]
