"""Runs notebooks in place, and keeps their outputs: ``python -m tests.notebooks [NAME…]``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "notebooks"
LONGEST_CELL_S = 600


def run(path: Path, keep: Path | None = None) -> nbformat.NotebookNode:
    """Run a notebook in a kernel of its own, as its user would, from its first cell to its last; what it looks like
    then. ``keep``: where to write that. Raises CellExecutionError."""
    book = nbformat.read(path, as_version=4)
    NotebookClient(book, timeout=LONGEST_CELL_S, kernel_name="python3", resources={"metadata": {"path": "."}}).execute()
    _tidy(book)
    if keep is not None:
        nbformat.write(book, keep)
    return book


def _tidy(book: nbformat.NotebookNode) -> None:
    """Leave out what differs from run to run for no reason: times, and the log of Spark's JVM on stderr."""
    for cell in book.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]


def main() -> None:
    names = sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    for name in names:
        path, began = FOLDER / f"{name}.ipynb", time.monotonic()
        run(path, keep=path)
        print(f"{path.name}: {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
