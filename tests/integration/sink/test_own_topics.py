"""Topics that are not for rows, whatever they are called: Kafka's internal ones, ledgers, offset maps and notes."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from spark_eos.errors import TopicError
from spark_eos.kafka.net.client import broker_client
from spark_eos.ledger.ledger import KafkaLedger
from spark_eos.options.parse import SinkOptions, sink_options
from spark_eos.options.table import DEFAULT_LEDGER_TOPIC
from spark_eos.protocol.head import Head
from spark_eos.tools.devcluster import DevCluster
from tests.support.models.open_query import checked

KEY, VALUE = (
    b'{"query":"q","batch":0,"place":0}',
    b'{"ingest":"i","topic":"t","uri":"u","digest":"d","task":0,"tasks":1}',
)


def options_of(cluster: DevCluster, **options: str) -> SinkOptions:
    given = {key.replace("__", "."): value for key, value in options.items()}
    return sink_options({"kafka.bootstrap.servers": cluster.bootstrap_servers} | given)


@pytest.fixture
def ledger(cluster, topic) -> str:
    """One with a name of its own, which has a head in it; of which most partitions are empty."""
    name = f"decisions-{uuid.uuid4()}"
    options = options_of(cluster, topic=topic(1), ledger__topic=name)
    partitions = checked(options).ledger_partitions
    KafkaLedger(broker_client(options.kafka), name, partitions, options.prefix, str(uuid.uuid4())).take().publish(
        Head("r", 1, (), 5)
    )
    return name


@pytest.fixture
def notes(cluster, topic, write) -> str:
    """What an ingest has noted, under a name of its own."""
    name = f"taken-{uuid.uuid4()}"
    cluster.create_topic(name, cleanup_policy="compact")
    write(name, VALUE, key=KEY)
    return name


@pytest.fixture
def table(cluster, write) -> str:
    """A compacted topic of a user, with keys of two kinds."""
    name = f"table-{uuid.uuid4()}"
    cluster.create_topic(name, cleanup_policy="compact")
    write(name, b"v", key=b"k")
    write(name, b'{"name":"Ada"}', key=str(uuid.uuid4()).encode())
    return name


def refuses(call: Callable[[], object], says: str) -> None:
    with pytest.raises(TopicError, match="EOS_TOPIC_RESERVED") as caught:
        call()
    assert says in caught.value.message


def test_no_rows_go_to_a_topic_that_is_not_for_rows(cluster, topic, ledger, notes, table):
    """By the option, or as dead letters; what is somebody's compacted table is written to."""
    checked(options_of(cluster, topic=topic(1)))  # which makes the ledger
    for name, says in (
        (ledger, "is a ledger of spark-eos"),
        (notes, "is the notes of ingests of spark-eos"),
        (DEFAULT_LEDGER_TOPIC, "begins with __spark_eos_"),
        ("__transaction_state", "an internal topic of Kafka"),
    ):
        for given in ({"topic": name, "ledger__topic": "l"}, {"topic": table, "deadLetters__topic": name}):
            refuses(lambda given=given: checked(options_of(cluster, **given)), says)
    checked(options_of(cluster, topic=table))


def test_rows_whose_column_names_a_ledger(spark, cluster, topic, ledger, files, sink, refused):
    """Another query's, and the query's own; nothing gets in there, nor anywhere else."""
    out = topic(1)
    for name in (ledger, f"own-{uuid.uuid4()}"):
        rows = files("topic string, value string", name=uuid.uuid4().hex).add([(out, "a"), (name, "b")]).stream()
        own = sink(name=uuid.uuid4().hex, ledger__topic=name if name != ledger else f"own-{uuid.uuid4()}")
        said = refused(own, rows, "EOS_TOPIC_RESERVED", out, tasks=True)
        assert f"Topic {name} is " in said


def test_a_stream_reads_no_ledger(spark, cluster, topic, ledger, notes, write, reader):
    """It is refused where it is named, and left out by a pattern; a batch may look into it."""
    for name in (ledger, notes, "__transaction_state"):
        refuses(reader(name).initialOffset, f"Topic {name} is ")
    assigned = reader(None, assign=f'{{"{ledger}": [0]}}')
    refuses(assigned.initialOffset, "a ledger of spark-eos")
    other = f"{ledger}-not"
    cluster.create_topic(other)
    found = reader(None, subscribePattern=f"{ledger}|__transaction_state").initialOffset()
    assert [name for name in found if not name.startswith("#")] == [other]
    looked = spark.read.format("eos-kafka").option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    assert looked.option("subscribe", ledger).load().count() == 1
