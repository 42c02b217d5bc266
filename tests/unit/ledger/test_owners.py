"""Which prefix the transactional ids of a query have: by its head, by the ids that there are, or as it was named."""

from __future__ import annotations

import uuid

import pytest

from spark_eos.errors import EosError, KafkaError, LedgerError, ProtocolStop, Unauthorized
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.transactions import NEVER_MS
from spark_eos.ledger import owners
from spark_eos.ledger.owners import DEFAULT_PREFIX, Cluster, decided_elsewhere, find
from spark_eos.ledger.reader import LedgerReader
from spark_eos.options import table
from spark_eos.options.parse import SinkOptions
from spark_eos.protocol.head import Head, Pair
from spark_eos.protocol.names import TaskId, ledger_name, task_name
from spark_eos.protocol.ports import Description, State
from spark_eos.sink import preflight

CLIENT = BrokerClient(KafkaProperties({"bootstrap.servers": "h:1"}))
QUERY, OTHER = str(uuid.uuid4()), str(uuid.uuid4())


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What the cluster has: ``head`` is the query's, or why it cannot be read; ``ids`` are open, and never expire."""
    there: dict[str, object] = {"head": None, "ids": []}

    def read(reader: LedgerReader) -> Head | None:
        head = there["head"] if reader.query == QUERY else None
        if isinstance(head, EosError):
            raise head
        return head

    def described(client: BrokerClient, names: list[str]) -> dict[str, Description]:
        return {name: Description(Pair(name, 1, 0), State.ONGOING, 0, NEVER_MS, (("out", 0),)) for name in names}

    monkeypatch.setattr(LedgerReader, "read", read)
    monkeypatch.setattr(owners, "topic_partitions", lambda client, topics: dict.fromkeys(topics, 1))
    monkeypatch.setattr(owners, "list_ids", lambda *_: [(name, "Ongoing") for name in there["ids"]])
    monkeypatch.setattr(owners, "describe", described)
    return there


def head_of(prefix: str) -> Head:
    return Head("r", 1, (), 5, prefix=prefix)


HELD = KafkaError("EOS_LEDGER_HELD", "It is held.", hint="Wait.")


def test_the_default_is_that_of_the_option():
    """What speaks to Kafka does not know of options."""
    assert DEFAULT_PREFIX == table.DEFAULT_PREFIX


@pytest.mark.parametrize("prefix", ["team-a", "team", "spark-eos", "spark-eos-2", ""])
def test_the_head_says_it(asked, prefix):
    """Nobody has to name it; whoever names another one is refused, one that is the beginning of it among them."""
    asked["head"] = head_of(prefix)
    assert Cluster(CLIENT, "ledger").prefix_of(QUERY) == prefix
    assert Cluster(CLIENT, "ledger", prefix).prefix_of(QUERY) == prefix
    for wrong in ("team-", f"{prefix}-", f"x{prefix}", "other"):
        with pytest.raises(EosError, match=f"EOS_PREFIX_MISMATCH.*'{prefix}'.*'{wrong}'"):
            Cluster(CLIENT, "ledger", wrong).prefix_of(QUERY)


@pytest.mark.parametrize("why", [None, HELD])
def test_ids_say_it_where_there_is_no_head(asked, why):
    """Of a query that was killed before its first one, and where an open transaction hides it."""
    asked["head"] = why
    asked["ids"] = [ledger_name("team-a", QUERY), f"x-{QUERY}", "another-program-1"]
    assert Cluster(CLIENT, "ledger").prefix_of(QUERY) == "team-a"
    with pytest.raises(EosError, match="EOS_PREFIX_MISMATCH"):
        Cluster(CLIENT, "ledger", "spark-eos").prefix_of(QUERY)
    asked["ids"] = []
    assert Cluster(CLIENT, "ledger", "team-a").prefix_of(QUERY) == "team-a"


def test_nobody_says_it(asked):
    """A query that has never begun has the default one, but one that is hidden may have any."""
    assert Cluster(CLIENT, "ledger").prefix_of(QUERY) == DEFAULT_PREFIX
    asked["head"] = HELD
    with pytest.raises(EosError, match="EOS_LEDGER_HELD"):
        Cluster(CLIENT, "ledger").prefix_of(QUERY)


def test_transactions_of_all_prefixes(asked):
    """A list of all has all; of a query, what is under its own prefix; and of a prefix, what is under that."""
    own, stray = (task_name(prefix, QUERY, TaskId(1, 0, 0)) for prefix in ("team-a", "team"))
    other = task_name("team", OTHER, TaskId(1, 0, 0))
    asked |= {"head": head_of("team-a"), "ids": [own, stray, other, "another-program-1"]}

    def found(prefix: str | None, *queries: str) -> dict[str, bool | None]:
        return {t.id: t.decided for t in find(Cluster(CLIENT, "ledger", prefix), queries)}

    assert found(None) == {own: False, stray: None, other: None}
    assert found(None, QUERY) == found("team-a", QUERY) == found("team-a") == {own: False}
    assert found("team") == {stray: None, other: None}
    with pytest.raises(EosError, match="EOS_PREFIX_MISMATCH"):
        found("team", QUERY)


@pytest.mark.parametrize(
    "why",
    [
        HELD,
        LedgerError("EOS_LEDGER_FORMAT", "A newer version has written it.", hint="Install that."),
        LedgerError("EOS_LEDGER_DAMAGED", "It is no head.", hint="Look."),
        Unauthorized("EOS_UNAUTHORIZED", "Not to be read.", hint="Grant READ."),
    ],
    ids=lambda why: why.condition,
)
def test_a_new_query_waits_for_what_may_be_decided(asked, clock, why):
    """Nothing ends what never expires, and whether it is decided nobody can say whose head cannot be read. Of a query
    that the ledger does not know, it has decided nothing."""
    own, other = (task_name("team-a", query, TaskId(1, 0, 0)) for query in (QUERY, OTHER))
    asked |= {"head": why, "ids": [own, other]}
    (found,) = decided_elsewhere(Cluster(CLIENT, "ledger"), "out", OTHER)
    assert (found.id, found.decided, found.unread) == (own, None, True)
    assert decided_elsewhere(Cluster(CLIENT, "ledger"), "out", QUERY) == []
    assert decided_elsewhere(Cluster(CLIENT, "ledger"), "elsewhere", OTHER) == []
    asked["head"] = head_of("team-a")
    assert decided_elsewhere(Cluster(CLIENT, "ledger"), "out", OTHER) == []
    asked["head"] = why
    options = SinkOptions(KafkaProperties({"bootstrap.servers": "h:1"}), topic="out")
    with pytest.raises(ProtocolStop, match=f"EOS_TWO_PHASE_UNSETTLED.*{QUERY}.*{why.condition}"):
        preflight.check_predecessors(CLIENT, options, OTHER)
