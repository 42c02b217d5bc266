"""Errors of spark-eos that a test expects, by their names in conditions.toml, which has their classes, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from spark_eos.errors import EosError


@contextmanager
def raises(entry: str, *says: str) -> Iterator[pytest.ExceptionInfo[EosError]]:
    """The block raises the error with this condition, ``EOS_OTHER_TABLE``, or this wording of one,
    ``EOS_OTHER_TABLE.behind``; ``says`` is in its text."""
    with pytest.raises(EosError) as caught:
        yield caught
    assert entry in (caught.value.condition, caught.value.entry), caught.value
    assert [part for part in says if part not in str(caught.value)] == [], caught.value
