"""The network between the query and the brokers fails. Only the query goes through proxies; readers look directly."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.kills.scene import Scene, topics_of
from tests.support.queries.data_paths import also_by
from tests.support.servers.proxy import Proxy

pytestmark = pytest.mark.chaos

POINTS = {"prepare.wrote": "hold@7", "commit.verified": "hold@3", "commit.decided": "hold@3"}  # in micro-batch 2
CUT_S = 8.0
DELAY_S = 0.3
ANSWER_BYTES = 10  # less than any answer has


def cut(proxy: Proxy) -> None:
    proxy.cut()


def delay(proxy: Proxy) -> None:
    proxy.delay(DELAY_S)


def reset(proxy: Proxy) -> None:
    proxy.reset_after(ANSWER_BYTES)


@also_by("copy", "transform", "mirror")
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(("fault", "lasts"), [(cut, CUT_S), (delay, CUT_S), (reset, 0.0)])
def test_the_network_fails(fault: Callable, lasts, point, brokers, view_of_three, proxies, way, spark, tmp_path):
    """Cut: connections drop and new ones are refused. Delayed: every answer takes 0.6 s. Reset: answers break off."""
    through = ",".join(proxy.address for proxy in proxies)
    scene = Scene(view_of_three, topics_of(brokers), tmp_path, way=way, bootstrap_servers=through)
    resets = sum(proxy.resets for proxy in proxies)

    def happens(started):
        for proxy in proxies:
            fault(proxy)

    def passes():
        if fault is not reset:
            for proxy in proxies:
                proxy.restore()

    scene.strike(spark, f"{point}={POINTS[point]}", happens, lasts=lasts, passes=passes)
    assert (sum(proxy.resets for proxy in proxies) > resets) == (fault is reset)
