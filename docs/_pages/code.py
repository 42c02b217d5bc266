"""The project's modules as syntax trees, with what the pages ask of them: imports, constants, functions, callers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, eq=False)
class Function:
    """A function or method and where it is. ``parameters`` leaves out ``self`` and ``cls``."""

    module: Module
    node: ast.FunctionDef

    @property
    def name(self) -> str:
        return self.node.name

    @cached_property
    def parameters(self) -> list[str]:
        named = [argument.arg for argument in (*self.node.args.posonlyargs, *self.node.args.args)]
        return named[1:] if named[:1] in (["self"], ["cls"]) else named

    @cached_property
    def keywords(self) -> list[str]:
        return [argument.arg for argument in self.node.args.kwonlyargs]


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
    def functions(self) -> list[Function]:
        return [Function(self, node) for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)]

    @cached_property
    def helpers(self) -> dict[str, ast.FunctionDef]:
        """The functions at the top of the file."""
        return {node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef)}

    @cached_property
    def calls(self) -> list[tuple[ast.Call, Function | None]]:
        """Every call, with the innermost function around it; None at the top of the file."""
        return list(_calls(self, self.tree, None))


def _calls(module: Module, node: ast.AST, around: Function | None) -> Iterator[tuple[ast.Call, Function | None]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield child, around
        inside = Function(module, child) if isinstance(child, ast.FunctionDef) else around
        yield from _calls(module, child, inside)


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
