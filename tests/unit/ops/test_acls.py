"""What `spark-eos doctor --acls` prints."""

from __future__ import annotations

import pytest

from spark_eos import cli
from spark_eos.ops.acls import Acl, Query, needed


def test_the_commands_of_a_plain_query(capsys):
    """With the defaults of the options; names are quoted for the shell."""
    assert cli.main(["doctor", "--acls", "--principal", "User:CN=ann o", "--input", "in", "--output", "out"]) == 0
    begin = "kafka-acls.sh --bootstrap-server HOST:9092 --add --allow-principal 'User:CN=ann o'"
    assert capsys.readouterr().out.splitlines() == [
        f"{begin} --operation Read --topic in",
        f"{begin} --operation Write --operation Read --operation DescribeConfigs --topic out",
        f"{begin} --operation Read --operation Write --operation DescribeConfigs --topic __spark_eos_ledger",
        f"{begin} --operation Write --transactional-id spark-eos- --resource-pattern-type prefixed",
    ]


def test_the_commands_of_a_query_to_a_table(capsys):
    """It has neither transactions nor a ledger."""
    words = ["--input", "in", "--output", "delta:/data/t", "--output", "iceberg:lake.t", "--group", "g"]
    assert cli.main(["doctor", "--acls", *words]) == 0
    begin = "kafka-acls.sh --bootstrap-server HOST:9092 --add --allow-principal User:NAME --operation Read"
    assert capsys.readouterr().out.splitlines() == [f"{begin} --topic in", f"{begin} --group g"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--output", "delta:"], "'delta:' is none of TOPIC, delta:PATH and iceberg:NAMESPACE.NAME"),
        (["--output", "hudi:/t"], "'hudi:/t' is none of"),
        (["--output", "delta:/t", "--dead-letters", "d"], "a query to a table has no --dead-letters"),
    ],
)
def test_outputs_that_cannot_be(capsys, words, said):
    """Before a cluster is asked."""
    assert cli.main(["doctor", "--acls", *words]) == 2
    assert said in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_a_topic_that_is_read_and_written_is_named_once_for_each_operation():
    """A query may copy a topic into itself, by another partition."""
    found = [acl for acl in needed(Query(inputs=["t"], outputs=["t"])) if acl.name == "t"]
    assert sorted(acl.operation for acl in found) == ["DESCRIBE_CONFIGS", "READ", "WRITE"]


def test_the_ids_of_one_query_only():
    """With two-phase commit, its trial has an id beside them."""
    found = needed(Query(prefix="p", id="q", two_phase=True))
    assert [acl for acl in found if acl.resource == "TRANSACTIONAL_ID"] == [
        Acl("TRANSACTIONAL_ID", "p-q-", "WRITE", prefixed=True),
        Acl("TRANSACTIONAL_ID", "p-q-", "TWO_PHASE_COMMIT", prefixed=True),
        Acl("TRANSACTIONAL_ID", "p-two-phase-commit-trial", "WRITE"),
        Acl("TRANSACTIONAL_ID", "p-two-phase-commit-trial", "TWO_PHASE_COMMIT"),
    ]


def test_a_dead_letter_topic():
    """The settings of all that is written to are compared with its own."""
    found = needed(Query(outputs=["t"], dead_letters="d"))
    assert [acl for acl in found if acl.resource == "TOPIC" and acl.name in "td"] == [
        Acl("TOPIC", topic, operation) for topic in "td" for operation in ("WRITE", "READ", "DESCRIBE_CONFIGS")
    ]


def test_the_notes_of_an_ingest():
    """The same rights as on the ledger."""
    found = needed(Query(notes="n", ledger="l", creates_ledger=True))
    rights = {topic: [acl.operation for acl in found if acl.name == topic] for topic in "nl"}
    assert rights["n"] == rights["l"] == ["READ", "WRITE", "DESCRIBE_CONFIGS", "CREATE"]
