"""Answers of a registry that has Confluent's API, and what is in them beside schemas."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_eos.errors import EosError
from spark_eos.registry import wire
from spark_eos.registry.client import registry_of
from spark_eos.registry.decoding import reading
from spark_eos.registry.encoding import schema_given, writing
from spark_eos.registry.settings import registry_settings
from tests.support.fake_registry import fake_registry

ORDER = '{"type": "object", "properties": {"id": {"type": "integer"}}}'


@pytest.fixture
def registry():
    """With one schema, of one subject."""
    with fake_registry({7: ORDER}, {"orders-value": 7}) as running:
        yield running
    registry_of.cache_clear()


def rules(mode: str, phase: str = "domainRules", **more: object) -> dict[str, object]:
    rule = {"name": "pii", "kind": "TRANSFORM", "mode": mode, "type": "ENCRYPT", "tags": ["PII"], **more}
    return {"ruleSet": {phase: [rule]}}


@pytest.mark.parametrize(
    ("given", "reads", "writes"),
    [
        (rules("WRITEREAD"), False, False),
        (rules("WRITEREAD", disabled=True), True, True),
        (rules("WRITEREAD", "encodingRules"), False, False),
        (rules("WRITE"), True, False),
        (rules("WRITE", kind="CONDITION"), True, False),
        (rules("READ"), False, True),
        (rules("UPGRADE", "migrationRules"), False, True),
        ({"ruleSet": {}}, True, True),
        ({}, True, True),
    ],
)
def test_a_schema_whose_rules_would_have_to_be_applied_is_refused(registry, given, reads, writes):
    """At the start, for what the rule is for: else plain text would be written where Confluent encrypts it."""
    registry.more = given
    settings = registry_settings(registry.url)
    for fits, ask in (
        (reads, lambda: reading(settings, "orders-value")),
        (writes, lambda: writing(settings, None, topic="orders")),
        (writes, lambda: writing(settings, schema_given(settings, "JSON", ORDER), topic="orders")),
        (writes, lambda: writing(settings, schema_given(settings, "JSON", ORDER), topic="orders", auto_register=False)),
    ):
        if fits:
            ask()
            continue
        with pytest.raises(EosError, match="rule 'pii'") as caught:
            ask()
        assert caught.value.entry == "EOS_REGISTRY_SCHEMA.rules"


def test_a_value_whose_writer_had_such_a_rule_is_bad(registry):
    """What it holds is encrypted."""
    decoding = reading(registry_settings(registry.url), "orders-value")
    registry.schemas[8], registry.more = ORDER, rules("WRITEREAD")
    found = decoding.decode(pa.array([wire.prefix(8) + b"{}"], pa.binary()))
    assert "rule 'pii'" in found.bad[0]
