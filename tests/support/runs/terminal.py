"""Commands in a pseudo-terminal."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys


def in_terminal(*words: str) -> tuple[int, str]:
    """Run `spark-eos` in a pseudo-terminal: its exit code, and all that it has written there."""
    command = [sys.executable, "-m", "spark_eos.cli", *words]
    shown, terminal = os.openpty()
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal) as process:
        os.close(terminal)
        written = b""
        with contextlib.suppress(OSError):  # EIO: the process has ended
            while part := os.read(shown, 65536):
                written += part
        os.close(shown)
    return process.returncode, written.decode()
