"""The notebooks run as they are, from the first cell to the last, and say what they say of themselves."""

from __future__ import annotations

import re

import pytest

from tests.notebooks import FOLDER, run

#: What a notebook must say, whatever else differs from run to run.
SAYS = {
    "quickstart": ["5,000 rows with 5,000 different keys", "8,000 rows with 8,000 different keys", "OK: 8,000 rows"],
    "crash_and_replay": ["decided: 2", '"decided": true', "OK: 8,000 rows"],
    "isolation_levels": ["read_committed    2,000 rows with 2,000 different keys"],
    "registry": [
        "subjects: []",
        "versions: [1, 2]",
        "2: 4,000 flights with id, airport, delay, carrier",
        "have the same",
    ],
    "speed": ["outputs has 1,000,000 rows", "rows, eos-kafka", "copy, Arrow"],
}


def text_of(book: dict) -> str:
    """All outputs that are text."""
    outputs = [output for cell in book["cells"] for output in cell.get("outputs", ())]
    return "\n".join(output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in outputs)


@pytest.mark.chaos
@pytest.mark.parametrize("name", SAYS)
def test_a_notebook_runs(name):
    """In a kernel of its own, with a broker and a Spark of its own."""
    text = text_of(run(FOLDER / f"{name}.ipynb"))
    assert [said for said in SAYS[name] if said not in text] == []
    if name == "isolation_levels":
        rows, keys = re.search(r"read_uncommitted +([\d,]+) rows with ([\d,]+) different", text).groups()
        assert keys == "2,000"
        assert int(rows.replace(",", "")) > 2_000


def test_each_notebook_is_held():
    """By a test, and with its outputs kept, which tell no path of the machine that they come from."""
    import nbformat

    books = {path.stem: nbformat.read(path, as_version=4) for path in FOLDER.glob("*.ipynb")}
    assert books.keys() == SAYS.keys()
    for name, book in books.items():
        text = text_of(book)
        assert [said for said in SAYS[name] if said not in text] == [], name
        assert re.findall(r"(?<!\w)/(?:tmp|home|work|root)/\S*", text) == [], name
        assert any("image/png" in output.get("data", {}) for cell in book.cells for output in cell.get("outputs", ()))
