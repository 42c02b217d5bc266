"""Answers of a registry that has Confluent's API, and what is in them beside schemas."""

from __future__ import annotations

import base64
import json
import re
import time
from urllib.parse import quote, urlencode

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from spark_eos.errors import EosError, OptionError
from spark_eos.pipelines.registry import schemas, wire
from spark_eos.pipelines.registry.client import _hidden, registry_of
from spark_eos.pipelines.registry.decoding import reading
from spark_eos.pipelines.registry.encoding import schema_given, writing
from spark_eos.pipelines.registry.schemas import Schema
from spark_eos.pipelines.registry.settings import registry_settings
from tests.support.judges.conditions import raises
from tests.support.servers.fake_registry import FakeRegistry, fake_registry

ORDER = '{"type": "object", "properties": {"id": {"type": "integer"}}}'


@pytest.fixture
def registry():
    """With one schema, of one subject."""
    with fake_registry({7: ORDER}, {"orders-value": 7}) as running:
        yield running
    registry_of.cache_clear()


SECRETS = st.text(alphabet="a/+%ä&\\'\"\n ✈", min_size=3, max_size=6).filter(str.strip)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SECRETS, st.sampled_from(["pw", "id"]))
@example("sec/ret+p%w", "pw")
@example("pä'\\ss", "pw")
@example("pä\"'ss", "pw")
def test_what_a_server_repeats_shows_no_secret(registry, secret, kind):
    """As it is, as it was sent, in JSON and not, for the user's password and the client's secret."""
    secret = secret.strip()
    given = {"basic.auth.user.info": f"user:{secret}"}
    pair = f"user:{secret}"
    if kind == "id":
        given = {"bearer.auth.credentials.source": "OAUTHBEARER", "bearer.auth.client.id": "me"}
        given |= {"bearer.auth.client.secret": secret}
        pair = f"me:{secret}"
    asked = registry_settings({"url": registry.url, **given})
    encoded = base64.b64encode(pair.encode()).decode()
    texts = [secret, pair, encoded, quote(secret), quote(secret, safe=""), urlencode({"s": secret}), json.dumps(secret)]
    for text in texts:
        body = f"<{text}>"
        for raw in (body, f"'{body}", f'"{body}', f"'\"{body}"):
            for one in (raw, repr(raw), repr(raw.encode())):
                shown = _hidden(ValueError(one), asked)
                left = shown[shown.index("<") : shown.rindex(">") + 1].replace("***", "")
                assert re.sub(r"(user|me)(:|%3A)|[\\\\\"]|s=", "", left) == "<>", (text, one)


def test_a_token_that_a_server_repeats_is_not_shown():
    """Though no setting has it, as another server gave it."""
    shown = _hidden(ValueError("{'a': 'Bearer ey.J-w_t', \"b\": \"bearer x+/=\"}"), registry_settings("http://h"))
    assert shown == "{'a': 'Bearer ***', \"b\": \"bearer ***\"}"


def rules(mode: str, phase: str = "domainRules", **more: object) -> dict[str, object]:
    rule = {"name": "pii", "kind": "TRANSFORM", "mode": mode, "type": "ENCRYPT", "tags": ["PII"], **more}
    return {"ruleSet": {phase: [rule]}}


@pytest.mark.parametrize(
    ("answer", "reads", "writes"),
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
def test_a_schema_whose_rules_would_have_to_be_applied_is_refused(registry, answer, reads, writes):
    """At the start, for what the rule is for: else plain text would be written where Confluent encrypts it."""
    registry.more = answer
    asked = registry_settings(registry.url)
    schema = schema_given(asked, "JSON", ORDER)
    for fits, ask in (
        (reads, lambda: reading(asked, "orders-value")),
        (writes, lambda: writing(asked, None, topic="orders")),
        (writes, lambda: writing(asked, schema, topic="orders")),
        (writes, lambda: writing(asked, schema, topic="orders", auto_register=False)),
    ):
        if fits:
            ask()
            continue
        with raises("EOS_REGISTRY_SCHEMA.rules", "rule 'pii'"):
            ask()


def test_a_value_whose_writer_had_such_a_rule_is_bad(registry):
    """What it holds is encrypted."""
    decoding = reading(registry_settings(registry.url), "orders-value")
    registry.schemas[8], registry.more = ORDER, rules("WRITEREAD")
    found = decoding.decode(pa.array([wire.prefix(8) + b"{}"], pa.binary()))
    assert "rule 'pii'" in found.bad[0]


GUID = b"\1" + bytes(16)
#: Confluent's answer about a subject that the user may not read; one of a proxy has another code, or none.
DENIED = (403, 40301)


@pytest.mark.parametrize("header", [None, wire.prefix(8), GUID])
def test_what_the_registry_refuses_to_say_of_one_schema_says_nothing_of_the_registry(registry, header):
    """Any producer may name a schema that this user may not see, or a GUID where the registry has none of them."""
    decoding = reading(registry_settings(registry.url), "orders-value")
    registry.schemas[8], registry.refused = ORDER, {8: DENIED}
    values = pa.array([wire.prefix(7) + b"{}", b"{}" if header else wire.prefix(8) + b"{}"], pa.binary())
    pairs = [None, header and [{"key": wire.VALUE_HEADER, "value": header}]]
    headers = pa.array(pairs, pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})))
    assert "the registry does not show" in decoding.decode(values, headers).bad[1]
    for registry.refused in ({7: DENIED, 8: DENIED}, {8: (401, 40101)}, {8: (403, 403)}):
        registry_of.cache_clear()
        with raises("EOS_REGISTRY_UNAUTHORIZED"):
            registry_of(decoding.settings).schema(8, decoding.registered)


