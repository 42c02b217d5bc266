"""errors.md: an index of spark_eos/conditions.toml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from spark_eos.errors import conditions

INTRODUCTION = """# Errors

All names of errors, each with its message, or, where it has several, with what they have in common: `{names}` in
braces are filled in. [stopped.md](stopped.md) says what to do when one has ended a query, and
`spark_eos/conditions.toml` has every text. With one in italics, the same query continues when it is started again, at
once or as soon as the cluster is healthy."""


def page() -> str:
    """errors.md: the conditions of each exception's class."""
    lines = [INTRODUCTION]
    ordered = sorted(conditions().items(), key=lambda item: (item[1]["class"], item[0]))
    for kind, rows in groupby(ordered, key=lambda item: item[1]["class"]):
        lines += ["", f"## {kind}", "", *(_item(name, row) for name, row in rows)]
    return "\n".join(lines) + "\n"


def _item(name: str, row: Mapping[str, Any]) -> str:
    shown = f"*`{name}`*" if row.get("restart") else f"`{name}`"
    return f"- {shown}: {_sentence(row.get('about') or row['message'])}"


def _sentence(text: str) -> str:
    """Return the first sentence as one line of Markdown that shows it as it is: no tags, no emphasis."""
    plain = re.split(r"(?<=[.;:]) ", " ".join(text.replace("{{", "{").replace("}}", "}").split()))[0].rstrip(".;:")
    return re.sub(r"([*_\[])", r"\\\1", plain.replace("<", "&lt;"))
