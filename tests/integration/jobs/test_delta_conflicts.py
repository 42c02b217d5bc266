"""Delta's exceptions have names by their classes, whatever their texts say."""

from __future__ import annotations

import pytest

from tests.support.tables.delta import DeltaSpark, session

SAID = "Somebody was faster."


def condition_of(name: str, wrapped: bool) -> str | None:
    """In the process: what `named` makes of Delta's exception of this class, as py4j brings it to Python."""
    import delta.tables  # noqa: F401  # as merges do; it has Delta's exceptions known by their classes
    from pyspark.errors.exceptions.captured import convert_exception

    from jobs.delta.errors import named

    jvm = session()._jvm
    thrown = getattr(jvm.io.delta.exceptions, name)(SAID)
    error = convert_exception(jvm.java.lang.RuntimeException("The query has failed.", thrown) if wrapped else thrown)
    found = named(error)
    return found.condition if found else None


@pytest.mark.parametrize("wrapped", [False, True], ids=["itself", "as a cause"])
def test_exceptions_without_a_condition_in_their_text(wrapped: bool, delta: DeltaSpark) -> None:
    """Conflicts with other writers, and with another run of the same query; all others keep their own words."""
    conflicts = ("ConcurrentAppendException", "ConcurrentDeleteReadException", "ConcurrentWriteException")
    for name in (*conflicts, "MetadataChangedException", "ProtocolChangedException"):
        assert delta(condition_of, name, wrapped) == "EOS_DELTA_CONFLICT"
    assert delta(condition_of, "ConcurrentTransactionException", wrapped) == "EOS_TABLE_TWO_QUERIES"
