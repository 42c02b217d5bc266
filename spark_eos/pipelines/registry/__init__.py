"""Avro, Protobuf and JSON by the schemas of a schema registry: extra ``registry``.

::

    settings ── client ── subjects          requests to the registry, from the driver and from workers
                  │
    wire ── decoding · encoding ── functions (Columns)
                  │
       avro_values · protobuf_values · json_values          bytes of one schema → Arrow, and back

Importing this module imports neither Arrow, Spark nor the registry's client.
"""

from __future__ import annotations

from spark_eos.pipelines.registry.functions import from_registry, to_registry

__all__ = ["from_registry", "to_registry"]
