"""Checks whether a topic keeps a record, by its timestamp: brokers delete old records, read or not."""

from __future__ import annotations

from collections.abc import Mapping

from spark_eos.base import system
from spark_eos.base.caches import ttl_cache
from spark_eos.errors import stop
from spark_eos.kafka.admin.configs import topic_config
from spark_eos.kafka.net.client import BrokerClient

#: How long a topic's settings are remembered, in seconds.
_SETTINGS_S = 10.0
#: The setting for how long a topic keeps records, and how old, or how far ahead of the broker's clock, a record may be
#: when it is written; in milliseconds.
RETENTION = "retention.ms"
BEFORE, AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"

_ANY_TIME = 2**63 - 1
#: The timestamp of a record without one.
_NO_TIMESTAMP = -1


def check_age(client: BrokerClient, topic: str, oldest_ms: int | None) -> None:
    """Raise TopicError (EOS_ROWS_EXPIRED) for rows that the topic does not keep. ``oldest_ms``: the oldest timestamp;
    without one from 1970 on, brokers go by the time of their file. Raises also the errors of `topic_config`."""
    if oldest_ms is None or oldest_ms < 0:
        return
    settings, now_ms = topic_settings(client, topic), int(system.time_of_day() * 1000)
    if unfit_setting(settings, oldest_ms, now_ms) == RETENTION:
        age_s = (now_ms - oldest_ms) // 1000
        raise stop("EOS_ROWS_EXPIRED", topic=topic, age_s=age_s, retention_ms=settings[RETENTION])


@ttl_cache(_SETTINGS_S, maxsize=256)
def topic_settings(client: BrokerClient, topic: str) -> dict[str, str]:
    """Return the configuration of a topic, as of some seconds ago. Raises the errors of `topic_config`."""
    return topic_config(client, topic)


def unfit_setting(settings: Mapping[str, str], time_ms: int, now_ms: int) -> str | None:
    """Return the setting by which a topic deletes a record with this timestamp at once, or refuses it; None if it keeps
    it. Without one from 1970 on, brokers delete it by the time of their file; they refuse none for the lack of one."""
    if settings.get("message.timestamp.type") == "LogAppendTime" or time_ms == _NO_TIMESTAMP:
        return None
    age_ms = now_ms - time_ms
    kept_ms = int(settings.get(RETENTION, -1))
    if time_ms >= 0 and 0 <= kept_ms < age_ms and "delete" in settings.get("cleanup.policy", "delete"):
        return RETENTION
    limits = {BEFORE: age_ms, AFTER: -age_ms}
    return next((name for name, ms in limits.items() if ms > int(settings.get(name, _ANY_TIME))), None)
