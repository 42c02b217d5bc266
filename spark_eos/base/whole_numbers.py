"""Numbers in users' values, and in the names and keys of files: by ASCII digits alone.

``int`` takes more, such as ``1_000`` and the digits of other scripts, and ``isdigit`` even some that ``int`` refuses.
"""

from __future__ import annotations

import re

_DIGITS = re.compile(r"[0-9]{1,19}")
#: Of 64 bits with a sign, as Kafka and Spark have offsets and times.
LARGEST = (1 << 63) - 1


def whole_number(text: str) -> int | None:
    """Return a number up to `LARGEST`; None for any other text."""
    return int(text) if _DIGITS.fullmatch(text) and int(text) <= LARGEST else None


def plain_number(text: str) -> int | None:
    """Like `whole_number`, but refuse leading zeros, so that ``0`` and ``00`` cannot be two keys."""
    number = whole_number(text)
    return number if str(number) == text else None
