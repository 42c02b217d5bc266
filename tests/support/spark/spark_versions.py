"""What a test needs of Spark that not every version has."""

from __future__ import annotations

import importlib.util

import pytest

needs_admission_control = pytest.mark.skipif(
    importlib.util.find_spec("pyspark.sql.streaming.datasource") is None,
    reason="this Spark has no admission control for sources in Python: AvailableNow is one micro-batch, without a lag",
)
