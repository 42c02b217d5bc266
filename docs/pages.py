"""Writes the pages that are made from the code: options.md and errors.md. Run it by `make docs`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from spark_eos.options.page import markdown
from spark_eos.errors import RESTART_HELPS

DOCS = Path(__file__).parent
ROOT = DOCS.parent


@dataclass(frozen=True, order=True)
class Condition:
    """One condition of one error class, with its message and hint as far as they are literal text."""

    kind: str
    name: str
    message: str
    hint: str


def conditions() -> list[Condition]:
    """Every error that the library and the jobs can raise, found where it is made."""
    paths = [path for folder in ("spark_eos", "jobs") for path in sorted((ROOT / folder).rglob("*.py"))]
    modules = [ast.parse(path.read_text()) for path in paths]
    named = {name: text for module in modules for name, text in _named(module).items()}
    found: dict[str, Condition] = {}
    for module in modules:
        for condition in _in_module(module, {**named, **_named(module)}):
            found.setdefault(condition.name, condition)
    return sorted(found.values())


def errors_page() -> str:
    """errors.md."""
    parts = [
        "# Errors",
        "",
        "Every error has a name to search for, says what is wrong and where, and what to do. In Spark it is at the end of a",
        "StreamingQueryException; `spark_eos.reason(error)` takes it out of there. Made from the code by `make docs`; a test",
        "holds this page to it.",
        "",
        "*restart*: whether the same query, started again with nothing changed, goes on, at once or when the cluster is well.",
        "Where it does not say yes, something has to be changed first. [stopped.md](stopped.md) goes through what ends a query,",
        "step by step.",
        "",
        "What spark-eos raises is one line of Spark's exception, without a stack. The lines around it are Spark's: it logs the",
        "stack of its JVM, and puts the query's plan into the exception. To see the reason alone:",
        "",
        "```python",
        'spark.sparkContext.setLogLevel("OFF")  # or by log4j2.properties, as conf/log4j2.properties does for the jobs',
        "try:",
        "    query.awaitTermination()",
        "except StreamingQueryException as error:",
        "    sys.exit(str(spark_eos.reason(error) or error))",
        "```",
    ]
    kind = ""
    for condition in conditions():
        if condition.kind != kind:
            kind = condition.kind
            parts += ["", f"## {kind}", "", "| condition | message | what to do | restart |", "| --- | --- | --- | --- |"]
        restart = "yes" if condition.name in RESTART_HELPS else ""
        parts.append(f"| `{condition.name}` | {_cell(condition.message)} | {_cell(condition.hint)} | {restart} |")
    return "\n".join(parts) + "\n"


def _named(tree: ast.Module) -> dict[str, str]:
    """Texts that a module has under a name, such as a sentence that several hints end with."""
    return {
        node.targets[0].id: _text(node.value, {})
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper()
    }


def _in_module(tree: ast.Module, named: dict[str, str]) -> Iterator[Condition]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = _text(node.args[0], named)
        if re.fullmatch(r"EOS_[A-Z_]+", name):
            hints = [_text(keyword.value, named) for keyword in node.keywords if keyword.arg == "hint"]
            message = _text(node.args[1], named) if len(node.args) > 1 else ""
            yield Condition(_called(node.func), name, message, hints[0] if hints else "")


def _called(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def _text(node: ast.expr, named: dict[str, str]) -> str:
    """Literal text, with … for what is filled in, unless that is one of the named texts."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.FormattedValue) else part for part in node.values)
        return "".join(_text(part, named) for part in parts)
    if isinstance(node, ast.BinOp):
        return _text(node.left, named) + _text(node.right, named)
    if isinstance(node, ast.Name):
        return named.get(node.id, "…")
    return "…"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


PAGES = {"options.md": markdown, "errors.md": errors_page}

if __name__ == "__main__":
    for page, make in PAGES.items():
        (DOCS / page).write_text(make())
