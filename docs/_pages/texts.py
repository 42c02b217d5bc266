"""What a text in the code can read like: an expression to its wordings, with ``{names}`` for what is filled in.

A wording follows constants, ``if``/``else``, local names and, for a parameter, the arguments of every caller. What
cannot be followed becomes a placeholder, named after the expression.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from _pages.code import Function, Module, called

_SHORT = {"p": "partition", "r": "range"}
_PASSED_ON = {"sorted", "set", "list", "tuple", "str", "repr", "int", "float", "round", "type", "map", "sum", "dict"}
_SAME = {"str", "strip", "rstrip", "lower", "items", "keys", "values", "as_posix"}  # x.str() is named like x


@dataclass(frozen=True)
class Scope:
    """Where an expression stands. ``given``: wordings of parameters; ``branch``: which assignment of a local counts."""

    module: Module
    function: Function | None = None
    given: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    branch: int = 0
    modules: Mapping[str, Module] = field(default_factory=dict)


def wordings(node: ast.expr, scope: Scope) -> tuple[str, ...]:
    """Every text that the expression can be, each once, in the order of the code."""
    match node:
        case ast.Constant():
            found = (node.value,) if isinstance(node.value, str) else (f"{node.value:g}",) if _number(node) else ()
        case ast.JoinedStr():
            found = _joined(_told_apart(node), scope)
        case ast.FormattedValue():
            found = wordings(node.value, scope)
        case ast.BinOp(op=ast.Add()) if not _number(node.right):
            found = _joined([node.left, node.right], scope)
        case ast.IfExp():
            found = (*wordings(node.body, scope), *wordings(node.orelse, scope))
        case ast.Name():
            found = _of_name(node.id, scope)
        case ast.Call(func=ast.Attribute(attr="format", value=template)):
            found = wordings(template, scope)
        case ast.Call():
            found = _of_call_to(node, scope)
        case _:
            found = ()
    return tuple(dict.fromkeys(found)) or (f"{{{placeholder(node)}}}",)


def branches(node: ast.expr, function: Function | None) -> int:
    """How many assignments the most often assigned local name in the expression has: 1 where none is."""
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return max([1, *(len(_assigned(name, function)) for name in names)])


def _number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool)


def _joined(parts: list[ast.expr], scope: Scope) -> tuple[str, ...]:
    return tuple(map("".join, itertools.product(*(wordings(part, scope) for part in parts))))


def _told_apart(node: ast.JoinedStr) -> list[ast.expr]:
    """The parts, with the owner in the name of two attributes that are called the same: ``last batch``."""
    filled = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]

    def named(part: ast.expr) -> ast.expr:
        value = part.value if isinstance(part, ast.FormattedValue) else None
        twins = {ast.dump(other) for other in filled if value and placeholder(other) == placeholder(value)}
        if isinstance(value, ast.Attribute) and len(twins) > 1:
            return ast.Constant(f"{{{_with_owner(value)}}}")
        return part

    return [named(part) for part in node.values]


def _with_owner(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute) and placeholder(node.value) != "self":
        return f"{_with_owner(node.value)} {node.attr}".replace("_", " ")
    return placeholder(node)


def _of_name(name: str, scope: Scope) -> tuple[str, ...]:
    if name in scope.given:
        return scope.given[name]
    if assigned := _assigned(name, scope.function):
        return wordings(assigned[min(scope.branch, len(assigned) - 1)], scope)
    if scope.function and name in (*scope.function.parameters, *scope.function.keywords):
        return ()
    if name in scope.module.constants:
        return wordings(scope.module.constants[name], Scope(scope.module, modules=scope.modules))
    source, original = scope.module.imports.get(name, ("", ""))
    if source in scope.modules and original in (module := scope.modules[source]).constants:
        return wordings(module.constants[original], Scope(module, modules=scope.modules))
    return ()


def _of_call_to(call: ast.Call, scope: Scope) -> tuple[str, ...]:
    """What a function or method of the project returns, where that is always a text."""
    function = _function(call.func, scope)
    returned = [node.value for node in ast.walk(function.node) if isinstance(node, ast.Return)] if function else []
    if function is None or not all(node is not None and _is_text(node) for node in returned):
        return ()
    inside = Scope(function.module, function, modules=scope.modules)
    return tuple(text for node in returned if node is not None for text in wordings(node, inside))


def _function(called: ast.expr, scope: Scope) -> Function | None:
    """``f``, ``self.f`` or ``module.f``, where the project has it."""
    match called:
        case ast.Name(id=name):
            source, name = scope.module.imports.get(name, ("", name))
            module = scope.modules.get(source, scope.module)
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            module = scope.module
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            module = scope.modules.get(".".join(scope.module.imports.get(owner, ("", ""))), None)
        case _:
            return None
    return next((function for function in module.functions if function.name == name), None) if module else None


def _assigned(name: str, function: Function | None) -> list[ast.expr]:
    """The texts that the function assigns to a local name, in order; empty where one of them is not text."""
    if function is None:
        return []
    values: list[ast.expr] = []
    for node in ast.walk(function.node):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                values += _of_target(target, node.value, name)
    return values if all(map(_is_text, values)) else []


def _is_text(node: ast.expr) -> bool:
    match node:
        case ast.BinOp():
            return _is_text(node.left) or _is_text(node.right)
        case ast.IfExp():
            return _is_text(node.body)
        case ast.Constant():
            return isinstance(node.value, str)
    return isinstance(node, ast.JoinedStr)


def _of_target(target: ast.expr, value: ast.expr, name: str) -> list[ast.expr]:
    if isinstance(target, ast.Name):
        return [value] if target.id == name else []
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        return [v for t, v in zip(target.elts, value.elts, strict=True) if isinstance(t, ast.Name) and t.id == name]
    return []


def placeholder(node: ast.expr) -> str:
    """A name for what is filled in, from the expression: ``pair id`` for ``pair.id``, ``lost`` for ``len(lost)``."""
    match node:
        case ast.Name():
            return _SHORT.get(node.id) or node.id.strip("_").lower().replace("_", " ")
        case ast.Attribute(attr="id" | "name" | "size" | "begin" as attr, value=owner) if placeholder(owner) != "self":
            return f"{placeholder(owner)} {attr}"
        case ast.Attribute():
            return node.attr.strip("_").replace("_", " ")
        case ast.Subscript(slice=ast.Constant(value=str() as key)):
            return key
        case ast.Subscript() | ast.Starred() | ast.FormattedValue():
            return placeholder(node.value)
        case ast.Call():
            return _of_call(node)
        case ast.GeneratorExp() | ast.ListComp():
            return placeholder(node.generators[0].iter)
        case ast.BinOp(left=part) | ast.BoolOp(values=[part, *_]) | ast.IfExp(body=part):
            return placeholder(part)
    return "…"


def _of_call(node: ast.Call) -> str:
    match node.func:
        case ast.Name(id="len"):
            return f"number of {placeholder(node.args[0])}"
        case ast.Name(id="map") if len(node.args) > 1:
            return placeholder(node.args[1])
        case ast.Name(id=name) if node.args and (name in _PASSED_ON or name.startswith("_")):
            return placeholder(node.args[0])
        case ast.Attribute(attr="join"):
            return placeholder(node.args[0])
        case ast.Attribute(attr=attr, value=owner) if attr in _SAME:
            return placeholder(owner)
    return called(node).strip("_").replace("_", " ")


Bound = Callable[[str], ast.expr | None]


def argument(call: ast.Call, function: Function) -> Bound:
    """What a call of the function gives for a parameter; None where it gives nothing that can be told."""

    def of(name: str) -> ast.expr | None:
        for keyword in call.keywords:
            if keyword.arg == name:
                return keyword.value
        if name in function.parameters and (at := function.parameters.index(name)) < len(call.args):
            return call.args[at]
        return None

    return of
