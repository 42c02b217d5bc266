"""Files in memory, for texts that other programs and libraries read only from files."""

from __future__ import annotations

import os
from typing import IO


def memory_file(name: str) -> IO[bytes] | None:
    """Create an empty file in memory, which is gone when it is closed. None where the system has none, as macOS, or
    forbids them, as by vm.memfd_noexec=2. ``name``: shown by the system."""
    try:
        return os.fdopen(os.memfd_create(name), "w+b")
    except (AttributeError, OSError):
        return None
