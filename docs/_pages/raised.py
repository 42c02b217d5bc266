"""Every place where an error is made, with each wording of its message and hint."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from _pages.code import Function, Module, called, modules
from _pages.texts import Scope, argument, branches, wordings
from spark_eos import errors

_CLASSES = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
#: What becomes an error elsewhere: its class, and what is put before its condition and its message.
_CARRIERS = {"Rejected": ("ConfigError", "EOS_CONFIG_", "{file}: {key} ")}
#: How many callers up a wording is followed.
_DEPTH = 3
#: Parameters of functions that callers fill in with a name only: a wording for each would say nothing more.
_NAMES = {("named", "what")}


@dataclass(frozen=True, order=True)
class Raised:
    """One wording of one error, and the file that makes it. Each hint belongs to the message."""

    kind: str
    name: str
    path: str
    message: str
    hints: tuple[str, ...]


def all_raised() -> list[Raised]:
    """Every wording of every error that the library and the jobs can raise, in the order of the code."""
    project = modules("spark_eos", "jobs")
    found = []
    for module in project.values():
        for call, function in module.calls:
            if called(call) in {*_CLASSES, *_CARRIERS} and call.args:
                for scope in _scopes(module, function, project, _parameters(call, function), _DEPTH):
                    found += _wordings(call, scope)
    return list(dict.fromkeys(found))


def _wordings(call: ast.Call, scope: Scope) -> Iterator[Raised]:
    kind, before_name, before_message = _CARRIERS.get(called(call), (called(call), "", ""))
    hint = [keyword.value for keyword in call.keywords if keyword.arg == "hint"] or call.args[2:3]
    parts = [call.args[0], *call.args[1:2], *hint]
    for branch in range(max(branches(part, scope.function) for part in parts)):
        here = Scope(scope.module, scope.function, scope.given, branch, scope.modules)
        names, messages, *hints = (wordings(part, here) for part in parts)
        for name in names:
            if re.fullmatch(r"EOS_[A-Z_]+", before_name + name):
                for message in messages:
                    path, told = scope.module.path, before_message + message
                    yield Raised(kind, before_name + name, path, told, hints[0] if hints else ())


def _parameters(call: ast.Call, function: Function | None) -> set[str]:
    """The parameters of the function around it that the error's texts use."""
    if function is None:
        return set()
    used = {node.id for node in ast.walk(call) if isinstance(node, ast.Name)}
    return used & {*function.parameters, *function.keywords}


def _scopes(
    module: Module, function: Function | None, project: Mapping[str, Module], parameters: set[str], depth: int
) -> list[Scope]:
    """The function as each of its callers calls it, where a caller gives one of the parameters as a text."""
    plain = Scope(module, function, {}, 0, project)
    if function is None or not parameters or depth == 0:
        return [plain]
    scopes = []
    for caller, call, around in _callers(function, project):
        of = argument(call, function)
        asked = [name for name in parameters if (function.name, name) not in _NAMES]
        given = {name: node for name in asked if (node := of(name)) is not None}
        used = {part.id for node in given.values() for part in ast.walk(node) if isinstance(part, ast.Name)}
        outer = used & {*around.parameters, *around.keywords} if around else set()
        for above in _scopes(caller, around, project, outer, depth - 1):
            for branch in range(max([1, *(branches(node, around) for node in given.values())])):
                here = Scope(caller, around, above.given, branch, project)
                texts = {name: told for name, node in given.items() if _is_text(told := wordings(node, here))}
                scopes.append(Scope(module, function, texts, 0, project))
    return list({repr(scope.given): scope for scope in scopes}.values()) or [plain]


def _is_text(told: tuple[str, ...]) -> bool:
    """Whether a wording says more than the parameter's own name would."""
    return any(not re.fullmatch(r"\{[^}]*\}|[\d.]+", text) for text in told)


def _callers(function: Function, project: Mapping[str, Module]) -> Iterator[tuple[Module, ast.Call, Function | None]]:
    """Who calls the function: in its own file, or by a name that was imported from it."""
    for module in project.values():
        imported = module.imports.get(function.name, ("", ""))[0] == function.module.name
        known = module is function.module or imported
        for call, around in module.calls if known else ():
            if called(call) == function.name and (around is None or around.node is not function.node):
                yield module, call, around
