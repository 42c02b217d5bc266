"""What is wrong with a release."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

import pytest

from release.__main__ import folders_of
from release.archives import in_wheel
from release.checks import (
    SDIST,
    page_problems,
    sdist_problems,
    unanswered,
    version_problems,
    wheel_problems,
)

ROOT = Path(__file__).parents[3]
CITATION = "title: t\nversion: 1.2.0\n"
OPEN, CUT = "## [1.2.0] (not released yet)\n", "## [1.2.0] - 2030-01-31\n"


@pytest.mark.parametrize(
    ("tags", "changelog", "citation", "problems"),
    [
        ([], OPEN, CITATION, []),
        (["v1.2.0"], CUT, CITATION, []),
        (["v1.2.1"], CUT, CITATION, ["the commit has the tag v1.2.1, and the version is 1.2.0"]),
        (["v1.2.0"], OPEN, CITATION, ["CHANGELOG.md has no date for version 1.2.0"]),
        ([], "## [1.2.01] - 2030-01-31\n", CITATION, ["CHANGELOG.md has no section for version 1.2.0"]),
        ([], OPEN, "title: t\nversion: 1.2\n", ["CITATION.cff does not have version 1.2.0"]),
    ],
)
def test_the_version_stands_wherever_it_has_to(tags, changelog, citation, problems):
    """Only what is tagged needs a date."""
    assert list(version_problems("1.2.0", tags, changelog, citation)) == problems


def test_a_page_that_says_there_is_no_release_is_not_released():
    """With a tag; before, it has to say so. The pages of this checkout say it as the check looks for it."""
    names = ("README.md", "docs/quickstart.md")
    pages = {name: (ROOT / name).read_text() for name in names}
    assert list(page_problems([], pages)) == []
    assert [problem.split()[0] for problem in page_problems(["v0.1.0"], pages)] == list(names)
    assert list(page_problems(["v0.1.0"], {"README.md": "pip install spark-eos"})) == []


def test_a_wheel_has_its_tracked_files_and_its_metadata():
    """Neither less nor more."""
    names = ["lib/a.py", "lib/cache.bin", "lib-1.dist-info/METADATA"]
    assert list(wheel_problems(names, {"lib/a.py", "lib/py.typed"})) == [
        "the wheel lacks lib/py.typed",
        "the wheel has lib/cache.bin, which is no tracked file",
    ]
    assert list(wheel_problems(["lib/a.py", "lib-1.dist-info/RECORD"], {"lib/a.py"})) == []


def test_an_sdist_has_no_tests():
    """Nor anything else beside what the wheel is made of."""
    names = {f"{name}/file" if "." not in name else name for name in SDIST}
    assert list(sdist_problems(names)) == []
    assert list(sdist_problems(names - {"README.md"} | {"tests/a.py"})) == [
        "the sdist lacks README.md",
        "the sdist has tests",
    ]


def test_where_setup_cfg_has_the_packages():
    """The jobs' modules are in the package, and Spark finds the one that registers the format. Of the folders that it
    names, the innermost counts; what is in none of them is not in the wheel."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    files = ["spark_eos/py.typed", "spark_eos/datasource/autoload/__init__.py", "jobs/mirror.py", "jobs.md"]
    files += ["jobs_of_others/a.py", "bench/quix.py"]
    assert in_wheel(files, folders_of(setup)) == {
        "spark_eos/py.typed",
        "pyspark_spark_eos/__init__.py",
        "spark_eos/jobs/mirror.py",
    }


def test_no_answer_is_not_taken_for_no_vulnerability():
    """An index that has the packages, and not PyPI's advisories, answers of each one that it is not there."""
    skipped = {"skip_reason": "Dependency not found on PyPI and could not be audited"}
    good = {"name": "good", "version": "1.0", "vulns": []}
    assert unanswered({"dependencies": [good, {"name": "spark-eos"} | skipped]}) == []
    assert unanswered({"dependencies": [good, {"name": "numpy"} | skipped]}) == ["numpy"]
