"""The log. Spark's Python workers configure none: their records go to standard error, which Spark forwards."""

from __future__ import annotations

import logging
import os

LEVEL_VARIABLE = "SPARK_EOS_LOG"
"""Environment variable with the level: DEBUG, INFO (default), WARNING, ERROR."""

logger = logging.getLogger("spark_eos")


def _set_up() -> None:
    if logger.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s spark-eos %(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(os.environ.get(LEVEL_VARIABLE, "INFO").upper())


_set_up()
