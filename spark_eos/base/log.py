"""The log. Spark's Python workers configure none: records go to stderr, which Spark forwards."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from spark_eos.base.printable import printable

#: Environment variable with the level: DEBUG, INFO (default, also if it is empty), WARNING, ERROR.
LEVEL_VARIABLE = "SPARK_EOS_LOG"

logger = logging.getLogger("spark_eos")


class _SparkFormatter(logging.Formatter):
    """The line format of Spark's own log, which these lines are part of: ``26/11/22 10:15:00 WARN spark-eos: …``."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(level)s spark-eos: %(message)s", datefmt="%y/%m/%d %H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        record.level = "WARN" if record.levelno == logging.WARNING else record.levelname
        return super().format(record)


def _on_one_line(record: logging.LogRecord) -> bool:
    """Keep every record, but escape line breaks and control characters in texts from outside; a logging filter."""
    text = record.getMessage()
    if not text.isprintable():
        record.msg, record.args = printable(text), ()
    return True


def _set_up() -> None:
    logger.addFilter(_on_one_line)
    if logger.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_SparkFormatter())
    logger.addHandler(handler)
    level = os.environ.get(LEVEL_VARIABLE, "").strip().upper() or "INFO"
    known = isinstance(logging.getLevelName(level), int)
    logger.setLevel(level if known else "INFO")
    if not known:
        logger.warning("%s is %s, which is no level; it is INFO now", LEVEL_VARIABLE, level)


_set_up()


@contextmanager
def only_logged(what: str, *errors: type[Exception]) -> Iterator[None]:
    """Log these errors of the block instead of raising them, for an attempt that its caller can do without. ``what``:
    the message, such as "the transaction could not be aborted"."""
    try:
        yield
    except errors as error:
        logger.warning("%s: %s", what, error)
