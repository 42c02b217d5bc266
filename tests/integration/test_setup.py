"""What installing the package does: all it needs comes along, Spark finds ``eos-kafka``, importing costs nothing."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from tests.support.runs.installed_wheel import ROOT, Bare, run


def test_the_wheel_holds_every_package_and_nothing_else_at_the_top(wheel: Path, tmp_path: Path):
    """No package and no job is forgotten in setup.cfg, and the wheel brings no other top-level name."""
    run(sys.executable, "-m", "zipfile", "-e", str(wheel), str(tmp_path))
    own = ROOT / "spark_eos"
    packages = {file.parent for file in own.rglob("*.py")} - {own / "datasource" / "autoload"}
    for package in packages:
        assert (tmp_path / package.relative_to(ROOT) / "__init__.py").exists(), package
    modules = {file.relative_to(ROOT / "jobs") for file in (ROOT / "jobs").rglob("*.py")}
    jobs = tmp_path / "spark_eos" / "jobs"
    assert {file.relative_to(jobs) for file in jobs.rglob("*") if file.is_file()} == modules
    names = {path.name for path in tmp_path.iterdir() if path.suffix != ".dist-info"}
    assert names == {"spark_eos", "pyspark_spark_eos"}


def test_the_environment_of_the_wheel_is_bare(bare: Bare):
    """What the tests have and the wheel does not require is not there; else what runs in it would prove nothing."""
    code = "import sys; from importlib.util import find_spec; print(*filter(find_spec, sys.argv[1:]))"
    assert bare.run("python", "-c", code, "numpy", "pytest", "pandas", "yaml", "jobs").split() == ["numpy"]


LICENCES = """
from importlib.metadata import distributions

for each in distributions():
    first_lines = [text.splitlines()[0] for text in each.metadata.get_all("License", []) if text]
    stated = [*each.metadata.get_all("License-Expression", []), *first_lines]
    classified = [text for text in each.metadata.get_all("Classifier", []) if text.startswith("License ::")]
    print(each.metadata["Name"], *stated, *classified, sep="|")
"""


def test_no_licence_of_what_the_wheel_brings_asks_for_the_users_source(bare: Bare):
    """Companies refuse the GPL and its kin, LGPL included, among what they have to install."""
    licences = dict(line.split("|", 1) for line in bare.run("python", "-c", LICENCES).splitlines())
    assert licences.keys() >= {"pyspark", "py4j", "confluent-kafka", "pyarrow", "numpy", "fastcrc"}
    assert [name for name, text in licences.items() if not re.search("Apache|BSD|MIT", text)] == []
    assert [name for name, text in licences.items() if re.search("GPL|GNU|Copyleft|MPL|Mozilla", text)] == []


def test_without_the_extra_the_command_line_says_what_to_install(bare: Bare):
    """One line, without a stack."""
    code = "import contextlib, sys; from spark_eos.cli import main\n"
    code += "with contextlib.redirect_stderr(sys.stdout): print(main(sys.argv[1:]))"
    said = bare.run("python", "-c", code, "--help").splitlines()
    hint = "install the extra 'cli': pip install 'spark-eos[cli]'."
    assert said == [f"spark-eos: the command line is not installed: {hint}", "2"]


def test_without_the_extra_a_job_says_what_to_install(with_cli: Bare):
    """One line, without a stack; the other commands do not need the extra."""
    code = "import contextlib, sys; from spark_eos.cli import main\n"
    code += "with contextlib.redirect_stderr(sys.stdout): print(main(sys.argv[1:]))"
    said = with_cli.run("python", "-c", code, "run", "consume_transform_produce", "--conf", "job.yaml").splitlines()
    assert said == [
        "spark-eos: [EOS_NOT_INSTALLED] Job consume_transform_produce needs Python modules that are not installed: "
        "yaml. Hint: Install them where this runs, for tasks also on every executor: pip install 'spark-eos[jobs]'.",
        "1",
    ]


def test_importing_the_package_imports_neither_spark_nor_a_client():
    """`import spark_eos` costs next to nothing."""
    code = (
        "import sys, spark_eos; print(*sorted({'pyspark', 'confluent_kafka', 'kafka', 'pyarrow'} & set(sys.modules)))"
    )
    assert run(sys.executable, "-c", code, env=os.environ | {"PYTHONPATH": str(ROOT)}).strip() == ""
