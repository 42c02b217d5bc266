"""Bounds for the answers of a registry, and of the servers that give tokens for it.

httpx unpacks an answer whole, however large it becomes: two megabytes of gzip can be two gigabytes.
"""

from __future__ import annotations

import zlib
from typing import Any

#: The most bytes of an answer when it is unpacked. Schemas are records of a topic, of a megabyte unless somebody raises
#: that limit.
MOST_BYTES = 8 << 20
_GZIP = 16 + zlib.MAX_WBITS


class AnswerRefused(Exception):
    """An answer that is too large, or has an encoding that was not requested."""


def bound_answers(client: Any) -> None:  # noqa: ANN401  # their SchemaRegistryClient
    """Let this client, and the one by which it gets its tokens, read no more than `MOST_BYTES` of an answer."""
    rest = client._rest_client  # noqa: SLF001  # there is no setting for it
    for session in (rest.session, getattr(rest.bearer_field_provider, "client", None)):
        if session is not None:
            session.headers["Accept-Encoding"] = "gzip"
            session.event_hooks = {"response": [_read_bounded]}


def _read_bounded(response: Any) -> None:  # noqa: ANN401  # httpx's Response
    """Replace the answer's unread stream by its bytes. Raises AnswerRefused."""
    from confluent_kafka.schema_registry.common._httpx_compat import httpx

    encoding = response.headers.pop("Content-Encoding", "identity").lower()
    if encoding not in ("identity", "gzip"):
        raise AnswerRefused(f"it is packed as {encoding[:20]!r}")
    unzip = zlib.decompressobj(_GZIP) if encoding == "gzip" else None
    body = bytearray()
    for piece in response.stream:
        body += piece if unzip is None else unzip.decompress(piece, MOST_BYTES + 1 - len(body))
        if len(body) > MOST_BYTES:
            raise AnswerRefused(f"it has more than {MOST_BYTES >> 20} MiB")
    response.stream.close()
    if unzip is not None and body and not unzip.eof:
        raise AnswerRefused("it is packed, and ends too early")
    response.stream = httpx.ByteStream(bytes(body))
