"""Whatever the code imports is required by name: by the package itself, or by the extra of the job."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
OWN = {"spark_eos", "jobs", "bench", "demo", "tests"}
#: Imported by a file, or those of a folder, only where they are sure to be, without being required.
BROUGHT_BY_OTHERS = {
    "spark_eos/tools/devcluster/pytest_plugin.py": {"pytest"},  # pytest loads it
    # the extra aws; errors say that it is missing
    "spark_eos/kafka/config/msk.py": {"aws_msk_iam_sasl_signer", "boto3", "botocore"},
    "spark_eos/kafka/config/stores.py": {"cryptography"},  # the extra pkcs12; likewise
    "spark_eos/ops/metrics": {"prometheus_client"},  # the extra metrics; likewise
    "spark_eos/ops/plot.py": {"matplotlib"},  # the extra plot; an error says that it is missing
    "spark_eos/ops/top.py": {"rich"},  # the extra cli, as the command has
    "spark_eos/pipelines/copy/sql.py": {"duckdb"},  # the extra sql; an error says that it is missing
    "spark_eos/checkpoint/stores.py": {"fsspec"},  # for who has it; an error says that it is missing
    "spark_eos/pipelines/tables/delta": {"deltalake"},  # the extra tables
    # the extra iceberg, whose pyiceberg brings mmh3, pydantic and requests; `place_of` says that it is missing
    "spark_eos/pipelines/tables/keys.py": {"mmh3"},
    "spark_eos/pipelines/tables/iceberg": {"pydantic", "pyiceberg", "requests"},
    "spark_eos/tools/verify/tables/delta.py": {"deltalake"},  # the extra tables; an error says that it is missing
    "spark_eos/tools/verify/tables/iceberg.py": {"pyiceberg"},  # the extra iceberg; likewise
    # the extra registry; errors say that it is missing
    "spark_eos/pipelines/registry/json_values.py": {"referencing"},
    "spark_eos/pipelines/registry/protobuf_files.py": {"google", "grpc_tools"},
    "spark_eos/pipelines/registry/protobuf_known.py": {"google"},
    "spark_eos/pipelines/registry/protobuf_values.py": {"google", "ptars"},
    "bench/compare/quix_copy.py": {"quixstreams"},  # runs in an environment that the comparison makes for it
}
#: Of folders with programs, the extra that brings what these need; some jobs have one of their own.
EXTRAS = {"jobs": "jobs", "bench": "bench", "demo": "all"}
distributions_of = cache(packages_distributions)


def imports(file: Path) -> Iterator[str]:
    """Top-level names of the modules outside of the standard library that a file imports anywhere: in functions, too,
    but not where only type checkers look."""
    waiting: list[ast.AST] = [ast.parse(file.read_text())]
    while waiting:
        node = waiting.pop()
        names = []
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        yield from {name.partition(".")[0] for name in names} - sys.stdlib_module_names - OWN
        waiting += [part for part in ast.iter_child_nodes(node) if not isinstance(part, ast.expr)]


def unmet(file: Path, required: set[str]) -> list[str]:
    """Imports of the file that belong to no distribution of these; a module that is not installed has its own name."""
    path = file.relative_to(ROOT)
    given = {name for place in (path, path.parent) for name in BROUGHT_BY_OTHERS.get(str(place), ())}
    return [
        f"{path}: {name}"
        for name in set(imports(file)) - given
        if not required & {canonicalize_name(by) for by in distributions_of().get(name, [name])}
    ]


@cache
def requirements(extra: str | None = None) -> set[str]:
    """Names of what setup.cfg requires by itself, and with an extra."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    names, texts = set(), setup["options"]["install_requires"]
    if extra:
        texts += "\n" + setup["options.extras_require"][extra]
    for requirement in (Requirement(line) for line in texts.splitlines() if line.strip() and line[0] != "#"):
        if requirement.name == "spark-eos":
            for other in requirement.extras:
                names |= requirements(other)
        names.add(canonicalize_name(requirement.name))
    return names


def test_the_package_requires_what_it_imports() -> None:
    """No import of the package works only because something else has brought its module; those of the command line are
    of its extra."""
    required, with_cli = requirements(), requirements("cli")
    files = {file: "cli" in file.parts for file in (ROOT / "spark_eos").rglob("*.py")}
    assert [name for file, cli in files.items() for name in unmet(file, with_cli if cli else required)] == []


def extra_of(file: Path) -> str:
    """The extra that brings what this file of jobs/, bench/ or demo/ imports."""
    path = file.relative_to(ROOT)
    return "delta" if "delta" in str(path) and path.parts[0] == "jobs" else EXTRAS[path.parts[0]]


@pytest.mark.parametrize("folder", EXTRAS)
def test_an_extra_requires_what_its_programs_import(folder: str) -> None:
    """No import of theirs works only because something else has brought its module; all of them start the main job, or
    import parts of it."""
    assert [name for file in (ROOT / folder).rglob("*.py") for name in unmet(file, requirements(extra_of(file)))] == []
    assert requirements("jobs") <= requirements(EXTRAS[folder])


@pytest.mark.parametrize("path", BROUGHT_BY_OTHERS)
def test_an_exception_is_needed(path: str) -> None:
    """Most of these imports are in functions, or in a `try`: so the tests above see them there."""
    files = [ROOT / path] if path.endswith(".py") else (ROOT / path).glob("*.py")
    assert BROUGHT_BY_OTHERS[path] <= {name for file in files for name in imports(file)}
