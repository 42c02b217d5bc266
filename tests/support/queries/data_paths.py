"""The ways that rows take from topic to topic: through Spark, or by ranges of offsets, also of a mirror."""

from __future__ import annotations

from typing import Any

import pytest

#: Of each way, the fields of a query's spec.
WAYS: dict[str, dict[str, Any]] = {
    "rows": {},
    "copy": {"copy": True, "copies": True},
    "transform": {"copy": True},
    "sql": {"copy": True, "sql": True},
    "mirror": {"copies": True, "mirrors": True},
}


def also_by(*copy: str) -> pytest.MarkDecorator:
    """A test with rows through Spark, which gets them as copies as well, in the long share of the tests."""
    return pytest.mark.parametrize("way", ["rows", *(pytest.param(way, marks=pytest.mark.chaos) for way in copy)])
