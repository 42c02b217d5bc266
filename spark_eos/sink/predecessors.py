"""What another query has left on the output topic of one that begins."""

from __future__ import annotations

from spark_eos.errors import stop
from spark_eos.kafka.net.client import broker_client
from spark_eos.ledger.owners import Cluster, Transaction, decided_elsewhere
from spark_eos.options.parse import SinkOptions
from spark_eos.retry import retrying

_UNDER_WAY_S = 5.0


def check_predecessors(options: SinkOptions, query: str | None) -> None:
    """Raise ProtocolStop (EOS_TWO_PHASE_UNSETTLED) where the decision of another query on the output topic is not
    carried out, and no timeout will end it: only that query's next start, or an operator, will.

    A query with a new checkpoint goes on from offsets that were published with such a decision.
    """
    if options.topic is None:
        return
    cluster = Cluster(broker_client(options.kafka), options.ledger_topic)  # whatever prefix the other query has
    left: list[Transaction] = []
    for _ in retrying(_UNDER_WAY_S):  # a query that is alive commits within a moment
        left = decided_elsewhere(cluster, options.topic, query)
        if not left:
            return
    queries = sorted({t.query for t in left})
    raise stop(
        "EOS_TWO_PHASE_UNSETTLED", queries=queries, count=len(left), topic=options.topic, query_ids=", ".join(queries)
    )
