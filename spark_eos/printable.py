"""Makes texts from outside safe to print: in errors, in the log, and by commands.

Brokers send messages, and members of a consumer group or users of transactional ids choose names that messages show.
Such a text must not move a terminal's cursor, forge a line of a log, or reverse the reading direction.
"""

from __future__ import annotations

import json


def printable(text: str) -> str:
    """The text on one line, with everything escaped, as in Python, that a terminal does not show as a character."""
    return text if text.isprintable() else "".join(map(_printable, text))


def printable_lines(text: str) -> str:
    """The text with each line made `printable`."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def excerpt(text: str | bytes, most: int = 1000) -> str:
    """The first ``most`` characters of what a peer has sent, on one line."""
    whole = text[: 4 * most + 4].decode(errors="backslashreplace") if isinstance(text, bytes) else text
    return printable(whole if len(whole) <= most else whole[:most] + "…")


def json_text(data: object) -> str:
    """Indented JSON with letters of all languages as they are, and escapes for what a terminal does not show."""
    text = json.dumps(data, indent=2, ensure_ascii=False)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def _printable(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
