"""What is printed, and what is not, where nobody has configured logging, as in Spark's Python workers."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys

import pytest

from spark_eos.base import log

PROGRAM = """
import logging
{before}
from spark_eos.kafka.config.librdkafka import client_log
from spark_eos.base.log import logger
logger.info("a batch")
logger.debug("a detail")
client_log.error("Connect failed")
"""


def printed(before: str = "") -> str:
    """What a process of its own writes to standard error."""
    program = PROGRAM.format(before=before)
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout == ""
    return done.stderr


def test_batches_are_printed_and_the_clients_chatter_is_not():
    """An unreachable broker would otherwise print a line for every attempt to connect."""
    lines = printed().splitlines()
    assert len(lines) == 1
    assert re.fullmatch(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d INFO spark-eos: a batch", lines[0]), "as Spark's own lines"


@pytest.fixture
def printed_by(capsys, monkeypatch):
    """``printed_by(level)``: what a process with this level in its environment writes to standard error."""

    def lines(level: str) -> list[str]:
        with monkeypatch.context() as patch:
            patch.setenv("SPARK_EOS_LOG", level)
            patch.setattr(logging.getLogger(), "handlers", [])
            patch.setattr(log, "logger", logging.Logger("spark_eos"))
            log._set_up()
            log.logger.info("a batch")
            log.logger.debug("a detail")
        return capsys.readouterr().err.splitlines()

    return lines


@pytest.mark.parametrize(
    ("level", "messages"),
    [("DEBUG", ["a batch", "a detail"]), ("warning", []), ("", ["a batch"]), (" info ", ["a batch"])],
)
def test_the_environment_sets_the_level(level, messages, printed_by):
    """It is inherited by workers, which read no logging configuration. An empty variable, common in containers, is the
    default."""
    assert [line.partition("spark-eos: ")[2] for line in printed_by(level)] == messages


def test_a_level_that_does_not_exist_is_told(printed_by):
    """It must not end a worker."""
    first, second = printed_by("VERBOSE")
    assert "WARN" in first and "SPARK_EOS_LOG" in first and "VERBOSE" in first
    assert second.endswith("a batch")


def test_who_asks_for_the_clients_log_gets_it():
    """By the level of its logger."""
    assert "Connect failed" in printed('logging.getLogger("spark_eos.librdkafka").setLevel("ERROR")')


def test_a_logging_configuration_of_the_application_is_left_alone():
    """Then its handlers get the records, and no line comes twice."""
    text = printed('logging.basicConfig(format="mine %(message)s", level="INFO")')
    assert text.splitlines() == ["mine a batch"]
