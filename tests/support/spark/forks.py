"""Forks of a server that is slow to answer."""

from __future__ import annotations

from pathlib import Path

from jobs.runner import forked_python
from tests.support.waiting import TIMEOUT


def patient(folder: Path) -> str:
    """The file of `forked_python` as it would be if users had so much time: where a server is busy for some seconds,
    the process would be one of its own."""
    source = Path(forked_python.__file__).read_text()
    assert source.count("ANSWER_S = 5.0") == 1
    copy = folder / "patient.py"
    copy.write_text(source.replace("ANSWER_S = 5.0", f"ANSWER_S = {TIMEOUT}"))
    return str(copy)
