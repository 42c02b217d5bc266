"""Command lines of `spark-eos`, with what names the cluster where it belongs."""

from __future__ import annotations

from collections.abc import Iterator

#: The options that stand before the command.
CONNECTION = ("--bootstrap-servers", "--kafka", "--kafka-file", "--ledger-topic", "--prefix", "--storage")


def command_line(*words: str) -> list[str]:
    """The words of a command line, its connection first, wherever it stands in them."""
    before: list[str] = []
    after: list[str] = []
    rest: Iterator[str] = iter(words)
    for word in rest:
        if word in CONNECTION:
            before += [word, next(rest)]
        else:
            after.append(word)
    return [*before, *after]
