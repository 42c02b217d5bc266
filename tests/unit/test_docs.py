"""The docs say what the code says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from spark_eos.errors import RESTART_HELPS

ROOT = Path(__file__).parents[2]
PAGES = runpy.run_path(str(ROOT / "docs" / "pages.py"))["PAGES"]


@pytest.mark.parametrize("page", PAGES)
def test_pages_made_from_the_code_are_up_to_date(page: str) -> None:
    """`make docs` would change nothing."""
    assert (ROOT / "docs" / page).read_text() == PAGES[page]()


def test_every_condition_in_the_code_is_on_the_errors_page() -> None:
    """No EOS_… name in the code is missed by the page's way of finding them."""
    source = "\n".join(path.read_text() for folder in ("spark_eos", "jobs") for path in (ROOT / folder).rglob("*.py"))
    assert set(re.findall(r"`(EOS_[A-Z_]+)`", PAGES["errors.md"]())) == set(re.findall(r'"(EOS_[A-Z_]+)"', source))


def test_every_condition_after_which_a_restart_helps_exists() -> None:
    """None is misspelt or left from an error that is gone."""
    assert set(re.findall(r"`(EOS_[A-Z_]+)`", PAGES["errors.md"]())) >= RESTART_HELPS


def test_links_between_pages_lead_somewhere() -> None:
    """Every relative link in README and docs points at a file that is there."""
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"
