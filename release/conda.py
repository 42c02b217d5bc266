"""A recipe for conda, from what setup.cfg says and the sdist that it builds."""

from __future__ import annotations

from collections.abc import Iterator
from configparser import ConfigParser
from typing import Any

import yaml
from packaging.requirements import Requirement

#: Packages that have another name at conda-forge than on PyPI.
CONDA_NAMES = {"confluent-kafka": "python-confluent-kafka"}


def recipe(setup: ConfigParser, version: str, sdist: str, sha256: str) -> str:
    """A recipe in YAML, by version 1 of the schema, beside the sdist of this name and hash.

    It has no extras, which conda does not know. Raises ValueError for a requirement that it could not say: with an
    extra, a marker or an address.
    """
    metadata, options = setup["metadata"], setup["options"]
    python = f"python {options['python_requires']}"
    made: dict[str, Any] = {
        "schema_version": 1,
        "package": {"name": metadata["name"], "version": version},
        "source": {"path": sdist, "sha256": sha256},
        "build": {
            "number": 0,
            "noarch": "python",
            "script": "python -m pip install . --no-deps --no-build-isolation -vv",
            "python": {"entry_points": setup["options.entry_points"]["console_scripts"].strip().splitlines()},
        },
        "requirements": {
            "host": [python, "pip", "setuptools"],
            "run": [python, *_required(options["install_requires"])],
        },
        "tests": [{"python": {"imports": ["spark_eos"]}}],
        "about": {
            "summary": metadata["description"],
            "license": metadata["license"],
            "license_file": metadata["license_files"],
        },
    }
    return yaml.safe_dump(made, sort_keys=False, allow_unicode=True)


def _required(text: str) -> Iterator[str]:
    for line in text.strip().splitlines():
        wanted = Requirement(line)
        if wanted.extras or wanted.marker or wanted.url:
            raise ValueError(f"{line}: a recipe cannot say that")
        yield f"{CONDA_NAMES.get(wanted.name, wanted.name)} {','.join(sorted(map(str, wanted.specifier)))}".rstrip()
