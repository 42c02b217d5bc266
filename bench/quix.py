"""The same loop by QuixStreams, exactly once, as a program of its own; it runs in an environment of its own.

``python -m bench.quix '<spec as JSON>'``, as `bench.loop`.
"""

from __future__ import annotations

import time
from itertools import pairwise

from quixstreams import Application

from bench.loop import LoopSpec, TimedTransaction
from bench.spec import answer


def copy_by_quix(spec: LoopSpec) -> list[TimedTransaction]:
    """One process, a transaction after every so many rows; the commit counts to the transaction that follows."""
    marks, rows = [time.time()], 0

    def processed(topic: str, partition: int, offset: int) -> None:
        nonlocal rows
        rows += 1
        if rows % spec.rows_per_transaction == 0:
            marks.append(time.time())

    application = Application(
        broker_address=spec.bootstrap_servers,
        consumer_group=f"quix-{spec.output}",
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_every=spec.rows_per_transaction,
        commit_interval=600.0,
        consumer_extra_config={"broker.address.family": "v4"},
        producer_extra_config={"broker.address.family": "v4", "compression.type": spec.codec},
        on_message_processed=processed,
        loglevel="ERROR",
        auto_create_topics=False,
    )
    input_topic, output_topic = (
        application.topic(name, value_serializer="bytes", value_deserializer="bytes")
        for name in (spec.input, spec.output)
    )
    application.dataframe(input_topic).to_topic(output_topic)
    application.run(count=spec.rows, collect=False)
    return [TimedTransaction(begin, end, spec.rows_per_transaction) for begin, end in pairwise(marks)]


if __name__ == "__main__":
    answer(copy_by_quix(LoopSpec.given()))
