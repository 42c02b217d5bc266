"""Other people's texts, as they may be printed: in errors, in the log, and by commands.

Brokers send messages, and whoever joins a consumer group or names a transactional id chooses what we show of it. Such a
text must not move a terminal's cursor, forge a line of a log, or turn the reading direction around.
"""

from __future__ import annotations

import json


def printable(text: str) -> str:
    """On one line: what a terminal would not show as a character is escaped, as in Python."""
    return text if text.isprintable() else "".join(map(_printable, text))


def printable_lines(text: str) -> str:
    """The text with each line made `printable`."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def excerpt(text: str | bytes, most: int = 1000) -> str:
    """The beginning of what a peer has sent, of whatever size, on one line."""
    whole = text[: 4 * most + 4].decode(errors="backslashreplace") if isinstance(text, bytes) else text
    return printable(whole if len(whole) <= most else whole[:most] + "…")


def json_text(data: object) -> str:
    """JSON for people and for programs: with characters of all languages, and with escapes for what is none."""
    text = json.dumps(data, indent=2, ensure_ascii=False)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def _printable(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
