"""Lines of the offset log, moved back."""

from __future__ import annotations

import json

from spark_eos.checkpoint.offset_log import source_line
from spark_eos.ops.replay_offsets import moved


def test_the_leader_epoch_of_another_offset_is_left_out():
    """It is that of the record before the offset at which the query was."""
    line = '{"#epochs":{"t":{"0":4,"1":4}},"t":{"0":9,"1":9}}'
    (found,) = moved([source_line(line)], {("t", 0): 5})
    assert json.loads(found) == {"#epochs": {"t": {"1": 4}}, "t": {"0": 5, "1": 9}}
