"""The ``spark-eos`` command. It needs the extra ``cli``; without it, it prints how to install that.

``app.py`` has the tree of commands, ``options.py`` the options that they share. A command's function parses its options
and calls another package, mostly ``spark_eos/ops``, which it imports when it runs, so that ``--help`` is fast.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments`, by default the process's own. Returns the exit code."""
    try:
        from spark_eos.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("rich", "typer"):
            raise
        print(
            "spark-eos: the command line is not installed: install the extra 'cli': pip install 'spark-eos[cli]'.",
            file=sys.stderr,
        )
        return 2
    return run(sys.argv[1:] if arguments is None else list(arguments))
