"""Where a mirror may begin: exactly where its target ends, as the offset map has that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.errors import CheckpointError, KafkaError
from spark_eos.kafka.admin.topics import Topic
from spark_eos.options.parse import sink_options, stream_options
from spark_eos.pipelines.mirror import owner
from spark_eos.pipelines.mirror.entries import MapEntry, OffsetRun, SourcePartition
from spark_eos.pipelines.mirror.offset_map import OffsetMap, Origin
from spark_eos.pipelines.mirror.owner import Claim, check_positions
from spark_eos.pipelines.mirror.plan import MirrorClients, MirrorPlan, Targets
from spark_eos.pipelines.mirror.start import is_new
from tests.support.models.map_logs import MapLog, reading

IDS = {"in": "in-id"}


def plan(**options: str) -> MirrorPlan:
    reads = stream_options({"kafka.bootstrap.servers": "here:9092", "subscribe": "in", **options})
    writes = sink_options({"kafka.bootstrap.servers": "there:9092"})
    return MirrorPlan(reads, writes, None, "here", Targets("p.", map="map"), "there")


CLIENTS = MirrorClients.for_plan(plan())


def entry(first: int, rows: int, end: int, target: str = "p.in") -> MapEntry:
    """Offsets ``first`` to ``end``, of which the first ``rows`` have rows."""
    runs = (OffsetRun(first, first, rows),) if rows else ()
    return MapEntry(SourcePartition("here", "in-id", 0), "in", first, end, target, f"{target}-id", runs)


def check(patch: pytest.MonkeyPatch, at: int, *entries: MapEntry, begin: int = 0, new: bool = True, **options: str):
    """Begin at this offset, where the source begins at ``begin``."""
    log = MapLog()
    log.write(*entries)
    known = [Origin(f"{prefix}in", f"{prefix}in-id", "in", "in-id", ("here",)) for prefix in ("p.", "q.")]
    claim = Claim("q1", "in-id", "p.in", "in", "ledger", "eos", "/c", "host", 0)
    patch.setattr(owner, "origins", lambda *_: known)
    patch.setattr(
        owner, "describe_topics", lambda _, names, **__: {n: Topic(f"{n}-id", 1, internal=False) for n in names}
    )
    patch.setattr(owner, "begin_offsets", lambda _, asked: {t: dict.fromkeys(p, begin) for t, p in asked.items()})
    patch.setattr(owner, "read_claims", lambda *_: [claim])
    with reading(log):
        check_positions(plan(**options), CLIENTS, IDS, {"in": {0: at}}, {"in"} if new else ())


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
    with pytest.MonkeyPatch.context() as patch:
        try:
            check(patch, at, *entries, begin=begin, failOnDataLoss=str(not loses).lower())
        except KafkaError as error:
            said = error.condition
    if at < end or (at > end and begin < at and not loses):
        assert said == "EOS_MIRROR_BEGINS_ELSEWHERE"
    else:
        assert said is None


def test_offsets_without_a_row_at_the_end(monkeypatch):
    """They may be read once more, and there are none to be left out."""
    ends = entry(0, 5, 5), entry(5, 0, 9)
    check(monkeypatch, 5, *ends)
    check(monkeypatch, 9, *ends)
    with pytest.raises(KafkaError, match="EOS_MIRROR_BEGINS_ELSEWHERE"):
        check(monkeypatch, 10, *ends)


def test_a_partition_of_which_nothing_was_mirrored(monkeypatch):
    """Its rows so far may have come since the owner was stopped, which would have mirrored them."""
    check(monkeypatch, 0)
    check(monkeypatch, 7, begin=7)
    with pytest.raises(KafkaError, match=r"EOS_MIRROR_BEGINS_ELSEWHERE.*begins at offset 7 .*only up to offset 0:"):
        check(monkeypatch, 7, begin=3)
    check(monkeypatch, 7, begin=3, failOnDataLoss="false")


def test_whose_rows_they_are(monkeypatch):
    """The error says who has the topic; of a query that goes on, where it goes on is no gap."""
    with pytest.raises(KafkaError, match=r"EOS_MIRROR_BEGINS_ELSEWHERE.*by query q1 \(since 1970-01-01"):
        check(monkeypatch, 3, entry(0, 5, 5))
    check(monkeypatch, 7, entry(0, 5, 5), new=False)


def test_rows_of_another_target(monkeypatch):
    """The same topic with another prefix, in the same map: its end is none of this target's."""
    check(monkeypatch, 0, entry(0, 5, 5, "q.in"))
    check(monkeypatch, 5, entry(0, 5, 5), entry(5, 4, 9, "q.in"))


def test_a_checkpoint_that_python_cannot_read():
    """Nobody could tell whether another query mirrors the same."""
    with pytest.raises(CheckpointError):
        is_new("viewfs://somewhere/c", HadoopSettings())


def test_a_topic_that_was_never_mirrored(monkeypatch):
    """Nothing is read of the map."""
    monkeypatch.setattr(owner, "origins", lambda *_: [])
    monkeypatch.setattr(OffsetMap, "read", lambda *_: pytest.fail("the map was read"))
    check_positions(plan(), CLIENTS, IDS, {"in": {0: 7}}, {"in"})
