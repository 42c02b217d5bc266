"""Columns of Avro datums: decoding and encoding thousands at once, with numpy.

::

    schema ── arrow ──── resolve ── items ── readers ── cursor
                │           │
                │        Decoder
                │
                └── plan ── writers ── cells
                      │
                   DatumEncoder

Pure functions: no I/O, no Spark, no registry.
"""

from __future__ import annotations

from spark_eos.pipelines.registry.avro.arrow import arrow_type
from spark_eos.pipelines.registry.avro.decoder import DecodedValues, Decoder
from spark_eos.pipelines.registry.avro.encoder import DatumEncoder, EncodedValues
from spark_eos.pipelines.registry.avro.schema import Schema, parse

__all__ = ["DatumEncoder", "DecodedValues", "Decoder", "EncodedValues", "Schema", "arrow_type", "parse"]
