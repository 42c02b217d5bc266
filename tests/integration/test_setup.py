"""What installing the package does: Spark finds ``eos-kafka`` with nothing called, and importing it costs nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command: str, **environ: str) -> str:
    """Run to the end in another process, outside of this checkout; its output, or an AssertionError with all of it."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environ
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", env=environ, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as a wheel installs it."""
    wheels = tmp_path_factory.mktemp("wheels")
    target = tmp_path_factory.mktemp("installed")
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    # Building in the checkout itself would leave a build folder there, whose old files go into later wheels.
    source = tmp_path_factory.mktemp("source")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "spark_eos"):
        (source / name).symlink_to(ROOT / name)
    run(*pip, "wheel", "--no-deps", "--wheel-dir", str(wheels), str(source))
    (wheel,) = wheels.glob("spark_eos-*.whl")
    run(*pip, "install", "--no-deps", "--target", str(target), str(wheel))
    return target


def test_the_wheel_holds_every_package_and_nothing_else_at_the_top(installed: Path):
    packages = {file.parent for file in (ROOT / "spark_eos").rglob("*.py")} - {ROOT / "spark_eos" / "autoload"}
    for package in packages:
        assert (installed / package.relative_to(ROOT) / "__init__.py").exists(), package
    assert {path.name for path in installed.iterdir() if path.suffix != ".dist-info" and path.name != "bin"} == {
        "spark_eos",
        "pyspark_spark_eos",
    }


FIND = """
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
         .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate())
stream = spark.readStream.format("eos-kafka").option("kafka.bootstrap.servers", "127.0.0.1:9").option("subscribe", "t")
print(",".join(stream.load().columns))
spark.stop()
"""


def test_spark_finds_the_data_source_with_nothing_called(installed: Path):
    """Spark lists modules named pyspark_* in the folders of the path: those of a wheel, not of an editable install."""
    out = run(
        sys.executable, "-c", FIND, PYTHONPATH=str(installed), PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1"
    )
    assert out.strip().split(",")[:4] == ["key", "value", "topic", "partition"]


def test_importing_the_package_imports_neither_spark_nor_a_client():
    code = (
        "import sys, spark_eos; print(*sorted({'pyspark', 'confluent_kafka', 'kafka', 'pyarrow'} & set(sys.modules)))"
    )
    assert run(sys.executable, "-c", code, PYTHONPATH=str(ROOT)).strip() == ""
