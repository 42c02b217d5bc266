"""Avro, Protobuf and JSON by the schemas of a schema registry: extra ``registry``.

::

    settings ── client ── subjects
                   │
    wire ── decoding, encoding ── functions (Columns)
                   │
       avro/ · protobuf · json_schema         one writer's schema → Arrow, and back

Importing this module imports neither Arrow, Spark nor the registry's client.
"""

from __future__ import annotations
