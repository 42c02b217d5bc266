"""The project's modules as syntax trees, with what the pages ask of them: imports, constants, functions."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, eq=False)
class Module:
    """One file. ``name`` is dotted, ``path`` relative to the repository."""

    name: str
    path: str
    tree: ast.Module

    @cached_property
    def constants(self) -> dict[str, ast.expr]:
        """What is assigned to a name at the top of the file."""
        found = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                found[node.targets[0].id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
                found[node.target.id] = node.value
        return found

    @cached_property
    def imports(self) -> dict[str, tuple[str, str]]:
        """Local name to (module, name there) for each ``from … import``."""
        return {
            alias.asname or alias.name: (node.module or "", alias.name)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

    @cached_property
    def helpers(self) -> dict[str, ast.FunctionDef]:
        """The functions at the top of the file."""
        return {node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef)}


@cache
def modules(*folders: str) -> dict[str, Module]:
    """The Python files of these folders, by dotted name."""
    found = {}
    for path in (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))):
        file = path.relative_to(ROOT).as_posix()
        name = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        found[name] = Module(name, file, ast.parse(path.read_text()))
    return found


def called(call: ast.Call) -> str:
    """The last name of what is called: ``f`` for ``f(…)`` and ``a.b.f(…)``."""
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
