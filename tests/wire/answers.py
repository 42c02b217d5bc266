"""What a broker makes of each request: its effect, and the answer as one of kio's records.

With a code there is no effect, and everything that the answer is about has that code.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from spark_eos.kafka.codes import Code

from .codec import Asked, error, milliseconds, moment, parts
from .partition import HEADER
from .topic_ids import BY_ID, fetched_topic, id_of
from .transactions import Place
from .world import START_S

if TYPE_CHECKING:
    from .cluster import Cluster

#: The versions of Produce, and of EndTxn and TxnOffsetCommit, from which on they are of transaction.version 2. Before
#: those that precede them, they do not know TRANSACTION_ABORTABLE.
_ADDS, _FENCES = 12, 5
_FETCHES = 1


def answer(cluster: Cluster, node: int, asked: Asked, code: int | None, throttle_ms: int) -> Any:
    """The answer of this broker. A client that is throttled is told nothing of what it fetches."""
    made = _ANSWERS[asked.api](cluster, node, asked, parts(asked.api, asked.version), code)
    kind = made.pop("")
    if throttle_ms and asked.api == _FETCHES and code is None:
        made["responses"] = ()
    return kind(throttle_time=milliseconds(throttle_ms), **made)


def places_of(asked: Asked) -> list[Place]:
    """The partitions that a request is about."""
    if asked.api == 0:
        return [(t.name, p.index) for t in asked.body.topic_data for p in t.partition_data]
    if asked.api == 1:
        return [(fetched_topic(asked, t), p.partition) for t in asked.body.topics for p in t.partitions]
    if asked.api == 2:
        return [(t.name, p.partition_index) for t in asked.body.topics for p in t.partitions]
    if asked.api == 61:
        return [(t.name, p) for t in asked.body.topics for p in t.partition_indexes]
    return []


def records_of(cluster: Cluster, asked: Asked) -> bytes:
    """What a Fetch request asks for of its last partition."""
    topic = asked.body.topics[-1]
    row = topic.partitions[-1]
    log = cluster.partitions.get((fetched_topic(asked, topic), row.partition))
    return b"" if log is None else log.fetch(row.fetch_offset, row.partition_max_bytes, log.stable)[0]


def _led(cluster: Cluster, node: int, place: Place) -> int:
    if place not in cluster.partitions:
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    return Code.NONE if cluster.partitions[place].leader == node else Code.NOT_LEADER_OR_FOLLOWER


def _fetched(cluster: Cluster, place: Place, epoch: int) -> int:
    """A follower answers consumers as well (KIP-392), unless they name another epoch than the present one."""
    if place not in cluster.partitions:
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    known = cluster.partitions[place].epoch
    if epoch in (-1, known):
        return Code.NONE
    return Code.FENCED_LEADER_EPOCH if epoch < known else Code.UNKNOWN_LEADER_EPOCH


def _produce(cluster: Cluster, node: int, asked: Asked, kinds: Any, code: int | None) -> dict[str, Any]:
    topics = []
    for topic in asked.body.topic_data:
        rows = []
        for row in topic.partition_data:
            place = topic.name, row.index
            found, base = (code, -1) if code is not None else _append(cluster, node, asked, place, bytes(row.records))
            moved = found == Code.NOT_LEADER_OR_FOLLOWER and place in cluster.partitions
            leader = cluster.partitions[place].leader if moved else None
            told = {} if leader is None else {"current_leader": kinds.LeaderIdAndEpoch(leader_id=leader)}
            rows.append(
                kinds.PartitionProduceResponse(
                    index=row.index,
                    error_code=error(found),
                    base_offset=base,
                    record_errors=(),
                    error_message="because" if found else None,
                    **told,
                )
            )
        topics.append(kinds.TopicProduceResponse(name=topic.name, partition_responses=tuple(rows)))
    return {"": kinds.ProduceResponse, "responses": tuple(topics)}


def _append(cluster: Cluster, node: int, asked: Asked, place: Place, data: bytes) -> tuple[int, int]:
    code = _led(cluster, node, place)
    if code != Code.NONE:
        return code, -1
    producer_id, epoch = HEADER.unpack_from(data)[9:11]
    if producer_id not in cluster.partitions[place].open:
        admit = cluster.transactions.add if asked.version >= _ADDS else cluster.transactions.verify
        code = admit(asked.body.transactional_id, producer_id, epoch, place)
        code = _told(code, asked.version >= _ADDS - 1)
        if code != Code.NONE:
            return code, -1
    return cluster.partitions[place].append(data)


def _fetch(cluster: Cluster, node: int, asked: Asked, kinds: Any, code: int | None) -> dict[str, Any]:
    topics = []
    for topic in asked.body.topics:
        rows = []
        for row in topic.partitions:
            place = fetched_topic(asked, topic), row.partition
            found = code if code is not None else _fetched(cluster, place, row.current_leader_epoch)
            if found == Code.UNKNOWN_TOPIC_OR_PARTITION and asked.version >= BY_ID:
                found = Code.UNKNOWN_TOPIC_ID
            log = cluster.partitions.get(place)
            if found == Code.NONE and not 0 <= row.fetch_offset <= log.end:
                found = Code.OFFSET_OUT_OF_RANGE
            data, aborted = b"", []
            if found == Code.NONE:
                end, stable = log.ends(node)
                committed = bool(asked.body.isolation_level)
                data, aborted = log.fetch(row.fetch_offset, row.partition_max_bytes, stable if committed else end)
                aborted = aborted if committed else []
            good = found == Code.NONE
            rows.append(
                kinds.PartitionData(
                    partition_index=row.partition,
                    error_code=error(found),
                    high_watermark=end if good else -1,
                    last_stable_offset=stable if good else -1,
                    log_start_offset=0 if good else -1,
                    aborted_transactions=tuple(
                        kinds.AbortedTransaction(producer_id=pid, first_offset=first) for pid, first in aborted
                    ),
                    preferred_read_replica=-1,
                    records=data,
                )
            )
        named = {"topic": topic.topic} if asked.version < BY_ID else {"topic_id": topic.topic_id}
        topics.append(kinds.FetchableTopicResponse(**named, partitions=tuple(rows)))
    return {"": kinds.FetchResponse, "error_code": error(0), "responses": tuple(topics)}


def _list_offsets(cluster: Cluster, node: int, asked: Asked, kinds: Any, code: int | None) -> dict[str, Any]:
    topics = []
    for topic in asked.body.topics:
        rows = []
        for row in topic.partitions:
            place = topic.name, row.partition_index
            found, offset = code if code is not None else _led(cluster, node, place), -1
            if found == Code.NONE:
                log = cluster.partitions[place]
                offset = 0 if row.timestamp == -2 else log.stable if asked.body.isolation_level else log.end
            rows.append(
                kinds.ListOffsetsPartitionResponse(
                    partition_index=row.partition_index, error_code=error(found), offset=offset
                )
            )
        topics.append(kinds.ListOffsetsTopicResponse(name=topic.name, partitions=tuple(rows)))
    return {"": kinds.ListOffsetsResponse, "topics": tuple(topics)}


def _metadata(cluster: Cluster, node: int, asked: Asked, kinds: Any, code: int | None) -> dict[str, Any]:
    names = list(cluster.topics) if asked.body.topics is None else [topic.name for topic in asked.body.topics]
    topics = []
    for name in names:
        found = code if code is not None else Code.NONE if name in cluster.topics else Code.UNKNOWN_TOPIC_OR_PARTITION
        rows = [] if found else [_partition(cluster, kinds, (name, p)) for p in range(cluster.topics[name])]
        kind = kinds.MetadataResponseTopic
        topics.append(
            kind(error_code=error(found), name=name, topic_id=id_of(name), partitions=tuple(rows))
        )  # fmt: skip
    brokers = tuple(
        kinds.MetadataResponseBroker(node_id=n, host=b.place[0], port=b.place[1])
        for n, b in cluster.nodes.items()
        if b.answers or n == node
    )
    return {
        "": kinds.MetadataResponse,
        "brokers": brokers,
        "cluster_id": "wire",
        "controller_id": 1,
        "topics": tuple(topics),
    }


def _partition(cluster: Cluster, kinds: Any, place: Place) -> Any:
    leader, nodes = cluster.partitions[place].leader, tuple(cluster.nodes)
    return kinds.MetadataResponsePartition(
        error_code=error(Code.NONE if leader else Code.LEADER_NOT_AVAILABLE),
        partition_index=place[1],
        leader_id=leader or -1,
        leader_epoch=cluster.partitions[place].epoch,
        replica_nodes=nodes,
        isr_nodes=nodes,
        offline_replicas=(),
    )


def _find_coordinator(cluster: Cluster, node: int, asked: Asked, kinds: Any, code: int | None) -> dict[str, Any]:
    rows = []
    for key in asked.body.coordinator_keys:
        broker = cluster.nodes[cluster.coordinator(key)]
        found = code if code is not None else Code.NONE if broker.answers else Code.COORDINATOR_NOT_AVAILABLE
        where = ("", -1, -1) if found else (*broker.place, broker.node)
        rows.append(
            kinds.Coordinator(
                key=key, node_id=where[2], host=where[0], port=where[1], error_code=error(found), error_message=None
            )
        )
    return {"": kinds.FindCoordinatorResponse, "coordinators": tuple(rows)}


def _api_versions(cluster: Cluster, node: int, asked: Asked, kinds: Any, code: int | None) -> dict[str, Any]:
    keys = [kinds.ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in cluster.versions(node).items()]
    level = cluster.level(node)  # a feature of level 0 is not told
    feature = kinds.FinalizedFeatureKey(name="transaction.version", max_version_level=level, min_version_level=level)
    return {
        "": kinds.ApiVersionsResponse,
        "error_code": error(code or 0),
        "api_keys": tuple(keys),
        "finalized_features": (feature,) if level else (),
    }


def _coordinated(cluster: Cluster, node: int, key: str) -> int:
    return Code.NONE if cluster.coordinator(key) == node else Code.NOT_COORDINATOR


def _init_producer_id(cluster: Cluster, node: int, asked: Asked, kinds: Any, code: int | None) -> dict[str, Any]:
    name = asked.body.transactional_id
    found, producer_id, epoch = code if code is not None else cluster.offer.refusal(node, asked), -1, -1
    if found == Code.NONE:
        found = _coordinated(cluster, node, name)
    if found == Code.NONE:
        found, producer_id, epoch = cluster.transactions.init(name, cluster.offer.timeout_ms(asked))
    if found == Code.NONE:
        cluster.offer.grant(asked)
    return {
        "": kinds.InitProducerIdResponse,
        "error_code": error(found),
        "producer_id": producer_id,
        "producer_epoch": epoch,
    }


def _describe_configs(cluster: Cluster, node: int, asked: Asked, kinds: Any, code: int | None) -> dict[str, Any]:
    return cluster.offer.settings(node, asked, kinds, code)


def _end_txn(cluster: Cluster, node: int, asked: Asked, kinds: Any, code: int | None) -> dict[str, Any]:
    body = asked.body
    who = body.transactional_id, body.producer_id, body.producer_epoch
    found, producer_id, epoch = code if code is not None else _coordinated(cluster, node, body.transactional_id), -1, -1
    if asked.version < _FENCES:
        found = cluster.transactions.end_plainly(*who, body.committed) if found == Code.NONE else found
        return {"": kinds.EndTxnResponse, "error_code": error(found)}
    if found == Code.NONE:
        found, producer_id, epoch = cluster.transactions.end(*who, body.committed)
    return {"": kinds.EndTxnResponse, "error_code": error(found), "producer_id": producer_id, "producer_epoch": epoch}


def _add_partitions(cluster: Cluster, node: int, asked: Asked, kinds: Any, code: int | None) -> dict[str, Any]:
    body = asked.body
    name = body.v3_and_below_transactional_id
    who = name, body.v3_and_below_producer_id, body.v3_and_below_producer_epoch
    found = code if code is not None else _coordinated(cluster, node, name)
    places = [(topic.name, number) for topic in body.v3_and_below_topics for number in topic.partitions]
    codes = dict.fromkeys(places, found)
    if found == Code.NONE and not set(places) <= cluster.partitions.keys():
        unknown, others = Code.UNKNOWN_TOPIC_OR_PARTITION, Code.OPERATION_NOT_ATTEMPTED
        codes = {place: others if place in cluster.partitions else unknown for place in places}
    elif found == Code.NONE:
        codes = {place: _fenced_as_client(cluster.transactions.add(*who, place)) for place in places}
    topics: dict[str, list[Any]] = {}
    kind = kinds.AddPartitionsToTxnPartitionResult
    for (topic, number), of_place in codes.items():
        topics.setdefault(topic, []).append(kind(partition_index=number, partition_error_code=error(of_place)))
    rows = tuple(kinds.AddPartitionsToTxnTopicResult(name=t, results_by_partition=tuple(r)) for t, r in topics.items())
    return {"": kinds.AddPartitionsToTxnResponse, "results_by_topic_v3_and_below": rows}


def _told(code: int, known: bool) -> int:
    return Code.INVALID_TXN_STATE if code == Code.TRANSACTION_ABORTABLE and not known else code


def _fenced_as_client(code: int) -> int:
    return Code.PRODUCER_FENCED if code == Code.INVALID_PRODUCER_EPOCH else code


def _add_offsets(cluster: Cluster, node: int, asked: Asked, kinds: Any, code: int | None) -> dict[str, Any]:
    body = asked.body
    found = code if code is not None else _coordinated(cluster, node, body.transactional_id)
    if found == Code.NONE:
        who = body.transactional_id, body.producer_id, body.producer_epoch
        found = _fenced_as_client(cluster.transactions.add(*who, None))
    if found == Code.NONE:
        cluster.transactions.entries[body.transactional_id].groups.setdefault(body.group_id, {})
    return {"": kinds.AddOffsetsToTxnResponse, "error_code": error(found)}


def _txn_offset_commit(cluster: Cluster, node: int, asked: Asked, kinds: Any, code: int | None) -> dict[str, Any]:
    body = asked.body
    found = code if code is not None else _coordinated(cluster, node, body.group_id)
    if found == Code.NONE:
        who = body.transactional_id, body.producer_id, body.producer_epoch
        transactions = cluster.transactions
        fences = asked.version >= _FENCES
        found = transactions.add(*who, None) if fences else transactions.verify(*who, None, body.group_id)
        found = _told(found, asked.version >= _FENCES - 1)
    topics = []
    for topic in body.topics:
        rows = []
        for row in topic.partitions:
            if found == Code.NONE:
                offsets = cluster.transactions.entries[body.transactional_id].groups.setdefault(body.group_id, {})
                offsets[topic.name, row.partition_index] = row.committed_offset
            rows.append(
                kinds.TxnOffsetCommitResponsePartition(partition_index=row.partition_index, error_code=error(found))
            )
        topics.append(kinds.TxnOffsetCommitResponseTopic(name=topic.name, partitions=tuple(rows)))
    return {"": kinds.TxnOffsetCommitResponse, "topics": tuple(topics)}


def _describe_producers(cluster: Cluster, node: int, asked: Asked, kinds: Any, code: int | None) -> dict[str, Any]:
    topics = []
    for topic in asked.body.topics:
        rows = []
        for number in topic.partition_indexes:
            found = code if code is not None else _led(cluster, node, (topic.name, number))
            log = cluster.partitions.get((topic.name, number))
            producers = () if found or log is None else tuple(_producer(kinds, log, pid) for pid in log.writers)
            rows.append(
                kinds.PartitionResponse(
                    partition_index=number, error_code=error(found), active_producers=producers
                )
            )  # fmt: skip
        topics.append(kinds.TopicResponse(name=topic.name, partitions=tuple(rows)))
    return {"": kinds.DescribeProducersResponse, "topics": tuple(topics)}


def _producer(kinds: Any, log: Any, producer_id: int) -> Any:
    writer = log.writers[producer_id]
    return kinds.ProducerState(
        producer_id=producer_id,
        producer_epoch=writer.epoch,
        last_sequence=writer.batches[-1][1] if writer.batches else -1,
        coordinator_epoch=0,
        current_txn_start_offset=log.open.get(producer_id, -1),
    )


def _describe_transactions(cluster: Cluster, node: int, asked: Asked, kinds: Any, code: int | None) -> dict[str, Any]:
    rows = []
    for name in asked.body.transactional_ids:
        entry = cluster.transactions.entries.get(name)
        found = code if code is not None else _coordinated(cluster, node, name)
        if found == Code.NONE and entry is None:
            found = Code.TRANSACTIONAL_ID_NOT_FOUND
        known = entry if found == Code.NONE else None
        by_topic: dict[str, list[int]] = {}
        for topic, number in sorted(known.places) if known else ():
            by_topic.setdefault(topic, []).append(number)
        rows.append(
            kinds.TransactionState(
                error_code=error(found),
                transactional_id=name,
                transaction_state=known.state if known else "",
                transaction_timeout=milliseconds(known.timeout_ms if known else 0),
                transaction_start_time=moment(1000 * (START_S + (known.started if known else 0))),
                producer_id=known.producer_id if known else -1,
                producer_epoch=known.epoch if known else -1,
                topics=tuple(kinds.TopicData(topic=t, partitions=tuple(ps)) for t, ps in by_topic.items()),
            )
        )
    return {"": kinds.DescribeTransactionsResponse, "transaction_states": tuple(rows)}


def _list_transactions(cluster: Cluster, node: int, asked: Asked, kinds: Any, code: int | None) -> dict[str, Any]:
    body, rows = asked.body, []
    pattern = getattr(body, "transactional_id_pattern", None)
    for name, entry in cluster.transactions.entries.items() if not code else ():
        wanted = not body.state_filters or entry.state in body.state_filters
        wanted &= not body.producer_id_filters or entry.producer_id in body.producer_id_filters
        if wanted and cluster.coordinator(name) == node and (pattern is None or re.fullmatch(pattern, name)):
            rows.append(
                kinds.TransactionState(
                    transactional_id=name, producer_id=entry.producer_id, transaction_state=entry.state
                )
            )
    return {
        "": kinds.ListTransactionsResponse,
        "error_code": error(code or 0),
        "unknown_state_filters": (),
        "transaction_states": tuple(rows),
    }


_ANSWERS = {
    0: _produce, 1: _fetch, 2: _list_offsets, 3: _metadata, 10: _find_coordinator, 18: _api_versions,
    22: _init_producer_id, 24: _add_partitions, 25: _add_offsets, 26: _end_txn, 28: _txn_offset_commit,
    32: _describe_configs, 61: _describe_producers, 65: _describe_transactions, 66: _list_transactions,
}  # fmt: skip
