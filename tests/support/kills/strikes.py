"""The tests that strike at a failpoint of the protocol, by their sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from docs._pages.code import ROOT, Module, called
from spark_eos.base.failpoints import IN_QUERIES, POINTS

_POINT = re.compile(rf"\b({'|'.join({point.partition('.')[0] for point in POINTS})})\.[a-z]+")
_LISTS = {"POINTS": tuple(POINTS), "IN_QUERIES": IN_QUERIES}
_PARAMETERS = {"point", "fault", "faults"}
_KILLS = {"kill", "kill_all_but", "killpg", "dies"}


@dataclass(frozen=True, order=True)
class Strike:
    """A test that strikes at ``points``; ``kills`` are those at which a process is killed."""

    path: str
    test: str
    points: frozenset[str]
    kills: frozenset[str]


@cache
def strikes() -> tuple[Strike, ...]:
    """Every test outside of the simulation and the unit tests that names a point, in the order of the files."""
    return tuple(sorted(strike for module in _tests() for strike in in_module(module)))


def _tests() -> Iterator[Module]:
    """The files of those tests that name a point, or the package's lists of points."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        file, text = path.relative_to(ROOT).as_posix(), path.read_text()
        if not re.match(r"tests/(unit|simulation)/", file) and (_POINT.search(text) or any(n in text for n in _LISTS)):
            yield Module(path.stem, file, ast.parse(text))


def killed_at(point: str) -> list[Strike]:
    """The tests that kill a process at this point."""
    return [strike for strike in strikes() if point in strike.kills]


def in_module(module: Module) -> Iterator[Strike]:
    for test in module.helpers.values():
        if test.name.startswith("test_") and (aimed := _aimed(module, test)):
            points = {point for node in aimed for point in _named(node)}
            kills = points if any(_calls(node, _KILLS) for node in _reach(module, test)) else points & _dying(test)
            yield Strike(module.path, test.name, frozenset(points), frozenset(kills))


def _aimed(module: Module, test: ast.FunctionDef) -> list[ast.AST]:
    """The code that says where the test strikes: what it is parametrised with; else itself; else helpers it calls."""
    given = [node for node in map(_parametrised, test.decorator_list) if node is not None]
    if given:
        return [part for node in given for part in _reach(module, node)]
    body = ast.Module(test.body, [])
    return [body] if _named(body) else [node for node in _reach(module, body) if _named(node)]


def _parametrised(decorator: ast.expr) -> ast.expr | None:
    """The values of a `parametrize` that says where to strike."""
    if not isinstance(decorator, ast.Call) or called(decorator) != "parametrize":
        return None
    names = re.findall(r"\w+", ast.unparse(decorator.args[0]))
    return decorator.args[1] if _PARAMETERS.intersection(names) else None


def _reach(module: Module, node: ast.AST) -> list[ast.AST]:
    """The code, and what it names at the top of its file, and so on; a table that is looked something up in is not
    followed. `POINTS` of the package stand for themselves."""
    found: dict[str, ast.AST] = {}
    waiting, reached = [node], [node]
    while waiting:
        code = waiting.pop()
        tables = {id(part.value) for part in ast.walk(code) if isinstance(part, ast.Subscript | ast.Attribute)}
        for part in ast.walk(code):
            if isinstance(part, ast.Name) and id(part) not in tables and part.id not in found:
                found[part.id] = _definition(module, part.id)
                if found[part.id] is not None:
                    waiting.append(found[part.id])
                    reached.append(found[part.id])
    return reached


def _definition(module: Module, name: str) -> ast.AST | None:
    """What a name stands for in its file. The package's `POINTS` and `IN_QUERIES` are constants that name them."""
    given = module.imports.get(name)
    if given is not None and given[0] == "spark_eos.base.failpoints" and given[1] in _LISTS:
        return ast.Constant(" ".join(_LISTS[given[1]]))
    return module.constants.get(name) or module.helpers.get(name)


def _named(code: ast.AST) -> set[str]:
    """The points that stand in the code's texts."""
    texts = (part.value for part in ast.walk(code) if isinstance(part, ast.Constant) and isinstance(part.value, str))
    return {match[0] for text in texts for match in _POINT.finditer(text)} & POINTS.keys()


def _calls(code: ast.AST, methods: set[str]) -> bool:
    return any(isinstance(part, ast.Attribute) and part.attr in methods for part in ast.walk(code))


def _dying(test: ast.FunctionDef) -> set[str]:
    """The points with the action ``die``."""
    texts = (part.value for part in ast.walk(test) if isinstance(part, ast.Constant) and isinstance(part.value, str))
    return {point for text in texts for point in _named(ast.Constant(text)) if f"{point}=die" in text}
