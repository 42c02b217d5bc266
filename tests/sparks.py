"""Runs the core of the suite on each version of Spark and Python, and writes the table of docs/versions.md.

``python -m tests.sparks`` makes an environment for each row (.venv/sparks, 1 GB and a minute each), and runs the cells
that are not green yet, as `tests.matrix` does; what is done is noted in docs/sparks.json.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cells import ROOT, Cells, NotThere

#: Of PySpark and Python.
SPARKS = (
    *(("4.1.4", "3.11"), ("4.1.4", "3.13")),
    *(("4.2.0", "3.12"), ("4.2.1", "3.13"), ("4.2.1", "3.14")),
    *(("4.3.0", "3.11"), ("4.3.0", "3.13"), ("4.3.0", "3.14")),
)
ROWS = {f"{spark}-{python}": (spark, python) for spark, python in SPARKS}
_KILLS = "tests/chaos/test_kills.py"
SCENARIOS: dict[str, tuple[str, ...]] = {
    "copy": ("tests/integration/source/test_queries.py",),
    "write": ("tests/integration/sink/test_sink.py",),
    "kill": (f"{_KILLS}::test_a_kill_of_a_query_by_processing_time",),
    "batch write": ("tests/integration/sink/test_batch_writes.py",),
    "foreachBatch": ("tests/integration/sink/test_foreach_batch.py", "-m", "not chaos"),
    "group": ("tests/integration/source/test_group.py",),
    "Connect": ("tests/integration/test_connect.py",),
    "pipelines": ("tests/integration/test_pipelines.py",),
}
_FOLDER = ROOT / ".venv" / "sparks"
_INSTALL_S = 600.0


def interpreter(version: str) -> Path:
    """A Python of this version: on the path, or made by pyenv. Raises NotThere."""
    name = f"python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    there = shutil.which(name)
    for found in (*([Path(there)] if there else []), *sorted(pyenv.glob(f"{version}.*/bin/{name}"))):
        if subprocess.run([found, "-c", ""], check=False, capture_output=True).returncode == 0:
            return found
    raise NotThere(f"no Python {version} here")


def python(row: str) -> tuple[list[str], list[str]]:
    """The interpreter of the row's environment, which is made if it is not there."""
    spark, version = ROWS[row]
    folder = _FOLDER / row
    ready, binary = folder / "installed", folder / "bin" / "python"
    if not ready.exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([interpreter(version), "-m", "venv", folder], check=True, timeout=_INSTALL_S)
        install = [binary, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, f"pyspark[connect]=={spark}", "-e", f"{ROOT}[test]"], check=True, timeout=_INSTALL_S)
        ready.touch()
    return [str(binary)], []


CELLS = Cells(
    name="table of Sparks",
    head="Spark, Python",
    notes=ROOT / "docs" / "sparks.json",
    rows={name: f"{spark}, {version}" for name, (spark, version) in ROWS.items()},
    scenarios=SCENARIOS,
    applies=lambda row, scenario: True,
    python=python,
)

if __name__ == "__main__":
    sys.exit(CELLS.main("python -m tests.sparks", __doc__))
