"""Where a mirror may begin: exactly where its target ends, as the offset map has that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.errors import CheckpointError, KafkaError
from spark_eos.options.parse import sink_options, stream_options
from spark_eos.pipelines.mirror.entries import MapEntry, OffsetRun, SourcePartition
from spark_eos.pipelines.mirror.offset_map import METADATA, Origin
from spark_eos.pipelines.mirror.owner import Claim, check_positions, to_record
from spark_eos.pipelines.mirror.plan import MirrorClients, MirrorPlan, Targets
from spark_eos.pipelines.mirror.start import is_new
from tests.support.models.map_logs import MAP, MapLog, with_map
from tests.support.models.memory_clusters import MemoryCluster, id_of

IN = id_of("in")
CLAIM = Claim("q1", IN, "p.in", "in", "ledger", "eos", "/c", "host", 0)


def entry(first: int, rows: int, end: int, target: str = "p.in") -> MapEntry:
    """Offsets ``first`` to ``end``, of which the first ``rows`` have rows."""
    runs = (OffsetRun(first, first, rows),) if rows else ()
    return MapEntry(SourcePartition("here", IN, 0), "in", first, end, target, id_of(target), runs)


def check(at: int, *entries: MapEntry, begin: int = 0, new: bool = True, mirrored: bool = True, **options: str):
    """Begin at this offset, where the source begins at ``begin``. Returns the log of the map."""
    reads = stream_options({"kafka.bootstrap.servers": "here:9092", "subscribe": "in", **options})
    writes = sink_options({"kafka.bootstrap.servers": "there:9092"})
    plan = MirrorPlan(reads, writes, None, "here", Targets("p.", map=MAP), "there")
    log = MapLog()
    known = [Origin(target, id_of(target), "in", IN, ("here",)) for target in ("p.in", "q.in")]
    clients = MirrorClients(MemoryCluster("here"), with_map(log, *known if mirrored else ()))
    clients.source.make("in").begins = [begin]
    for target in ("p.in", "q.in"):
        clients.target.make(target)
    log.write(*entries)
    log.put(METADATA, to_record(CLAIM))
    check_positions(plan, clients, {"in": IN}, {"in": {0: at}}, {"in"} if new else ())
    return log


@given(
    at=st.integers(0, 40),
    cuts=st.lists(st.integers(0, 30), min_size=1, max_size=6, unique=True).map(sorted),
    begin=st.integers(0, 40),
    loses=st.booleans(),
)
def test_where_it_may_begin(at, cuts, begin, loses):
    """Not before the last row that the target has; and behind the end of what was read, only if the source has nothing
    in between any more, or rows may be left out."""
    entries = [entry(first, end - first, end) for first, end in zip([0, *cuts], cuts, strict=False) if first < end]
    end = max((e.end for e in entries), default=0)
    said = None
    try:
        check(at, *entries, begin=begin, failOnDataLoss=str(not loses).lower())
    except KafkaError as error:
        said = error.condition
    if at < end or (at > end and begin < at and not loses):
        assert said == "EOS_MIRROR_BEGINS_ELSEWHERE"
    else:
        assert said is None


def test_offsets_without_a_row_at_the_end():
    """They may be read once more, and there are none to be left out."""
    ends = entry(0, 5, 5), entry(5, 0, 9)
    check(5, *ends)
    check(9, *ends)
    with pytest.raises(KafkaError, match="EOS_MIRROR_BEGINS_ELSEWHERE"):
        check(10, *ends)


def test_a_partition_of_which_nothing_was_mirrored():
    """Its rows so far may have come since the owner was stopped, which would have mirrored them."""
    check(0)
    check(7, begin=7)
    with pytest.raises(KafkaError, match=r"EOS_MIRROR_BEGINS_ELSEWHERE.*begins at offset 7 .*only up to offset 0:"):
        check(7, begin=3)
    check(7, begin=3, failOnDataLoss="false")


def test_whose_rows_they_are():
    """The error says who has the topic; of a query that goes on, where it goes on is no gap."""
    with pytest.raises(KafkaError, match=r"EOS_MIRROR_BEGINS_ELSEWHERE.*by query q1 \(since 1970-01-01"):
        check(3, entry(0, 5, 5))
    check(7, entry(0, 5, 5), new=False)


def test_rows_of_another_target():
    """The same topic with another prefix, in the same map: its end is none of this target's."""
    check(0, entry(0, 5, 5, "q.in"))
    check(5, entry(0, 5, 5), entry(5, 4, 9, "q.in"))


def test_a_checkpoint_that_python_cannot_read():
    """Nobody could tell whether another query mirrors the same."""
    with pytest.raises(CheckpointError):
        is_new("viewfs://somewhere/c", HadoopSettings())


def test_a_topic_that_was_never_mirrored():
    """Nothing is read of the map but origins."""
    assert check(7, mirrored=False).fetched == [(METADATA, 0)]
