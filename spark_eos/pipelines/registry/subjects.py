"""Names of subjects, by Confluent's subject name strategies."""

from __future__ import annotations

from typing import Literal

from spark_eos.errors import missing_option

Strategy = Literal["topic", "record", "topic-record"]


def subject_name(
    subject: str | None,
    topic: str | None,
    strategy: Strategy = "topic",
    *,
    record: str | None = None,
    key: bool = False,
) -> str:
    """Return ``subject`` if there is one; else, by the ``strategy``, ``TOPIC-key`` or ``TOPIC-value`` (``topic``), the
    full name of the ``record``, or ``TOPIC-RECORD``. Raises OptionError where the topic or the record is missing."""
    if subject is not None:
        return subject
    if strategy != "record" and topic is None:
        raise missing_option(
            "subject",
            "neither a subject of the schema registry nor a topic is given",
            "the subject, or set 'topic' for the subject TOPIC-value (of keys: TOPIC-key)",
        )
    if strategy == "topic":
        return f"{topic}-{'key' if key else 'value'}"
    if record is None:
        raise missing_option(
            "subject",
            f"the record is to name it ('{strategy}'), but this schema has no record with a name",
            "the subject, or name it by the topic",
        )
    return record if strategy == "record" else f"{topic}-{record}"
