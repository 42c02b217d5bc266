"""Brokers that answer in bytes, by kafka-python's codec, which shares nothing with ours."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from kafka.protocol.metadata import (
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

API_VERSIONS = 18
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
_REQUESTS = {
    3: MetadataRequest,
    10: FindCoordinatorRequest,
    SASL_HANDSHAKE: SaslHandshakeRequest,
    SASL_AUTHENTICATE: SaslAuthenticateRequest,
}
#: Requests whose answers have no tags in the header.
_PLAIN = {API_VERSIONS, SASL_HANDSHAKE}
#: What these brokers speak, unless told otherwise.
SPOKEN = {3: (0, 12), 10: (0, 4), 18: (0, 4), 22: (0, 5), 66: (0, 2)}


class FakeBroker:
    """One broker on a port of its own. ``cluster``: number → broker, shared by all of a cluster.

    ``fate``: what becomes of each request: "works", "silent", or "closes" after the request was read. ``mechanism``:
    the one by which clients say who they are, and ``said``: what they say, which is believed if it ``believes`` all, or
    this. ``refused``: topics by the error code that it has for each; None for one of which it says nothing.
    """

    def __init__(
        self, number: int, cluster: dict[int, FakeBroker], spoken: Mapping[int, tuple[int, int]] = SPOKEN
    ) -> None:
        self.number, self.cluster, self.spoken = number, cluster, dict(spoken)
        self.fate = "works"
        self.features: dict[str, int] = {"transaction.version": 2}
        self.topics: dict[str, list[int]] = {}
        self.refused: dict[str, int | None] = {}
        self.coordinators: dict[str, int] = {}
        self.asked: list[int] = []
        #: Where it says that it can be reached, if not where it listens.
        self.advertised: tuple[str, int] | None = None
        self.mechanism = "OAUTHBEARER"
        self.said: list[bytes] = []
        self.believes: bool | Callable[[bytes], bool] = True
        self.connections = 0
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        cluster[number] = self
        self._start(self._accept)

    def close(self) -> None:
        """Gone, with all connections."""
        self.cluster.pop(self.number, None)
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(10)

    @property
    def place(self) -> tuple[str, int]:
        """Host and port, as the cluster tells them."""
        return self.advertised or ("127.0.0.1", self.port)

    @property
    def held(self) -> int:
        """Connections that neither side has closed."""
        return sum(connection.fileno() != -1 for connection in self._open)

    def cut(self) -> None:
        """All connections end; new ones are taken."""
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _start(self, work: Callable[..., None], *arguments: Any) -> None:
        self._threads.append(threading.Thread(target=work, args=arguments, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                self._open.append(connection)
                self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while len(size := connection.recv(4, socket.MSG_WAITALL)) == 4:
                data = connection.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL)
                api, version, number = struct.unpack_from(">hhi", data)
                self.asked.append(api)
                if self.fate == "closes":
                    return
                if self.fate == "silent":
                    continue
                body = self._answer(api, version, data)
                head = struct.pack(">i", number) + (b"" if api in _PLAIN else b"\x00")
                connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)

    def _answer(self, api: int, version: int, data: bytes) -> bytes:
        if api == API_VERSIONS:
            return bytes(self._api_versions().encode(version=version))
        request = _REQUESTS[api].decode(data, version=version, header=True)
        if api == SASL_HANDSHAKE:
            answer = SaslHandshakeResponse(error_code=0, mechanisms=[self.mechanism])
            answer.error_code = 0 if request.mechanism == self.mechanism else 33
        elif api == SASL_AUTHENTICATE:
            self.said.append(request.auth_bytes)
            answer = SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=0)
            if not (self.believes(request.auth_bytes) if callable(self.believes) else self.believes):
                answer.error_code, answer.error_message = 58, "invalid credentials"
        else:
            answer = self._metadata(request) if api == 3 else self._coordinator_of(request)
        return bytes(answer.encode(version=version))

    def _api_versions(self) -> ApiVersionsResponse:
        of, feature = ApiVersionsResponse.ApiVersion, ApiVersionsResponse.FinalizedFeatureKey
        return ApiVersionsResponse(
            error_code=0,
            api_keys=[of(api_key=k, min_version=a, max_version=b) for k, (a, b) in self.spoken.items()],
            throttle_time_ms=0,
            finalized_features=[
                feature(name=name, max_version_level=level, min_version_level=level)
                for name, level in self.features.items()
            ],
        )

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        broker, topic = MetadataResponse.MetadataResponseBroker, MetadataResponse.MetadataResponseTopic
        partition = topic.MetadataResponsePartition
        names = list(self.topics) if request.topics is None else [asked.name for asked in request.topics]
        return MetadataResponse(
            throttle_time_ms=0,
            brokers=[
                broker(node_id=n, host=each.place[0], port=each.place[1], rack=None) for n, each in self.cluster.items()
            ],
            cluster_id="fake",
            controller_id=min(self.cluster),
            topics=[
                topic(
                    error_code=self.refused.get(name, 0 if name in self.topics else 3),
                    name=name,
                    topic_id=None,
                    is_internal=False,
                    partitions=[
                        partition(
                            error_code=0,
                            partition_index=i,
                            leader_id=leader,
                            leader_epoch=0,
                            replica_nodes=[leader],
                            isr_nodes=[leader],
                            offline_replicas=[],
                        )
                        for i, leader in enumerate(self.topics.get(name, []))
                    ],
                )
                for name in names
                if self.refused.get(name, 0) is not None
            ],
        )

    def _coordinator_of(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        found = []
        for key in request.coordinator_keys:
            node = self.coordinators.get(key, -1)
            host, port = self.cluster[node].place if node >= 0 else ("", -1)
            error = 0 if node >= 0 else 15
            row = FindCoordinatorResponse.Coordinator(
                key=key, node_id=node, host=host, port=port, error_code=error, error_message=None
            )
            found.append(row)
        return FindCoordinatorResponse(throttle_time_ms=0, coordinators=found)