def test_a_registry_that_was_made_anew_is_noticed_by_a_schema_that_is_found(registry):
    """Its id had another meaning when the values were written."""
    asked = registry_of(registry_settings(registry.url))
    reader = asked.version("orders-value", 1)
    with registry.anew({7: ORDER.replace("id", "di"), 8: ORDER}):
        for _ in range(2):
            with raises("EOS_REGISTRY_CHANGED.version"):
                asked.schema(8, reader)
    registry.schemas[8] = ORDER
    assert asked.schema(8, reader).text == ORDER


def test_many_unknown_ids_ask_for_the_reader_s_schema_rarely(registry):
    """A producer may write a new one with each record: once in a second."""
    asked = registry_of(registry_settings(registry.url))
    reader = asked.version("orders-value", 1)
    begin = time.monotonic()
    for id_ in range(100, 150):
        with raises("EOS_REGISTRY_NOT_FOUND.schema"):
            asked.schema(id_, reader)
    assert 1 <= registry.asked[7] <= 1 + time.monotonic() - begin


@pytest.mark.parametrize("id_", [2, 2**31 - 1, 2**31, 2**32 - 1])
def test_every_number_that_is_no_id_is_unknown(registry, id_):
    """Bytes that begin with 0 by chance may have any. Of more than 31 bits, a registry does not take it for an id."""
    with raises("EOS_REGISTRY_NOT_FOUND.schema"):
        registry_of(registry_settings(registry.url)).schema(id_)


def test_a_schema_refers_to_what_is_deleted(registry):
    """As with Confluent's client, unless it is gone for good: then values that were written with it are malformed."""
    asked = registry_of(registry_settings(registry.url))
    reader = asked.version("orders-value", 1)
    registry.schemas[8], registry.versions["used"], registry.deleted = ORDER, 8, {"used"}
    registry.schemas[9], registry.references[9] = ORDER, [{"name": "used.json", "subject": "used", "version": 1}]
    assert [one.subject for one in asked.schema(9, reader).references] == ["used"]
    with raises("EOS_REGISTRY_NOT_FOUND"):
        asked.version("used", 1)
    registry_of.cache_clear()
    del registry.versions["used"]
    with raises("EOS_REGISTRY_NOT_FOUND.schema"):
        registry_of(registry_settings(registry.url)).schema(9, reader)


def test_the_names_of_a_subject_s_schemas_are_asked_for_once_each(registry):
    """Of all versions, and of the one that is given where the subject is gone."""
    asked = registry_of(registry_settings(registry.url))
    registered = asked.version("orders-value", 1)
    registry.more = {"guid": "a-guid"}
    assert asked.names(registered) == {"7", "a-guid"}
    registry.more, registry.schemas = {}, {}
    assert asked.names(registered) == {"7", "a-guid"}
    registry.versions = {}
    assert asked.names(registered) == {"7"}


@pytest.mark.parametrize(
    "reference",
    [
        {"name": "a", "subject": "orders-value"},
        {"name": "a", "version": 1},
        {"subject": "orders-value", "version": 1},
        {"name": "a", "subject": "orders-value", "version": "latest"},
        "orders-value",
    ],
)
def test_a_reference_that_lacks_a_part_is_refused_by_name(registry, reference):
    """Before the registry is asked; a version may be text."""
    asked = registry_settings(registry.url)
    whole = {"name": "a", "subject": "orders-value", "version": "1"}
    with pytest.raises(OptionError, match="'references'"):
        schema_given(asked, "JSON", ORDER, [whole, reference])
    assert [one.version for one in schema_given(asked, "JSON", ORDER, [whole]).references] == [1]


