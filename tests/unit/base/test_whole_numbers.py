"""Numbers in texts are ASCII digits, wherever they come from."""

from __future__ import annotations

import pytest

from spark_eos.base.whole_numbers import plain_number, whole_number

NONE = ("", "-1", "+1", "1_000", "1.0", " 1", "\uff11\uff12", "\u0663", "\u00b2", "0x10", "1\n", str(2**63), "9" * 5000)


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_number(text):
    """``int`` takes some of them, and fails for some that ``isdigit`` lets through."""
    assert whole_number(text) is None and plain_number(text) is None


def test_numbers():
    """Up to the largest of 64 bits; with leading zeros where people write them."""
    assert [whole_number(text) for text in ("0", "007", str(2**63 - 1))] == [0, 7, 2**63 - 1]
    assert [plain_number(text) for text in ("0", "007", "10")] == [0, None, 10]
