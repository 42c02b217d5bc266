"""Numbers in what users write, and in the names and keys of files: by ASCII digits alone.

``int`` takes more, such as ``1_000`` and the digits of other scripts, and ``isdigit`` even what ``int`` does not.
"""

from __future__ import annotations

import re

_DIGITS = re.compile(r"[0-9]{1,19}")  # the largest of 64 bits has 19


def whole_number(text: str) -> int | None:
    """A number of at most 19 digits; None for any other text."""
    return int(text) if _DIGITS.fullmatch(text) else None


def plain_number(text: str) -> int | None:
    """The same in the one way that programs write it, without leading zeros: two keys ``0`` and ``00`` are not two."""
    number = whole_number(text)
    return number if str(number) == text else None
