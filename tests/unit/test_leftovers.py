"""What programs leave behind that tests kill is removed with the tests' own temporary files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.runs import leftovers

LEAVES = "import os, signal, tempfile; print(tempfile.mkdtemp(), flush=True); os.kill(os.getpid(), signal.SIGKILL)"
#: Of the path of a Unix socket, with the null behind it.
LONGEST = 104


def test_what_a_killed_program_leaves_is_removed():
    """With what this process makes meanwhile; what was before is there again."""
    before = tempfile.gettempdir(), os.environ.get("TMPDIR"), os.environ.get("SPARK_SUBMIT_OPTS")
    with leftovers.removed() as folder:
        run = subprocess.run([sys.executable, "-c", LEAVES], capture_output=True, text=True, check=False)
        assert run.returncode == -signal.SIGKILL
        left, own = Path(run.stdout.strip()), Path(tempfile.mkdtemp())
        assert left.parent == own.parent == Path(folder)
        assert leftovers.of_java(folder) in os.environ["SPARK_SUBMIT_OPTS"].split()
        assert left.exists()
    assert not Path(folder).exists()
    assert (tempfile.gettempdir(), os.environ.get("TMPDIR"), os.environ.get("SPARK_SUBMIT_OPTS")) == before


def test_the_tests_themselves_have_such_a_folder_where_sockets_have_room(tmp_path):
    """What tests are given to write to stays where pytest keeps it."""
    folder = tempfile.gettempdir()
    assert os.environ["TMPDIR"] == folder
    assert len(f"{folder}/spark-eos-python-12345678/socket") < LONGEST
    assert not tmp_path.is_relative_to(folder)
