"""Makes texts from outside safe to print: in errors, in the log, and by commands.

Brokers send messages, and members of a consumer group or users of transactional ids choose names that messages show.
Such a text must not move a terminal's cursor, forge a line of a log, or reverse the reading direction.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from urllib.parse import unquote

#: Characters that a secret, or a part of one, must have to be left out of a text: shorter ones are in it by chance.
_SHORTEST_SECRET = 3


def printable(text: str) -> str:
    """Return the text on one line, with everything escaped, as in Python, that a terminal does not show as a
    character."""
    return text if text.isprintable() else "".join(map(_printable, text))


def printable_lines(text: str) -> str:
    """Return the text with each line made `printable`."""
    return text if text.isprintable() else in_lines(text.split("\n"))


def in_lines(lines: Iterable[str]) -> str:
    """Return a text of these lines, each made `printable`: an end of a line in one of them, which may have come from
    outside, begins no other line."""
    return "\n".join(map(printable, lines))


def excerpt(text: str | bytes, most: int = 1000) -> str:
    """Return the first ``most`` characters of a peer's text, on one line."""
    whole = text[: 4 * most + 4].decode(errors="backslashreplace") if isinstance(text, bytes) else text
    return printable(whole if len(whole) <= most else whole[:most] + "…")


def refused_by_system(error: OSError) -> str:
    """Return the operating system's message, and the file that it is about if there is one."""
    return ": ".join(str(each) for each in (error.strerror or error, error.filename) if each is not None)


def hidden(text: str, secrets: Iterable[str], addresses: Iterable[str] = ()) -> str:
    """Return the text with ``***`` for secrets, and for the user and password before the hosts of these addresses.
    These may have any character, as users forget to escape ``/`` and ``@``, and then a message may have only parts."""
    texts = {*secrets, *(part for address in addresses for part in _users(address))}
    for secret in sorted(texts, key=len, reverse=True):  # one may be a part of another
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "***")
    return text


def _users(address: str) -> set[str]:
    """Return the text of an address between ``//`` and the last ``@``, its password, and the parts of the password,
    each as it is and URL-decoded."""
    _, slashes, rest = address.partition("//")
    user, at, _ = rest.rpartition("@")
    if not slashes or not at:
        return set()
    password = user.partition(":")[2]
    parts = re.split(r"[/@?#\s]", unquote(password))
    return {form for each in (user, password, *parts) for form in (each, unquote(each))}


def json_text(data: object) -> str:
    """Return indented JSON with letters of all languages as they are, and escapes for unprintable characters."""
    text = json.dumps(data, indent=2, ensure_ascii=False)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def _printable(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
