"""Writes within foreachBatch that failed: noted in the ledger before the error is raised, as the function may catch it.

Spark then passes the micro-batch, and only the note shows that its rows are missing. A write whose tasks have begun is
noted when Spark aborts the write (`spark_eos.protocol.abort.abort`). Without a task there is no abort: when a topic is
missing, a stage before the write fails, or Spark cannot plan it. So the process that calls ``save()`` looks as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from spark_eos.base.log import logger
from spark_eos.errors import EosError
from spark_eos.kafka.admin.topics import describe_topics
from spark_eos.kafka.net.client import BrokerClient, broker_client
from spark_eos.kafka.partitioners import DEFAULT_PARTITIONER
from spark_eos.ledger.query import LedgerAddress, query_ports
from spark_eos.options.parse import SinkOptions
from spark_eos.options.writes import WriteOptions, write_options
from spark_eos.protocol.abort import note_unwritten
from spark_eos.protocol.checks import never_written
from spark_eos.protocol.head import NOBODY, Head
from spark_eos.sink.ledger_topic import make_ledger

#: Prefixes of the options that name a write and its ledger; the error may be about the others.
_NEEDED = ("kafka.", "ledger.topic", "transactionalidprefix", "foreachbatch.query", "foreachbatch.run")

#: The query and sink of writes that failed and could not be noted, with their micro-batch.
_not_noted: dict[tuple[str, str], int] = {}


def check_earlier(given: Mapping[str, str]) -> None:
    """Raise ProtocolStop before a write if one of an earlier micro-batch failed in this process and could not be noted
    then; it is noted now, if that works by now. ``given``: the options by their names in lower case."""
    batch, failed = _batch(given), _not_noted.get(_sink(given))
    if failed is None or failed >= batch:
        return
    note({**given, "foreachbatch.batch": str(failed)})
    raise never_written(batch, failed)


def note(given: Mapping[str, str]) -> None:
    """Note that a write has failed. Never raises: where the ledger cannot be written, this process remembers it."""
    try:
        _note(_options_of(given))
        _not_noted.pop(_sink(given), None)
    except Exception as error:
        _not_noted.setdefault(_sink(given), _batch(given))
        logger.warning(
            "micro-batch %d of sink '%s' was not written, which could not be noted in the ledger: %s. Later writes of "
            "this process stop all the same.",
            _batch(given),
            _sink(given)[1],
            error if isinstance(error, EosError) else type(error).__name__,
        )


def forget(given: Mapping[str, str]) -> None:
    """Forget, after a write has returned, that an earlier attempt of it failed."""
    _not_noted.pop(_sink(given), None)


def _note(options: WriteOptions) -> None:
    write, sink = options.write, options.sink
    assert write is not None
    client, key = broker_client(sink.kafka), write.query_id
    address = _ledger_of(client, sink)
    ports = query_ports(client, address, key)
    head = ports.ledger.read()
    if head is not None and head.prefix != sink.prefix:  # the write failed because of that
        ports = query_ports(client, replace(address, prefix=head.prefix), key)
    first = Head(
        NOBODY,
        1,
        (),
        ports.coordinator.endtxn_version(),
        prefix=sink.prefix,
        partitioner=sink.partitioner or DEFAULT_PARTITIONER,
        write=write,
    )
    note_unwritten(ports, options.batch, first)


def _ledger_of(client: BrokerClient, sink: SinkOptions) -> LedgerAddress:
    """Return the ledger's topic, without checks of its settings, which may have stopped the write."""
    there = describe_topics(client, [sink.ledger_topic], missing_ok=True).get(sink.ledger_topic)
    if there is not None:
        return LedgerAddress(sink.ledger_topic, there.partitions, sink.prefix)
    partitions = make_ledger(client, sink.ledger_topic)
    return LedgerAddress(sink.ledger_topic, partitions, sink.prefix)


def _options_of(given: Mapping[str, str]) -> WriteOptions:
    """Return the options of the writes. Raises OptionError where they do not name the ledger."""
    needed = {name: value for name, value in given.items() if name.startswith(_NEEDED)}
    return write_options({**needed, "foreachbatch.batch": str(_batch(given)), "foreachbatch.sink": _sink(given)[1]})


def _sink(given: Mapping[str, str]) -> tuple[str, str]:
    """Return the query's name and the sink's, which is empty where no option names it."""
    return given["foreachbatch.query"], given.get("foreachbatch.sink") or given.get("topic", "").strip()


def _batch(given: Mapping[str, str]) -> int:
    return int(given["foreachbatch.batch"])
