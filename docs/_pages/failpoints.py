"""failpoints.md: each named point of the protocol."""

from __future__ import annotations

from spark_eos.base.failpoints import POINTS

INTRODUCTION = """# Failpoints

A failpoint is a named point of [the protocol](design.md#the-steps) where tests stop, fail or kill the code, by
environment variables (`spark_eos/base/failpoints.py`). At each, a test on real brokers kills a process, and the
[simulation](testing.md#simulation) strikes.
"""


def page() -> str:
    """failpoints.md."""
    return "\n".join([INTRODUCTION, *(f"- `{point}`: {text}" for point, text in POINTS.items())]) + "\n"
