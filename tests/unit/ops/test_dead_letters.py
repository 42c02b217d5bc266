"""Which letters a receipt names, and where a letter belongs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_eos.ops.dead_letters import Letter, Receipt, Sent


def letter(*headers: tuple[str, bytes | None]) -> Letter:
    return Letter(0, 7, b"k", b"v", headers, 0)


@given(st.lists(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=12), max_size=4))
def test_what_several_receipts_name_is_what_was_sent(runs):
    """Of letters with gaps between them, whichever each run has sent; and no letter besides."""
    offsets = sorted({offset for run in runs for offset, _ in run})
    sent: set[int] = set()
    ranges: list[tuple[int, int]] = []
    for run in runs:
        wanted = {offset for offset, is_sent in run if is_sent}
        receipt = Receipt()
        for offset in offsets:
            receipt.passed(offset, sent=offset in wanted and offset not in sent)
        sent |= wanted
        ranges += receipt.ranges
    found = Sent(ranges)
    assert [offset for offset in offsets if found.has(offset)] == sorted(sent)


def test_letters_that_follow_one_another_are_one_range():
    """Whatever lies between them, such as markers of transactions."""
    receipt = Receipt()
    for offset, sent in ((2, True), (4, True), (9, True), (11, False), (12, True)):
        receipt.passed(offset, sent=sent)
    assert receipt.ranges == [(2, 10), (12, 13)]


def test_a_letter_belongs_to_the_topic_that_refused_it_or_that_it_was_read_from():
    """To the partition as well, where the letter names one."""
    refused = letter(("__spark_eos.target.topic", b"out"), ("__spark_eos.target.partition", b"3"), ("mine", b"1"))
    assert refused.origin == ("out", 3)
    assert refused.own_headers == [("mine", b"1")]
    unparsed = letter(("__streams.errors.topic", b"in"), ("__streams.errors.partition", b"2"))
    assert unparsed.origin == ("in", 2)
    assert letter(("__streams.errors.topic", b"in"), ("__streams.errors.partition", b"x")).origin == ("in", None)
    assert letter(("mine", None)).origin is None
    assert letter(("__streams.errors.exception", b"org.apache.Some")).reason == "Some"
    assert letter().reason == "unknown"
