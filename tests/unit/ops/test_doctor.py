"""What the doctor says of topics and clusters that it is told of; and how findings are printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import pytest
import typer

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.cli.doctor import seconds
from spark_eos.errors import EosError, stop
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.errors import refusal
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.ops.answer import Answer, duration
from spark_eos.ops.doctor import brokers, checkup, sink_checks, topics
from spark_eos.ops.doctor.brokers import ClusterFacts
from spark_eos.ops.doctor.findings import (
    Finding,
    PlannedQuery,
    Severity,
    Tools,
    as_json,
    as_text,
    exit_code,
    in_order,
)
from spark_eos.ops.doctor.topics import TopicFacts
from spark_eos.ops.table_state import in_words
from spark_eos.options.parse import SinkOptions
from spark_eos.options.table import DEFAULT_LEDGER_TOPIC
from spark_eos.source.schema import arrow_schema
from tests.support.tables.table_kinds import KINDS, Delta

TOOLS = Tools("h:1")
SCHEMA = arrow_schema(include_headers=False)
WEEK_S = 7 * 86400
WELL = {
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "retention.ms": str(30 * 86400 * 1000),
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
    "max.message.bytes": "1000000",
    "message.timestamp.type": "CreateTime",
}
BROKER = {
    "transaction.max.timeout.ms": "900000",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
    "transactional.id.expiration.ms": str(WEEK_S * 1000),
    "offsets.retention.minutes": str(WEEK_S // 60),
}


def topic(replicas: int = 3, in_sync: int | None = None, readable: bool = True, **changed: str) -> TopicFacts:
    """Of two partitions."""
    config = WELL | {key.replace("__", "."): value for key, value in changed.items()} if readable else None
    here = replicas if in_sync is None else in_sync
    return TopicFacts("t", (tuple(range(replicas)),) * 2, (replicas, here), config)


def cluster(brokers: int = 3, level: int = 2, before_4_1: tuple[int, ...] = (), **changed: str) -> ClusterFacts:
    config = BROKER | {key.replace("__", "."): value for key, value in changed.items()}
    return ClusterFacts(tuple(range(brokers)), dict.fromkeys(range(brokers), config), level, before_4_1)


def worst(findings: Iterable[Finding]) -> dict[str, str]:
    """What is not well, by check; what is not has to say why."""
    found = [finding for finding in findings if finding.severity is not Severity.OK]
    assert all(finding.why for finding in found)
    return {finding.check: finding.severity.value for finding in found}


@pytest.mark.parametrize(
    ("given", "brokers", "expected"),
    [
        (topic(), 3, {}),
        (topic(1), 3, {"replication": "error"}),
        (topic(1, min__insync__replicas="1"), 1, {"replication": "warning"}),
        (topic(min__insync__replicas="1"), 3, {"min.insync.replicas": "error"}),
        (topic(2), 3, {"min.insync.replicas": "warning"}),
        (topic(in_sync=1), 3, {"min.insync.replicas": "error"}),
        (topic(unclean__leader__election__enable="true"), 3, {"unclean.leader.election.enable": "error"}),
        (topic(readable=False), 3, {"settings": "unknown"}),
    ],
    ids=["well", "one replica", "one broker", "one in sync is enough", "none may be away", "away", "unclean", "?"],
)
def test_durability(given, brokers, expected):
    """An error wherever one broker's end can take what was acknowledged; a warning where nothing better is possible."""
    assert worst(topics.durability("output", given, cluster(brokers), TOOLS)) == expected


BOTH = {"cleanup.policy": "warning", "retention": "error"}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, {}),
        ({"retention__ms": "-1"}, {}),
        ({"retention__ms": "60000"}, {"retention": "error"}),
        ({"retention__ms": "86400000"}, {"retention": "warning"}),
        ({"retention__ms": "-1", "retention__bytes": "1000"}, {"retention": "warning"}),
        ({"retention__ms": "60000", "retention__bytes": "1000"}, {"retention": "error"}),
        ({"cleanup__policy": "compact", "retention__ms": "60000"}, {"cleanup.policy": "warning"}),
        ({"cleanup__policy": "compact,delete", "retention__ms": "60000"}, BOTH),
        ({"message__timestamp__type": "LogAppendTime"}, {"message.timestamp.type": "warning"}),
    ],
)
def test_an_output(changed, expected):
    """Rows that are deleted while their transaction is open are lost: an error."""
    assert worst(topics.of_an_output(topic(**changed), 900_000, WEEK_S, TOOLS)) == expected


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, {}),
        ({"retention__ms": "3600000"}, {"retention": "error"}),
        ({"retention__bytes": "1000"}, {"retention": "warning"}),
        ({"cleanup__policy": "compact", "retention__ms": "1"}, {}),
    ],
)
def test_an_input(changed, expected):
    """Rows have to be there after the longest stop."""
    assert worst(topics.of_an_input(topic(**changed), WEEK_S, TOOLS)) == expected