@pytest.mark.parametrize(
    ("status", "code", "entry", "says"),
    [
        (409, 409, "EOS_REGISTRY_INCOMPATIBLE", "as it is not compatible"),
        (422, 42201, "EOS_REGISTRY_INCOMPATIBLE", "as it is not valid"),
        (422, 422, "EOS_REGISTRY_INCOMPATIBLE", "as it is not valid"),  # Apicurio
        (422, 44302, "EOS_REGISTRY_INCOMPATIBLE", "as it is not valid"),  # Karapace: no references
        (422, 42205, "EOS_REGISTRY_INCOMPATIBLE", "as it is not permitted"),  # read-only
        (422, 42208, "EOS_REGISTRY_INCOMPATIBLE", "as it is not permitted"),
        (422, 42202, "EOS_REGISTRY_NOT_FOUND.answer", "no such version"),
    ],
)
def test_a_refusal_is_told_by_its_code(registry, status, code, entry, says):
    """Confluent's, which others have as well; to register a schema, or only to look for one."""
    asked = registry_of(registry_settings(registry.url))
    registry.refused_all = status, code
    with raises(entry, says):
        asked.register("orders-value", Schema("JSON", ORDER))
    with pytest.raises(EosError) as caught:
        asked.schema(7)
    assert code == 409 or caught.value.condition != "EOS_REGISTRY_INCOMPATIBLE"


BY_ID, BY_VERSION = "schema", "version"


@pytest.mark.parametrize(
    ("by", "answer"),
    [
        (BY_ID, {"schema": None}),
        (BY_ID, {"schema": {"type": "string"}}),
        (BY_ID, {"schema": 5}),
        (BY_ID, {"references": [{"name": "x"}]}),
        (BY_ID, {"references": [{"name": "x", "subject": "y", "version": "1"}]}),
        (BY_ID, {"references": "abc"}),
        (BY_ID, {"ruleSet": {"domainRules": "abc"}}),
        (BY_ID, {"ruleSet": []}),
        (BY_VERSION, {"schema": None}),
        (BY_VERSION, {"version": 2}),
        (BY_VERSION, {"version": "1"}),
        (BY_VERSION, {"version": None}),
        (BY_VERSION, {"version": True}),
        (BY_VERSION, {"id": "7"}),
        (BY_VERSION, {"id": None}),
    ],
)
def test_an_answer_of_another_form_is_refused(registry, by, answer):
    """And not kept, so that the next one may be right."""
    asked = registry_of(registry_settings(registry.url))
    registry.more = answer
    ask = (lambda: asked.schema(7)) if by == BY_ID else (lambda: asked.version("orders-value", 1))
    with raises("EOS_REGISTRY_ANSWER"):
        ask()
    registry.more = {}
    ask()


class References(FakeRegistry):
    """Has the schema 0, and others that refer twice to the one before, or, from 10,000 on, to all in between."""

    def _schema(self, id_: int) -> dict[str, object]:
        if id_ >= 10_000:
            used = [f"s{number}" for number in range(10_001, id_)] if id_ == 10_150 else []
        else:
            used = [f"s{id_ - 1}"] * 2 if id_ else []
        references = [{"name": f"{n}-{subject}", "subject": subject, "version": 1} for n, subject in enumerate(used)]
        return {"schema": '{"type":"integer"}', "schemaType": "JSON", "references": references}


@pytest.mark.parametrize(
    ("id_", "what"),
    [(40, None), (60, "more than 50 references that lead to one another"), (10_150, "more than 100 references")],
)
def test_schemas_that_use_each_other_are_asked_for_once_and_not_without_end(monkeypatch, id_, what):
    """On the driver they are refused by name, in a task the values that were written with them are malformed."""
    monkeypatch.setattr(schemas, "MOST_REFERENCES", 100)
    subjects = {f"s{number}": number for number in [*range(61), *range(10_000, 10_151)]}
    registry = References(dict.fromkeys(subjects.values(), ""), subjects)
    registry.open()
    try:
        asked = registry_settings(registry.url)
        found = reading(asked, "s0").decode(pa.array([b"\0" + id_.to_bytes(4, "big") + b"7", b"\0\0\0\0\0" + b"8"]))
        assert found.rows.to_pylist() == [None if what else 7, 8]
        assert (what or "") in found.bad.get(0, "") and found.bad.keys() == ({0} if what else set())
        if what:
            with raises("EOS_REGISTRY_SCHEMA.large", what):
                reading(asked, f"s{id_}")
        else:
            assert reading(asked, f"s{id_}").type == pa.int64()
    finally:
        registry.close()
