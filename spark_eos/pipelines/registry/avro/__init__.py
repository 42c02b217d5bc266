"""Columns of Avro datums: decoding and encoding thousands at once, with numpy.

::

    schema ── arrow ──── resolve ── items ── readers ── cursor
                │           │
                │        Decoder
                │
                └── plan ── writers ── cells
                      │
                   Encoder

Pure functions: no I/O, no Spark, no registry.
"""

from __future__ import annotations

from spark_eos.pipelines.registry.avro.arrow import arrow_type
from spark_eos.pipelines.registry.avro.decoder import Decoded, Decoder
from spark_eos.pipelines.registry.avro.encoder import Encoded, Encoder
from spark_eos.pipelines.registry.avro.schema import Schema, parse

__all__ = ["Decoded", "Decoder", "Encoded", "Encoder", "Schema", "arrow_type", "parse"]
