"""How test files are dealt out to several processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.runs.file_shares import SHARES

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("begin", [begin for share in SHARES for begin in share])
def test_what_is_named_is_there(begin: str):
    """A file that is moved or renamed would be dealt out on its own again, and nobody would notice."""
    assert any(str(file.relative_to(ROOT)).startswith(begin) for file in (ROOT / "tests").rglob("test_*.py"))
