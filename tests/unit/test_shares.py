"""How test files are dealt out to several processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.runs.file_shares import SHARES, share_of

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("begin", [begin for share in SHARES for begin in share])
def test_what_is_named_is_there(begin: str):
    """A file that is moved or renamed would be dealt out on its own again, and nobody would notice."""
    assert any(str(file.relative_to(ROOT)).startswith(begin) for file in (ROOT / "tests").rglob("test_*.py"))


def test_files_that_share_a_cluster_are_one_share():
    """Wherever they are; others are on their own."""
    rights = {share_of(f"tests/integration/{folder}/test_rights.py::test") for folder in ("sink", "source")}
    assert len(rights) == 1 and rights < set(range(len(SHARES)))
    assert share_of("tests/integration/sink/test_sink.py::test") == len(SHARES)
