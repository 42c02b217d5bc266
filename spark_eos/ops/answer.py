"""What a command has to say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    """As plain data for JSON, and as text; ``code`` is the exit code. Kafka properties are in neither."""

    data: Any
    text: str
    code: int = 0
