"""The files of docs/production.md, as their own tools read them, and what they need of each other."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from jobs import JOBS
from jobs.consume_transform_produce import ConsumeTransformProduce
from jobs.runner.config import load
from spark_eos.errors import conditions
from tests.support.runs.page_programs import DOCS, files_of

FILES = files_of("production.md")
PAGE = (DOCS / "production.md").read_text()
SETUP = ConfigParser()
SETUP.read(DOCS.parent / "setup.cfg")
INSTRUCTIONS = {"FROM", "RUN", "COPY", "USER", "ENV", "VOLUME", "EXPOSE", "CMD"}


def unit() -> configparser.SectionProxy:
    """The section of the service in the systemd unit."""
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # as configparser's own pages do it
    parser.read_string(FILES["orders.service"])
    return parser["Service"]


def dockerfile() -> dict[str, list[str]]:
    """The arguments of each instruction, by its name."""
    arguments: dict[str, list[str]] = {}
    for line in FILES["Dockerfile"].replace("\\\n", "").splitlines()[1:]:
        name, _, rest = line.partition(" ")
        arguments.setdefault(name, []).append(rest)
    return arguments


def variables() -> set[str]:
    """The environment variables that the job's file needs."""
    return set(re.findall(r"\$\{(\w+)\}", FILES["orders.yaml"]))


def test_the_job_reads_its_file(tmp_path: Path, environ) -> None:
    """Without an unknown key, and writes to topics that the page has made."""
    environ(**dict.fromkeys(variables(), "set"))
    (tmp_path / "orders.yaml").write_text(FILES["orders.yaml"])
    config = load(tmp_path / "orders.yaml", ConsumeTransformProduce)
    for name in (config.sink["topic"], config.sink["deadLetters.topic"]):
        assert f'NewTopic("{name}"' in FILES["topics.py"]


def test_the_page_makes_a_dead_letter_topic_that_is_taken() -> None:
    """Of other topics, a batch has 1 MiB by default. The error for a smaller one names the page, for clusters without
    Kafka's scripts."""
    (made,) = re.findall(r'"max.message.bytes": "(\d+)"', FILES["topics.py"])
    assert int(made) > 1_048_588
    assert "docs/production.md" in conditions()["EOS_DEAD_LETTER_TOPIC"]["too_small"]["hint"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """With a program that is there, as systemd looks for it."""
    text = FILES["orders.service"].replace("/opt/orders/bin/spark-eos", sys.executable)
    (tmp_path / "orders.service").write_text(text)
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / "orders.service")],
        check=False,
        capture_output=True,
        text=True,
    )
    said = [line for line in verified.stderr.splitlines() if "orders.service" in line]
    assert (verified.returncode, said) == (0, []), verified.stderr


def test_the_unit_starts_the_job_as_often_as_that_helps() -> None:
    """Exit code 1 is for a person; the variables of the job's file have values."""
    service = unit()
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("on-failure", "1")
    command = service["ExecStart"].split()
    assert command[0] == "/opt/orders/bin/spark-eos" and command[1] == "run" and command[2] in JOBS
    assert {pair.partition("=")[0] for pair in service["Environment"].split()} == variables()


def test_the_image_has_what_the_job_needs() -> None:
    """A Python that the package takes, Java, extras that exist, the job as the process that signals reach, and values
    of the variables, from the image or the command that runs it."""
    image = dockerfile()
    assert image.keys() == INSTRUCTIONS
    (base,) = image["FROM"]
    version = re.fullmatch(r"python:(3\.\d+)-slim", base)
    assert version is not None and version[1] in SpecifierSet(SETUP["options"]["python_requires"])
    apt, pip = image["RUN"]
    assert "default-jre-headless" in apt
    extras = re.search(r"'/src\[(.+?)\]'", pip)
    assert extras is not None and set(extras[1].split(",")) <= SETUP["options.extras_require"].keys()
    (command,) = image["CMD"]
    assert json.loads(command) == ["spark-eos", *unit()["ExecStart"].split()[1:]]
    given = [pair.partition("=")[0] for line in image["ENV"] for pair in line.split()]
    assert variables() <= {*given, *re.findall(r"--env (\w+)=", PAGE)}
