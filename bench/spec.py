"""What a program of the benchmark's own is told, and what it answers: JSON. Imports the standard library only."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from typing import Self


@dataclass(frozen=True)
class Spec:
    """What such a program is to do. It is its only argument."""

    def to_json(self) -> str:
        """The argument."""
        return json.dumps(asdict(self))

    @classmethod
    def given(cls) -> Self:
        """The spec that this program was started with."""
        return cls(**json.loads(sys.argv[1]))


def answer(result: object) -> None:
    """Print a result, dataclasses in it as their fields, and wait to be ended: of a process that is gone, nobody could
    look up the processor time."""
    print(json.dumps(result, default=asdict), flush=True)
    sys.stdin.read()
