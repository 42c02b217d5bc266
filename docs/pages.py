"""Writes the pages that are made from the code: `make docs`. What each is made of is in `docs/_pages/`."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parent
#: The public names of Python as the last release has them: tests/unit/test_api.py.
RELEASED = DOCS.parent / "tests" / "unit" / "public_names.txt"
sys.path.insert(0, str(DOCS))

from _pages import api, errors, failpoints, keys, llms, options  # noqa: E402

PAGES = {
    "api.md": api.page,
    "errors.md": errors.page,
    "failpoints.md": failpoints.page,
    "keys.md": keys.page,
    "llms.txt": llms.page,
    "options.md": options.page,
}

if __name__ == "__main__":
    for name, make in PAGES.items():
        (DOCS / name).write_text(make())
    if not RELEASED.exists():
        RELEASED.write_text(api.stub())
