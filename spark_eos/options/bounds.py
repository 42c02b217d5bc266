"""Parsing of options for the start and end of reading, and of durations. `source.bounds` resolves them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from spark_eos.base.topic_partition import PartitionOffsets
from spark_eos.base.whole_numbers import whole_number
from spark_eos.errors import invalid_option
from spark_eos.options.offsets import EARLIEST, LATEST, parse_offsets


@dataclass(frozen=True)
class ByTime:
    """The first record with this timestamp or a later one, in milliseconds since 1970, for all or for each partition.

    If there is none: the end if ``else_latest``, otherwise an error.
    """

    times: int | PartitionOffsets
    else_latest: bool


_Word = Literal["earliest", "latest", "group"]
#: Offsets may be EARLIEST or LATEST.
Limit = _Word | PartitionOffsets | ByTime

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def parse_start(option: str, text: str) -> Limit:
    """Parse ``earliest``, ``latest``, ``group`` or JSON. Errors as for `parse_offsets`."""
    return _limit(option, text, ("earliest", "latest", "group"))


def parse_end(option: str, text: str) -> Limit:
    """Parse ``latest`` or JSON. Errors as for `parse_offsets`; EARLIEST is one, too."""
    limit = _limit(option, text, ("latest",))
    for topic, p in _with_number(limit, EARLIEST):
        raise invalid_option(option, f"earliest for {topic}-{p}, where nothing can end", "-1, which is latest")
    return limit


def parse_time(option: str, text: str) -> int:
    """Parse milliseconds since 1970."""
    number = whole_number(text.strip())
    if number is None:
        raise invalid_option(option, f"'{text}'", "milliseconds since 1970, such as 1700000000000")
    return number


def parse_strategy(option: str, text: str) -> bool:
    """Return whether to begin at the end (``latest``), instead of failing, if no record has the timestamp or a later
    one."""
    word = text.strip().lower()
    if word not in ("error", "latest"):
        raise invalid_option(option, f"'{text}'", "error or latest")
    return word == "latest"


def parse_duration(option: str, text: str) -> float:
    """Parse a duration, such as ``15m``, ``500ms`` or ``2h``; returns seconds. A number alone is milliseconds, as
    everywhere in Spark."""
    match = re.fullmatch(r"(\d{1,19})\s*([a-z]*)", text.strip().lower(), re.ASCII)
    unit = match[2] or "ms" if match else ""
    if not match or unit not in _SECONDS:
        raise invalid_option(
            option, f"'{text}'", f"a duration such as 90s, 15m or 2h; the units are {', '.join(_SECONDS)}"
        )
    return int(match[1]) * _SECONDS[unit]


def refuse_latest_start(option: str, limit: Limit) -> None:
    """Raise OptionError (EOS_OPTION_INVALID) for a batch that begins at the end, as it would read nothing."""
    if limit == "latest":
        raise invalid_option(option, "latest, where a batch would read nothing", "earliest, offsets or a timestamp")
    for topic, p in _with_number(limit, LATEST):
        raise invalid_option(option, f"latest for {topic}-{p}, where no batch can begin", "-2, which is earliest")


def check_order(start_option: str, start: Limit, end_option: str, end: Limit | None) -> None:
    """Raise OptionError (EOS_OPTION_INVALID) if the user's end is before the start."""
    first: int | Limit | None = start
    last: int | Limit | None = end
    if isinstance(start, ByTime) and isinstance(end, ByTime):
        first, last = start.times, end.times
    if isinstance(first, int) and isinstance(last, int):
        first, last = {"": {0: first}}, {"": {0: last}}
    if not isinstance(first, dict) or not isinstance(last, dict):
        return
    for topic, partitions in first.items():
        for p, at in partitions.items():
            until = last.get(topic, {}).get(p, at)
            if until >= 0 <= at and until < at:
                place = f" for {topic}-{p}" if topic else ""
                raise invalid_option(
                    end_option,
                    f"{until}{place}, before '{start_option}', which is {at}",
                    "an end at the start or later",
                )


def _limit(option: str, text: str, words: tuple[_Word, ...]) -> Limit:
    word = text.strip().lower()
    for known in words:
        if word == known:
            return known
    if not text.lstrip().startswith("{"):
        raise invalid_option(
            option,
            f"'{text}'",
            f'{", ".join(words)} or JSON such as {{"topic1":{{"0":23,"1":-2}},"topic2":{{"0":-1}}}}',
        )
    return parse_offsets(option, text)


def _with_number(limit: Limit, number: int) -> Iterator[tuple[str, int]]:
    """Yield the partitions for which the user has given EARLIEST or LATEST."""
    for topic, partitions in limit.items() if isinstance(limit, dict) else ():
        yield from ((topic, p) for p, at in partitions.items() if at == number)
