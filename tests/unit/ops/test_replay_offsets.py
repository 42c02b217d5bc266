"""Lines of the offset log, moved back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_eos.checkpoint.offset_log import source_line
from spark_eos.errors import OptionError
from spark_eos.ops.replay_offsets import by_offsets, moved
from spark_eos.ops.replay_plan import milliseconds
from tests.support.judges.conditions import raises


def test_the_leader_epoch_of_another_offset_is_left_out():
    """It is that of the record before the offset at which the query was."""
    line = '{"#epochs":{"t":{"0":4,"1":4}},"t":{"0":9,"1":9}}'
    (found,) = moved([source_line(line)], {("t", 0): 5})
    assert json.loads(found) == {"#epochs": {"t": {"1": 4}}, "t": {"0": 5, "1": 9}}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("20240101", "early 1970"),
        ("1704067200", "early 1970"),
        ("0", "early 1970"),
        ("2024-01-01", "'2024-01-01'."),
        ("yesterday", "'yesterday'."),
        ("-1704067200000", "'-1704067200000'."),
        ("1969-12-31T23:59:59.999Z", "before 1970"),
        ("1970-01-01T00:00:00+01:00", "before 1970"),
    ],
)
def test_what_is_no_time_for_certain_is_refused(text, says):
    """A date without its dashes, or seconds: as milliseconds they would begin at the first row that is there."""
    assert milliseconds("1704067200000") == milliseconds("2024-01-01T00:00:00Z") == 1_704_067_200_000
    with raises("EOS_REPLAY_REFUSED.timestamp", says):
        milliseconds(text)


@pytest.mark.parametrize("text", ['{"\\ud800":{"0":1}}', f'{{"t":{{"0":{"9" * 5000}}}}}', "[" * 200_000])
def test_offsets_that_python_cannot_parse_are_no_traceback(text):
    """As with the options of a query."""
    client: Any = None
    with pytest.raises(OptionError) as caught:
        by_offsets(client, [], text)
    assert caught.value.parameters["option"] == "--to-offsets"