def test_an_output_that_takes_less_than_the_input():
    """The command raises it to what the input has."""
    large = topic(max__message__bytes="2000000")
    (found,) = topics.sizes([large], TopicFacts("small", ((0,),), (1,), WELL), TOOLS)
    assert found.severity is Severity.WARNING
    assert found.fix == (TOOLS.set_of_topic("small", "max.message.bytes=2000000"),)
    assert worst(topics.sizes([topic()], large, TOOLS)) == {}


@pytest.mark.parametrize(
    ("given", "own", "expected"),
    [
        (cluster(), "__transaction_state", {}),
        (cluster(transaction__state__log__min__isr="1"), "__transaction_state", {"replication": "error"}),
        (cluster(offsets__topic__replication__factor="1"), "__consumer_offsets", {"replication": "error"}),
        (cluster(1, offsets__topic__replication__factor="1"), "__consumer_offsets", {"replication": "warning"}),
        (ClusterFacts((0,), None, 2, ()), "__consumer_offsets", {}),
    ],
)
def test_the_brokers_own_topics_by_their_settings(given, own, expected):
    """Where the topics cannot be seen; where the settings cannot either, another finding says so."""
    assert worst(brokers.internal_topic(own, given)) == expected


def test_versions():
    """What is worked around is told with the upgrade that ends it."""
    assert worst(brokers.versions(cluster(), TOOLS)) == {}
    found = list(brokers.versions(cluster(level=1), TOOLS))
    assert worst(found) == {"transaction.version": "warning"}
    assert found[0].fix == ("kafka-features.sh --bootstrap-server h:1 upgrade --feature transaction.version=2",)
    (old,) = [f for f in brokers.versions(cluster(level=0, before_4_1=(1,)), TOOLS) if f.fix]
    assert old.fix[0].startswith("# with Kafka 4.0 or newer: kafka-features.sh")
    assert worst(brokers.versions(cluster(before_4_1=(1,)), TOOLS)) == {"versions": "warning"}
    assert worst(brokers.versions(cluster(level=0, before_4_1=(1,)), TOOLS)) == {"transaction.version": "warning"}


def test_timeouts():
    """A transaction that expires while a broker restarts has to be repaired; one that never expires does not."""
    assert worst(brokers.timeouts(900_000, two_phase=False)) == {}
    assert worst(brokers.timeouts(10_000, two_phase=False)) == {"transaction.timeout.ms": "warning"}
    assert list(brokers.timeouts(10_000, two_phase=True)) == []


def retained(seen: ClusterFacts, stop_s: float, group: str | None) -> list[Finding]:
    return [*brokers.ids_retention(seen, stop_s), *brokers.offsets_retention(seen, stop_s, group)]


def test_the_broker_that_forgets_first_counts():
    """Against the longest stop; offsets matter where the query has a group."""
    assert worst(retained(cluster(), WEEK_S, "g")) == {}
    found = worst(retained(cluster(), WEEK_S + 60, "g"))
    assert found == {"transactional.id.expiration.ms": "warning", "offsets.retention.minutes": "error"}
    assert worst(retained(cluster(), WEEK_S + 60, None))["offsets.retention.minutes"] == "warning"
    one = ClusterFacts((0, 1), {0: BROKER, 1: BROKER | {"offsets.retention.minutes": "1"}}, 2, ())
    assert worst(retained(one, 3600, "g")) == {"offsets.retention.minutes": "error"}


def test_the_worst_comes_first_and_decides_the_exit_code():
    """Errors, then what is unknown; warnings do not count."""
    found = [Finding(s.value, "x", s, "w", "because", ("# do",)) for s in reversed(Severity)]
    assert [f.severity.value for f in in_order(found)] == ["error", "unknown", "warning", "ok"]
    told = as_text(found)
    assert told.index("error") < told.index("ok ")
    assert "1 error(s), 1 unknown, 1 warning(s), 1 ok" in told
    codes = [exit_code([f for f in found if f.severity in some]) for some in (Severity, ["unknown", "ok"], ["warning"])]
    assert codes == [1, 2, 0]
    assert [f["check"] for f in as_json(found)["findings"]] == ["error", "unknown", "warning", "ok"]


