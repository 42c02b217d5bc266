"""Files in memory, for texts that other programs and libraries read only from files."""

from __future__ import annotations

import os
from typing import IO


def memory_file(name: str) -> IO[bytes] | None:
    """An empty one, which is gone when it is closed. None where there are none, as on macOS, or none are allowed, as by
    vm.memfd_noexec=2. ``name``: what the system shows."""
    try:
        return os.fdopen(os.memfd_create(name), "w+b")
    except (AttributeError, OSError):
        return None
