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


ALL = ("WRITE", "READ", "DESCRIBE_CONFIGS")
TRIAL = "p-two-phase-commit-trial"


@pytest.mark.parametrize(
    ("query", "names", "rights"),
    [
        (Query(inputs=["t"], outputs=["t"]), ["t"], [Acl("TOPIC", "t", each) for each in ALL]),
        (
            Query(outputs=["t"], dead_letters="d"),
            ["t", "d"],
            [Acl("TOPIC", name, each) for name in "td" for each in ALL],
        ),
        (
            Query(prefix="p", id="q", two_phase=True),
            ["p-q-", TRIAL],
            [
                Acl("TRANSACTIONAL_ID", name, operation, prefixed=name == "p-q-")
                for name in ("p-q-", TRIAL)
                for operation in ("WRITE", "TWO_PHASE_COMMIT")
            ],
        ),
        (
            Query(notes="n", ledger="l", creates_ledger=True),
            ["l", "n"],
            [Acl("TOPIC", name, operation) for name in "ln" for operation in (*ALL, "CREATE")],
        ),
    ],
    ids=["a topic into itself", "dead letters", "one query with two-phase commit", "notes of an ingest"],
)
def test_the_rights_of_other_queries(query, names, rights):
    """Each is named once. The settings of all that is written to are compared; the trial of two-phase commit has an id
    of its own; on the notes of an ingest, the rights are those on the ledger."""
    found = [acl for acl in needed(query) if acl.name in names]
    assert len(found) == len(rights) and set(found) == set(rights)
