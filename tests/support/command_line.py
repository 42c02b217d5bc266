"""Command lines of `spark-eos`, with what names the cluster where it belongs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

#: The options that stand before the command.
CONNECTION = ("--bootstrap-servers", "--kafka", "--kafka-file", "--ledger-topic", "--prefix", "--storage")


def command_line(*words: str) -> list[str]:
    """The words of a command line, its connection first, wherever it stands in them."""
    before: list[str] = []
    after: list[str] = []
    rest: Iterator[str] = iter(words)
    for word in rest:
        if word in CONNECTION:
            before += [word, next(rest)]
        else:
            after.append(word)
    return [*before, *after]


def in_terminal(*words: str) -> tuple[int, str]:
    """Run `spark-eos` in a pseudo-terminal: its exit code, and all that it has written there."""
    command = [sys.executable, "-m", "spark_eos.cli", *command_line(*words)]
    shown, terminal = os.openpty()
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal) as process:
        os.close(terminal)
        written = b""
        with contextlib.suppress(OSError):  # EIO: the process has ended
            while part := os.read(shown, 65536):
                written += part
        os.close(shown)
    return process.returncode, written.decode()