def test_times_as_people_say_them():
    """Both ways."""
    assert [seconds(text) for text in ("90s", "30min", "1.5h", "7 d")] == [90, 1800, 5400, WEEK_S]
    assert [duration(s) for s in (0.0031, 90, 7200, WEEK_S)] == ["3.1 ms", "1.5 min", "2 h", "7 d"]
    for wrong in ("a week", "9" * 400 + "d"):
        with pytest.raises(typer.BadParameter):
            seconds(wrong)


KAFKA = KafkaProperties({"bootstrap.servers": "h:1"})
QUERY = PlannedQuery(
    BrokerClient(KAFKA),
    SinkOptions(KAFKA, topic="copies", dead_letters="letters", transaction_timeout_ms=900_000),
    ["flights"],
    ["copies"],
    86_400.0,
    "User:x",
)

NO_TOPICS: Mapping[str, TopicFacts] = {}


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer]:
    """``looked(topics, seen, query)``: a checkup where all topics are well but for these, by name; None is missing, and
    an error is raised. The sink's own checks find nothing wrong, apart from those of the transactions' length, and of a
    ledger with errors."""

    def looked(
        topics: Mapping[str, TopicFacts | EosError | None] = NO_TOPICS,
        seen: ClusterFacts | None = None,
        query: PlannedQuery = QUERY,
    ) -> Answer:
        def facts(name: str) -> TopicFacts | None:
            known = topics.get(name, topic())
            if isinstance(known, EosError):
                raise known
            return known

        monkeypatch.setattr(checkup, "topic_facts", lambda client, name: facts(name))
        monkeypatch.setattr(checkup, "cluster_facts", lambda client: seen or cluster())
        monkeypatch.setattr(sink_checks, "check_ledger", lambda client, name, broker: facts(name))
        return checkup.doctor(query)

    checks = ("client", "input", "output", "brokers", "dead_letters", "two_phase", "group")
    for check in (*(f"check_{name}" for name in checks), "init_producer_id"):
        monkeypatch.setattr(sink_checks, check, lambda *asked, **how: None)
    return looked


def of_answer(answer: Answer, severity: str) -> list[tuple[str, str]]:
    """Check and subject of the findings with this severity."""
    return [(f["check"], f["subject"]) for f in answer.data["findings"] if f["severity"] == severity]


def test_what_may_not_be_described_is_not_missing(looked):
    """The sink's check of the ledger tells what its start would; other refusals are unknown."""
    unreadable = stop("EOS_UNAUTHORIZED", operation="READ the ledger", rights="READ")
    found = looked({DEFAULT_LEDGER_TOPIC: unreadable, "flights": refusal("h:1", "flights", 42, 1.0)})
    assert ("ledger", f"ledger {DEFAULT_LEDGER_TOPIC}") in of_answer(found, "error")
    assert ("settings", "topic flights") in of_answer(found, "unknown")
    assert found.code == 1
    missing = looked({DEFAULT_LEDGER_TOPIC: None})
    assert ("ledger", f"ledger {DEFAULT_LEDGER_TOPIC}") in of_answer(missing, "warning")


def to_table(sink: dict[str, str], group: str | None = None, **storage: str) -> PlannedQuery:
    """A query that writes to one table alone. ``sink``: its options, those of the catalog among them."""
    catalog = {name: value for name, value in sink.items() if name.startswith("catalog.")}
    tables = [{name: value for name, value in sink.items() if name not in catalog}]
    options = replace(QUERY.options, topic=None, dead_letters=None, group_id=group)
    return replace(QUERY, options=options, outputs=[], tables=tables, storage=HadoopSettings(catalog | storage))


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_query_to_a_table_has_no_ledger_and_no_transactions(looked, tmp_path, kind, is_there):
    """The table is asked, and the cluster for what the query reads and commits there."""
    table = KINDS[kind](tmp_path / "kind")
    if is_there:
        table.place().target(SCHEMA, create=True)
    answer = looked(query=to_table(table.sink(), "g"))
    (found,) = (f for f in answer.data["findings"] if f["check"] == "table")
    assert (answer.code, found["severity"], "does not exist yet" in found["what"]) == (0, "ok", not is_there)
    assert found["subject"] == f"output {in_words(table.sink())}"
    assert {f["check"] for f in answer.data["findings"]} == {
        *("table", "client", "rights", "group", "offsets.retention.minutes"),
        *("retention", "replication", "min.insync.replicas", "unclean.leader.election.enable"),
    }
    assert "ledger" not in answer.text
    assert table.is_there() == is_there


def test_settings_of_brokers_that_a_query_to_a_table_does_not_need(looked, tmp_path):
    """Without a group, nothing of it is kept by them."""
    for group, unknown in ((None, []), ("g", [("settings", "brokers")])):
        found = looked(seen=replace(cluster(), config=None), query=to_table(Delta(tmp_path).sink(), group))
        assert of_answer(found, "unknown") == unknown


