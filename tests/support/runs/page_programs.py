"""Programs of pages in docs/, for tests that run them as they stand, but for names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"
_BLOCKS = re.compile(r"```python\n(.*?)```", re.DOTALL)
_FILES = re.compile(r"^```\w+\n(# (\S+)\n.*?)^```$", re.DOTALL | re.MULTILINE)


def files_of(page: str) -> dict[str, str]:
    """Return the files that a page has its readers save: their texts by the names in their first lines."""
    return {Path(name).name: text for text, name in _FILES.findall((DOCS / page).read_text())}


def run_program(page: str, with_: str, replaced: Mapping[str, str], **names: object) -> dict[str, object]:
    """Run the only program of a page that has the text ``with_``. ``replaced``: parts of it, each of which has to be
    there, and what stands in their place; ``names``: what these may name. Returns these, with those of the program."""
    (program,) = (block for block in _BLOCKS.findall((DOCS / page).read_text()) if with_ in block)
    for part, other in replaced.items():
        assert part in program
        program = program.replace(part, other)
    exec(program, names)
    return names
