"""`spark-eos package`: what is in the archive. tests/chaos/test_packaged.py sends one to executors."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from importlib.metadata import distribution

from spark_eos import cli
from spark_eos.ops import package


def test_a_python_that_has_nothing_else_imports_it(tmp_path, capsys, monkeypatch):
    """The package, its jobs and what it requires, in the versions that are here; nothing is overwritten."""
    monkeypatch.setattr(package, "requirements", lambda: {"fastcrc": distribution("fastcrc")})  # the others are large
    archive = tmp_path / "packages.tar.gz"
    assert cli.main(["package", str(archive), "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["conf"]["spark.archives"] == f"{archive}#packages"
    assert answer["packages"]["fastcrc"] == distribution("fastcrc").version
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "packages", filter="data")
    assert not list((tmp_path / "packages").rglob("__pycache__"))
    code = "import spark_eos.protocol.commit, spark_eos.jobs, fastcrc; print(spark_eos.__file__, fastcrc.__file__)"
    command = [sys.executable, "-S", "-E", "-c", f"import sys; sys.path.insert(0, 'packages'); {code}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.count("packages/") == 2, done.stderr
    assert cli.main(["package", str(archive)]) == 2
    assert "EOS_PACKAGE_NOT_WRITTEN" in capsys.readouterr().err


def test_what_is_packed_is_all_that_an_executor_needs():
    """What is required by what is required comes along; Spark, extras and this test's tools do not."""
    found = package.requirements().keys()
    assert {"confluent-kafka", "fastcrc", "numpy", "pyarrow"} <= found
    assert not {"pyspark", "py4j", "typer", "rich", "pytest", "pyyaml"} & found
