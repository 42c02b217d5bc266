"""Argument types of the command lines of the benchmark and the comparison."""

from __future__ import annotations

import argparse


def share(text: str) -> float:
    """How much of something there is, above 0: 0.1 is a tenth."""
    number = float(text)
    if not 0 < number <= 100:
        raise argparse.ArgumentTypeError("it takes a number above 0")
    return number


def count(text: str) -> int:
    """A whole number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("it takes a whole number of at least 1")
    return number