def test_a_table_that_cannot_be(looked, tmp_path):
    """By the error of the start; a catalog that does not answer, and a library that is missing, are unknown."""
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "notes.txt").write_text("of somebody else")
    away = {"format": "iceberg", "table": "a.b", "catalog.type": "rest", "catalog.uri": "http://127.0.0.1:1"}
    for sink, severity, condition in (
        (Delta(tmp_path).sink(), "error", "EOS_DELTA_NO_TABLE"),
        (away, "unknown", "EOS_ICEBERG_UNREACHABLE"),
    ):
        answer = looked(query=to_table(sink))
        (found,) = (f for f in answer.data["findings"] if f["check"] == "table")
        assert (found["severity"], found["condition"]) == (severity, condition)
        assert found["why"] and answer.code == (1 if severity == "error" else 2)


@pytest.mark.parametrize(
    ("role", "name"), [("input", "flights"), ("output", "copies"), ("dead letters", "letters")], ids=lambda part: part
)
def test_every_topic_outlives_a_broker(looked, role, name):
    """Those that are read, too."""
    weak = topic(1, min__insync__replicas="1", unclean__leader__election__enable="true")
    wrong = {("replication", f"{role} t"), ("unclean.leader.election.enable", f"{role} t")}
    assert set(of_answer(looked({name: weak}), "error")) == wrong
    assert of_answer(looked({name: topic(readable=False)}), "unknown") == [("settings", f"{role} t")]


def test_dead_letters_are_kept_until_they_are_committed(looked):
    """They are in the same transactions."""
    found = looked({"letters": topic(retention__ms="60000")})
    assert of_answer(found, "error") == [("retention", "dead letters t")]


@pytest.mark.parametrize("at", [0, 1])
def test_the_broker_that_allows_the_shortest_transactions_counts(looked, at):
    """Each may be the coordinator of a transaction."""
    config = {node: BROKER | ({"transaction.max.timeout.ms": "60000"} if node == at else {}) for node in (0, 1)}
    assert of_answer(looked(seen=ClusterFacts((0, 1), config, 2, ())), "error") == [
        ("transaction.max.timeout.ms", "query")
    ]


@pytest.mark.parametrize(
    ("facts", "state", "wrong"),
    [
        (topic(), {}, []),
        (topic(2), {}, ["min.insync.replicas", "replication"]),
        (topic(4), {"transaction__state__log__min__isr": "3"}, ["min.insync.replicas"]),
    ],
    ids=["well", "fewer replicas", "fewer in sync"],
)
def test_a_ledger_that_is_less_durable_than_the_coordinators_state(looked, facts, state, wrong):
    """A query only has a warning in its log."""
    found = looked({DEFAULT_LEDGER_TOPIC: facts}, cluster(4, **state))
    assert sorted(of_answer(found, "warning")) == [(check, "ledger t") for check in wrong]


def test_what_settings_would_tell_is_unknown_without_them(looked):
    """Before transaction.version 2, a setting says whether brokers reject late batches. One says how long transactions
    may be, whatever the version."""
    for level, unknown in ((2, []), (1, [("late batches", "brokers")])):
        found = looked(seen=replace(cluster(level=level), config=None))
        assert sorted(of_answer(found, "unknown")) == sorted([("settings", "brokers"), *unknown])
        assert ("transaction.max.timeout.ms", "query") not in of_answer(found, "ok")
    both = replace(QUERY, options=replace(QUERY.options, two_phase=True))
    found = looked(seen=replace(cluster(), config=None), query=both)
    assert ("two-phase commit", "brokers") in of_answer(found, "unknown")


@pytest.mark.parametrize("stop_s", [90.0, 3_600.0, 0.0015])
def test_what_mends_a_time_is_not_too_short(stop_s):
    """Settings are whole minutes and milliseconds."""
    short = {"transactional__id__expiration__ms": "1", "offsets__retention__minutes": "1"}
    fixes = {f.check: f.fix[0].rpartition("=")[2] for f in retained(cluster(**short), stop_s, "g") if f.fix}
    fixed = {name.replace(".", "__"): value for name, value in fixes.items()}
    assert worst(retained(cluster(**short | fixed), stop_s, "g")) == {}
    weak = topic(retention__ms="1")
    for judge in (
        lambda t: topics.of_an_input(t, stop_s, TOOLS),
        lambda t: topics.retention("output", t, 1, stop_s, TOOLS),
    ):
        (finding,) = judge(weak)
        assert worst(judge(topic(retention__ms=finding.fix[0].rpartition("=")[2]))) == {}
