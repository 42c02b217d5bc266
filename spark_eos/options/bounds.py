"""Parsing of options for the start and end of reading, and of durations. `source.limits` resolves them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from spark_eos.errors import OptionError
from spark_eos.options.offsets import bad, parse_offsets
from spark_eos.topic_partition import PartitionOffsets


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
    """``earliest``, ``latest``, ``group`` or JSON. Errors as for `parse_offsets`."""
    return _limit(option, text, ("earliest", "latest", "group"))


def parse_end(option: str, text: str) -> Limit:
    """``latest`` or JSON. Errors as for `parse_offsets`; EARLIEST is one, too."""
    limit = _limit(option, text, ("latest",))
    _refuse(option, limit, -2, "ends at the beginning of {place}.", "-1 is latest; an end cannot be earliest.")
    return limit


def parse_time(option: str, text: str) -> int:
    """Milliseconds since 1970."""
    if not re.fullmatch(r"\d+", text.strip(), re.ASCII):
        raise bad(option, f"is '{text}'.", hint="Use milliseconds since 1970, such as 1700000000000.")
    return int(text)


def parse_strategy(option: str, text: str) -> bool:
    """Whether to begin at the end (``latest``) if no record has the timestamp or a later one, instead of failing."""
    word = text.strip().lower()
    if word not in ("error", "latest"):
        raise bad(option, f"is '{text}'.", hint="Use error or latest.")
    return word == "latest"


def parse_duration(option: str, text: str) -> float:
    """Seconds; ``15m``, ``500ms``, ``2h``. A number alone is milliseconds, as everywhere in Spark."""
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower(), re.ASCII)
    unit = found[2] or "ms" if found else ""
    if not found or unit not in _SECONDS:
        raise OptionError(
            "EOS_OPTION_NOT_A_DURATION",
            f"Option '{option}' is '{text}'.",
            hint=f"Use a duration such as 90s, 15m or 2h; the units are {', '.join(_SECONDS)}.",
            option=option,
        )
    return int(found[1]) * _SECONDS[unit]


def refuse_latest_start(option: str, limit: Limit) -> None:
    """A batch that begins where it ends reads nothing. Raises OptionError (EOS_OPTION_OFFSETS)."""
    if limit == "latest":
        raise bad(
            option, "is latest, so that a batch would read nothing.", hint="Use earliest, offsets or a timestamp."
        )
    _refuse(option, limit, -1, "begins at the end of {place}.", "-2 is earliest; a batch cannot begin at latest.")


def check_order(start_option: str, start: Limit, end_option: str, end: Limit | None) -> None:
    """Raise OptionError (EOS_OPTION_OFFSETS) if the user's end is before the start."""
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
            stop = last.get(topic, {}).get(p, at)
            if stop >= 0 <= at and stop < at:
                place = f" for {topic}-{p}" if topic else ""
                raise bad(
                    end_option,
                    f"is {stop}{place}, before '{start_option}', which is {at}.",
                    hint="Set the end to the start or later.",
                )


def _limit(option: str, text: str, words: tuple[_Word, ...]) -> Limit:
    word = text.strip().lower()
    for known in words:
        if word == known:
            return known
    if not text.lstrip().startswith("{"):
        hint = f'It takes {", ".join(words)} or JSON such as {{"topic1":{{"0":23,"1":-2}},"topic2":{{"0":-1}}}}.'
        raise bad(option, f"is '{text}'.", hint=hint)
    return parse_offsets(option, text)


def _refuse(option: str, limit: Limit, number: int, what: str, hint: str) -> None:
    for topic, partitions in limit.items() if isinstance(limit, dict) else ():
        for p, at in partitions.items():
            if at == number:
                raise bad(option, what.format(place=f"{topic}-{p}"), hint=hint, topic=topic, partition=p)
