"""``spark-eos run``."""

from __future__ import annotations

import importlib
import os
import signal
from typing import Annotated

import typer

from spark_eos.cli.options import Format, print_error
from spark_eos.errors import EosError

_JOBS: dict[str, str] = importlib.import_module("spark_eos.jobs").JOBS
#: Words after the job's name are the job's, ``--help`` too.
CONTEXT = {"ignore_unknown_options": True, "allow_interspersed_args": False}
EPILOG = "Jobs:\n\n" + "\n\n".join(f"{name}: {what}." for name, what in _JOBS.items())


def _job(text: str) -> str:
    if text not in _JOBS:
        raise typer.BadParameter(f"'{text}' is none of {', '.join(_JOBS)}")
    return text


def _names(incomplete: str) -> list[str]:
    return [name for name in _JOBS if name.startswith(incomplete)]


def run(
    job: Annotated[str, typer.Argument(parser=_job, autocompletion=_names, metavar="JOB", help="its name, as below")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="--conf FILE", help="arguments of the job", show_default=False),
    ] = None,
) -> int:
    """Run a job, by its configuration file.

    'spark-eos run JOB --help' lists its arguments and exit codes.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        # Until the job has handlers of its own, a signal ends it, without a stack trace from an import.
        signal.signal(number, lambda *_: os._exit(0))
    try:
        return run_job(job, arguments or [])
    except EosError as error:
        return print_error(Format.TEXT, error, 1)


def run_job(job: str, arguments: list[str]) -> int:
    """Run the job, and return its exit code. Raises UnsupportedError where a package that it imports is not
    installed."""
    importlib.import_module("spark_eos.jobs.installed").check_installed(job)
    code: int = importlib.import_module(f"spark_eos.jobs.{job}").main(arguments)
    return code
