"""Types of arguments that the jobs' command lines share."""

from __future__ import annotations

import argparse


def count(text: str) -> int:
    """A whole number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("it takes a whole number of at least 1")
    return number
