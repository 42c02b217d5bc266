"""How many inputs a property is tried with: `FEW` in ``make test``, `MANY` in ``make chaos``, always the same ones."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Any

import pytest
from hypothesis import given, settings

FEW, MANY = 200, 50_000

#: For a test that makes its inputs itself, by seeds.
COUNTS = pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.chaos)])

Test = Callable[..., None]


def inputs(*strategies: Any, each: int = 1, **by_name: Any) -> Callable[[Test], Test]:
    """`hypothesis.given` for so many inputs. ``each``: how many of them an example has, on average."""

    def decorated(test: Test) -> Test:
        by_count = {
            count: settings(max_examples=count // each, derandomize=True)(given(*strategies, **by_name)(test))
            for count in (FEW, MANY)
        }

        def run(count: int, **fixtures: Any) -> None:
            by_count[count](**fixtures)

        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        fixtures = signature(by_count[FEW]).parameters.values()
        run.__signature__ = Signature([Parameter("count", Parameter.POSITIONAL_OR_KEYWORD), *fixtures])
        return COUNTS(run)

    return decorated
