"""Settings of topics: what a target takes over from its source, what differs, and what it must not have. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping

from spark_eos.errors import EosError, stop

#: Taken from the source topic when a target is made. All others are the target brokers' defaults.
KEPT = (
    "cleanup.policy",
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "min.compaction.lag.ms",
    "retention.bytes",
    "retention.ms",
)

_ANY_TIME = str(2**63 - 1)
#: What a target is made with, whatever the source has.
CHANGED = {
    "compression.type": "producer",  # batches stay as they are
    "message.timestamp.type": "CreateTime",  # timestamps are the source's, whoever has set them there
    # A row that was in time for the source's brokers is not, later, for the target's.
    "message.timestamp.before.max.ms": _ANY_TIME,
    "message.timestamp.after.max.ms": _ANY_TIME,
}

#: How the names of settings end whose values are numbers.
_NUMBERS = (".ms", ".bytes")


def wanted(source: Mapping[str, str], overrides: Mapping[str, str]) -> dict[str, str]:
    """What to make a target with. ``source``: the settings of the source topic; ``overrides``: the user's."""
    return {**{name: source[name] for name in KEPT if name in source}, **CHANGED, **overrides}


def check(topic: str, source: Mapping[str, str], target: Mapping[str, str]) -> None:
    """Raises TopicError (EOS_MIRROR_TARGET_SETTINGS) for settings of a target under which rows would be refused,
    changed, or deleted that the source keeps."""
    if target.get("message.timestamp.type") == "LogAppendTime":
        raise _unfit(topic, "message.timestamp.type", "LogAppendTime", "CreateTime", "timestamps would be lost")
    if "compact" in target.get("cleanup.policy", "") and "compact" not in source.get("cleanup.policy", ""):
        why = "rows without a key would be refused, and of the others only the newest kept for each key"
        raise _unfit(topic, "cleanup.policy", target["cleanup.policy"], source.get("cleanup.policy", "delete"), why)
    check_numbers(topic, {name: value for name, value in target.items() if name == "max.message.bytes"})
    ours, theirs = (int(of.get("max.message.bytes", 0)) for of in (target, source))
    if ours < theirs:
        raise _unfit(topic, "max.message.bytes", str(ours), f"at least {theirs}", "the source may hold larger batches")


def not_numbers(settings: Mapping[str, str]) -> list[str]:
    """The names of settings that take a whole number, and have none."""
    return [name for name, value in settings.items() if name.endswith(_NUMBERS) and not re.fullmatch(r"-?\d+", value)]


def check_numbers(topic: str, overrides: Mapping[str, str]) -> None:
    """Raises TopicError (EOS_MIRROR_TARGET_SETTINGS) for the first of `not_numbers`."""
    for name in not_numbers(overrides):
        raise _unfit(topic, name, overrides[name], "a whole number", "brokers would refuse it")


def _unfit(topic: str, setting: str, has: str, needed: str, why: str) -> EosError:
    return stop("EOS_MIRROR_TARGET_SETTINGS.setting", topic=topic, setting=setting, value=has, why=why, needed=needed)


def retention_ms(target: Mapping[str, str]) -> int | None:
    """For how long a target keeps rows; None for ever."""
    age = int(target.get("retention.ms", -1))
    return age if age >= 0 and "delete" in target.get("cleanup.policy", "delete") else None
