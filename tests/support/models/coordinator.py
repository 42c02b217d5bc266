"""A client whose one broker coordinates everything, and says what it is told to say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Coordinator:
    """``answers``: to one request after the other, the last one also to those that follow; None for silence. ``asked``:
    the values of each request. ``forgotten``: ids and groups whose coordinator was to be looked for again."""

    bootstrap_servers = "k:9092"

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []
        self.forgotten: list[str] = []

    def coordinator(self, *_: Any) -> tuple[int, None]:
        return 1, None

    def ask(self, node: int, request: Any, values: Any, *_: Any) -> Any:
        self.asked.append(values)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def forget(self, keys: Sequence[str], *_: Any) -> None:
        self.forgotten += keys
