"""The door of the connector has few names, which exist and are explained."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from spark_eos import spi

EVERY = sorted(name for names in spi.NAMES.values() for name in names)


def test_the_door_is_narrow_and_every_name_of_it_is_explained():
    """A name that is not in the description promises nothing."""
    assert len(EVERY) == len(set(EVERY)) <= 45
    assert set(EVERY) <= set(re.findall(r"`(\w+)`", spi.__doc__ or ""))


def test_names_are_declared_for_types_as_they_are_imported():
    """Once for mypy, once for the interpreter."""
    nodes = ast.walk(ast.parse(Path(spi.__file__).read_text()))
    declared = {
        (node.module.removeprefix("spark_eos."), name.name)
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("spark_eos.")
        for name in node.names
    }
    assert declared == {(module, name) for module, names in spi.NAMES.items() for name in names}
    assert all(getattr(spi, name).__name__ == name for name in EVERY)


def test_an_unknown_name_is_no_attribute():
    """Nothing else is passed on."""
    with pytest.raises(AttributeError, match="no attribute 'commit'"):
        spi.commit  # noqa: B018  # type: ignore[attr-defined]


def test_a_name_loads_its_own_module_alone():
    """Processes that plan need no producer."""
    code = "import sys; from spark_eos.spi import HadoopSettings; print('spark_eos.sink.task' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"
