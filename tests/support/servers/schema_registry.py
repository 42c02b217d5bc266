"""A real schema registry on this machine, and its own API, for tests to register schemas by."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import Request, urlopen

from spark_eos.tools.devcluster.registry import DevRegistry
from tests.support.waiting import TIMEOUT

_JSON = "application/vnd.schemaregistry.v1+json"


class SchemaRegistry(DevRegistry):
    """A registry that is empty, and gone at the end, or with the process of the tests."""

    def register(
        self, subject: str, schema: str, kind: str = "AVRO", references: list[dict[str, Any]] | None = None
    ) -> int:
        """The id of a version of the subject, by the registry's own API."""
        body = {"schema": schema, "schemaType": kind, "references": references or []}
        found: int = self.call("POST", f"subjects/{subject}/versions", body)["id"]
        return found

    def call(self, method: str, path: str, body: object = None) -> Any:  # JSON
        """The answer to a request. Raises HTTPError."""
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self.url}/{path}", data, {"Content-Type": _JSON}, method=method)
        with urlopen(request, timeout=TIMEOUT) as answer:
            return json.load(answer)
