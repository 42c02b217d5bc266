"""QuixStreams copies a topic into another one, exactly once, until it is killed, in an environment of its own.

``python -m bench.compare.quix_copy SERVERS INPUT OUTPUT TIMEOUT_MS``.
"""

from __future__ import annotations

import sys

from quixstreams import Application


def main() -> None:
    servers, source, target, timeout_ms = sys.argv[1:]
    application = Application(
        broker_address=servers,
        consumer_group=f"quix-{target}",
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=1.0,
        consumer_extra_config={"broker.address.family": "v4"},
        producer_extra_config={"broker.address.family": "v4", "transaction.timeout.ms": int(timeout_ms)},
        auto_create_topics=False,
    )
    rows, written = (
        application.topic(name, value_serializer="bytes", value_deserializer="bytes") for name in (source, target)
    )
    application.dataframe(rows).to_topic(written)
    application.run()


if __name__ == "__main__":
    main()
