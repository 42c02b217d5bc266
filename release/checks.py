"""What has to be true of a release, without I/O: each function returns what is wrong, for people."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

#: What an sdist has at its top.
SDIST = {"LICENSE", "PKG-INFO", "README.md", "jobs", "pyproject.toml", "setup.cfg", "spark_eos", "spark_eos.egg-info"}
_NO_RELEASE = "no release on PyPI"


def version_problems(version: str, tags: Collection[str], changelog: str, citation: str) -> Iterator[str]:
    """The version stands wherever it has to. ``tags``: its commit's. What has one is published, so it needs a date
    in the changelog."""
    if tags and f"v{version}" not in tags:
        yield f"the commit has the tag {', '.join(sorted(tags))}, and the version is {version}"
    if f"\nversion: {version}\n" not in citation:
        yield f"CITATION.cff does not have version {version}"
    heading = re.search(rf"^## \[{re.escape(version)}\](.*)$", changelog, re.MULTILINE)
    if heading is None:
        yield f"CHANGELOG.md has no section for version {version}"
    elif tags and not re.fullmatch(r" - \d{4}-\d\d-\d\d", heading[1]):
        yield f"CHANGELOG.md has no date for version {version}"


def page_problems(tags: Collection[str], pages: Mapping[str, str]) -> Iterator[str]:
    """What is tagged is released, so no page says that nothing is. ``pages``: their texts, by name."""
    yield from (
        f"{name} says that there is no release on PyPI" for name in pages if tags and _NO_RELEASE in pages[name]
    )


def wheel_problems(names: Collection[str], expected: Collection[str]) -> Iterator[str]:
    """The wheel has the tracked files of its packages, and nothing else but its metadata."""
    found = {name for name in names if not name.partition("/")[0].endswith(".dist-info")}
    yield from (f"the wheel lacks {name}" for name in sorted(set(expected) - found))
    yield from (f"the wheel has {name}, which is no tracked file" for name in sorted(found - set(expected)))


def sdist_problems(names: Collection[str]) -> Iterator[str]:
    """The sdist has what it takes to build the wheel, and nothing else."""
    found = {name.partition("/")[0] for name in names}
    yield from (f"the sdist lacks {name}" for name in sorted(SDIST - found))
    yield from (f"the sdist has {name}" for name in sorted(found - SDIST))


def unanswered(report: Mapping[str, Any]) -> list[str]:
    """What the advisory service has said nothing of, from the JSON of pip-audit, which counts that as no vulnerability.
    The package itself is not published yet."""
    return [d["name"] for d in report["dependencies"] if "skip_reason" in d and d["name"] != "spark-eos"]


def vulnerabilities(report: Mapping[str, Any]) -> Iterator[str]:
    """The known ones, from the JSON of pip-audit."""
    for dependency in report["dependencies"]:
        for found in dependency.get("vulns", ()):
            fixed = ", ".join(found["fix_versions"]) or "no version"
            yield f"{dependency['name']} {dependency['version']}: {found['id']}, fixed in {fixed}"
