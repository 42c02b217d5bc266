"""Encodes the headers of rows as they stand at the end of each record, without a Python object per header. No I/O.

Their number, and for each header the length of its key, the key, the length of its value, the value. Numbers are zigzag
varints; a length of -1 stands for a null value. A row without headers has a zero.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_eos.kafka.records.varints import ragged, varints


def encode_headers(headers: pa.ListArray | pa.DictionaryArray) -> pa.BinaryArray:
    """Encode headers. ``headers``: for n rows a list of structs with ``key`` (string, never null) and ``value``
    (binary), or null. Rows of which many have the same list may have a dictionary of lists, each encoded once."""
    if isinstance(headers, pa.DictionaryArray):
        if headers.null_count:
            return encode_headers(headers.dictionary_decode())
        return encode_headers(headers.dictionary).take(headers.indices)
    counts = np.asarray(pc.fill_null(pc.list_value_length(headers), 0)).astype(np.int64)
    flat = headers.flatten()
    encoded = _encode(flat.field("key").cast(pa.binary()), flat.field("value").cast(pa.binary()))
    # A row's headers lie one behind the other already: only the bounds change.
    bounds = np.frombuffer(encoded.buffers()[1], np.int32)[np.append(0, np.cumsum(counts))]
    of_rows = pa.BinaryArray.from_buffers(
        pa.binary(), len(headers), [None, pa.py_buffer(bounds.astype(np.int32)), encoded.buffers()[2]]
    )
    return pc.binary_join_element_wise(ragged([varints(counts)]), of_rows, b"")


def _encode(key: pa.BinaryArray, value: pa.BinaryArray) -> pa.BinaryArray:
    before_key = ragged([varints(_lengths(key))])
    before_value = ragged([varints(_lengths(value))])
    return pc.binary_join_element_wise(before_key, key, before_value, pc.fill_null(value, b""), b"")


def _lengths(column: pa.BinaryArray) -> np.ndarray:
    return np.asarray(pc.fill_null(pc.binary_length(column), -1)).astype(np.int64)
