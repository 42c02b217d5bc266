"""Whatever the code imports is required by name: by the package itself, or by the extra of the job."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from configparser import ConfigParser
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
    "spark_eos/kafka/net/sasl.py": {"gssapi"},  # for who has Kerberos; an error says that it is missing
    "spark_eos/kafka/config/msk.py": {"aws_msk_iam_sasl_signer", "boto3", "botocore"},  # the extra aws; likewise
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
DISTRIBUTIONS = packages_distributions()


def imports(code: str) -> Iterator[str]:
    """Top-level names of the modules outside of the standard library that some code imports anywhere: in functions,
    too, but not where only type checkers look."""
    waiting: list[ast.AST] = [ast.parse(code)]
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
        waiting += ast.iter_child_nodes(node)


def unmet(file: Path, required: set[str]) -> list[str]:
    """Imports of the file that belong to no distribution of these; a module that is not installed has its own name."""
    path = file.relative_to(ROOT)
    given = {name for place in (path, path.parent) for name in BROUGHT_BY_OTHERS.get(str(place), ())}
    return [
        f"{path}: {name}"
        for name in set(imports(file.read_text())) - given
        if not required & {canonicalize_name(by) for by in DISTRIBUTIONS.get(name, [name])}
    ]


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


def extra_of(job: Path) -> str:
    """The extra that brings what this file of jobs/ imports."""
    return "delta" if "delta" in str(job.relative_to(ROOT)) else "jobs"


def test_the_package_requires_what_it_imports() -> None:
    """No import of the package works only because something else has brought its module; those of the command line are
    of its extra."""
    required, with_cli = requirements(), requirements("cli")
    files = {file: "cli" in file.parts for file in (ROOT / "spark_eos").rglob("*.py")}
    assert [name for file, cli in files.items() for name in unmet(file, with_cli if cli else required)] == []


def test_the_extras_require_what_the_jobs_import() -> None:
    """No import of the jobs works only because something else has brought its module."""
    assert [name for file in (ROOT / "jobs").rglob("*.py") for name in unmet(file, requirements(extra_of(file)))] == []


@pytest.mark.parametrize(("program", "extra"), [("bench", "bench"), ("demo", "all")])
def test_the_programs_of_the_checkout_require_what_they_import(program: str, extra: str) -> None:
    """No import of the benchmark or the demo works only because something else has brought its module."""
    assert [name for file in (ROOT / program).rglob("*.py") for name in unmet(file, requirements(extra))] == []


@pytest.mark.parametrize("extra", ["all", "bench"])
def test_the_programs_that_run_the_job_bring_what_it_needs(extra: str) -> None:
    """Demo and benchmark start the main job, or import parts of it."""
    assert requirements("jobs") <= requirements(extra)


def test_imports_are_found_wherever_they_are() -> None:
    """The check sees late and conditional imports, and leaves out those for types."""
    code = """
import os, one.part
from two.part import name
from . import beside
if TYPE_CHECKING:
    import types_only
def late():
    try:
        import three
    except ImportError:
        from four import name
"""
    assert sorted(imports(code)) == ["four", "one", "three", "two"]
