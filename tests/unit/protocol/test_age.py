"""How old a transaction is, by clocks that may be off."""

from __future__ import annotations

import pytest

from spark_eos.protocol.age import age_ms


@pytest.mark.parametrize(
    ("by_task", "by_coordinator", "passed", "age"),
    [
        (5_000, 4_900, 7_000, 5_000),
        (5_000, 3_604_900, 7_000, 5_000),  # the broker's clock is an hour behind
        (5_000, -3_595_100, 7_000, 5_000),  # the broker's clock is an hour ahead
        (-3_595_000, -3_595_100, 7_000, 0),  # the driver's clock is an hour behind
        (3_605_000, 3_604_900, 7_000, 7_000),  # the driver's clock is an hour ahead
        (3_605_000, 4_900, 7_000, 7_000),  # the executor's clock is an hour behind
        (-3_595_000, 4_900, 7_000, 4_900),  # the executor's clock is an hour ahead
        (3_605_000, 3_604_900, 3_607_000, 3_605_000),  # it is old
        (5_000, 4_900, 3_607_000, 5_000),  # the stages before took an hour
        (3_605_000, 3_604_900, None, 3_605_000),
        (-1, 0, None, 0),
    ],
)
def test_a_clock_that_is_off_does_not_make_a_transaction_old(by_task, by_coordinator, passed, age):
    """The longest time that can be; one that cannot be is that of a clock."""
    assert age_ms(by_task, by_coordinator, passed) == age
