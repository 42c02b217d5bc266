"""The recipe for conda says what setup.cfg says."""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from release.conda import CONDA_NAMES, recipe
from spark_eos import __version__

ROOT = Path(__file__).parents[3]
HASH = "0" * 64


def of_setup(**more: str) -> ConfigParser:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    setup["options"].update(more)
    return setup


def test_what_is_required():
    """All that setup.cfg requires, under conda's names, and nothing else; versions are those of setup.cfg."""
    setup = of_setup()
    found = yaml.safe_load(recipe(setup, __version__, "spark_eos.tar.gz", HASH))
    python, *run = found["requirements"]["run"]
    assert python == "python >=3.11" == found["requirements"]["host"][0]
    back = {conda: name for name, conda in CONDA_NAMES.items()}
    given = {back.get(name, name): SpecifierSet(versions) for name, versions in map(str.split, run)}
    lines = setup["options"]["install_requires"].strip().splitlines()
    assert given == {wanted.name: wanted.specifier for wanted in map(Requirement, lines)}
    assert found["package"] == {"name": "spark-eos", "version": __version__}
    assert found["source"] == {"path": "spark_eos.tar.gz", "sha256": HASH}
    assert found["build"]["python"]["entry_points"] == ["spark-eos = spark_eos.cli:main"]
    assert found["about"]["license"] == "Apache-2.0"


@pytest.mark.parametrize("line", ["a[b]>=1", "a>=1; sys_platform == 'linux'", "a @ https://localhost/a.whl"])
def test_what_a_recipe_cannot_say(line):
    """It is an error, as the package would lack it."""
    with pytest.raises(ValueError, match=f"^{re.escape(line)}: a recipe cannot say that"):
        recipe(of_setup(install_requires=line), "1", "a", HASH)
