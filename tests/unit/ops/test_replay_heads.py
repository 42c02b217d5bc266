"""What the heads of a query say against a replay."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_eos.errors import ReplayError
from spark_eos.ops.heads import SinkHead
from spark_eos.ops.replay_plan import ReplayRequest, check_heads
from spark_eos.protocol.head import MOST_TOPICS, Decision, Head

NOTHING = Decision(7, 0, 1, 0, 0, None, ())
HEAD = Head("r", 3, (), 5, NOTHING).with_topics(["flights", "late"])


def check(head: Head, topic: str) -> None:
    check_heads([SinkHead("q", "q", None, head)], ReplayRequest("/new", batch=1, topic=topic))


@pytest.mark.parametrize("topic", ["flights", "late"])
def test_no_replay_goes_to_a_topic_of_the_query(topic):
    """Whether its last micro-batch has written there, or none of late; after a start that has decided nothing, too."""
    for head in (HEAD, replace(HEAD.succeeded_by("s", 5), decision=None)):
        with pytest.raises(ReplayError, match="EOS_REPLAY_REFUSED") as caught:
            check(head, topic)
        assert f"writes to {topic}, or did" in caught.value.message
        check(head, "another")


def test_no_replay_goes_to_a_topic_that_may_be_one_of_too_many():
    """The heads name only so many."""
    many = HEAD.with_topics(map(str, range(MOST_TOPICS)))
    with pytest.raises(ReplayError, match="EOS_REPLAY_REFUSED") as caught:
        check(many, "another")
    assert f"more than {MOST_TOPICS} topics" in caught.value.message
    assert caught.value.hint == "Use another topic, or --again, which retires the query. Nothing was changed."
