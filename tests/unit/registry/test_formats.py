"""The bytes of values without those that name their schema."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.registry.formats import own_bytes

rows = st.lists(st.tuples(st.integers(0, 20), st.binary(max_size=8)), max_size=12)


@given(rows, st.integers(0, 3), st.sampled_from([pa.binary(), pa.large_binary()]))
def test_each_value_keeps_its_own_bytes(rows, skipped, type_):
    """Whatever number of bytes is before them, in a slice, too."""
    values = pa.array([b"x" * begin + value for begin, value in rows], type_).slice(skipped)
    found = own_bytes(values, np.array([begin for begin, _ in rows][skipped:], np.int64))
    assert found.type == pa.binary()
    found.validate(full=True)
    assert found.to_pylist() == [value for _, value in rows][skipped:]
