"""Avro, Protobuf and JSON by the schemas of a schema registry: extra ``registry``.

::

    settings ── client ── subjects          the driver and workers ask, by what the user has set
                  │
    wire ── decoding · encoding ── functions (Columns)
                  │
       avro_values · protobuf_values · json_values          one writer's schema → Arrow, and back

Importing this module imports neither Arrow, Spark nor the registry's client.
"""

from __future__ import annotations

from spark_eos.registry.functions import from_registry, to_registry

__all__ = ["from_registry", "to_registry"]
