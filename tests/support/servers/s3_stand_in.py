"""An S3 server in this process that can lose replies, ignore conditions, and apply a request late.

It knows what delta-rs asks of S3: objects by path, ranges of them, lists, and ``If-None-Match: *``. Signatures are not
checked.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from hashlib import md5
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.pipelines.tables.delta.table import Location, StorageOptions, location_of
from tests.support.servers.http_server import Handler, answering
from tests.support.servers.object_store import ObjectStore
from tests.support.waiting import TIMEOUT

BUCKET = "tables"
#: What becomes of a request that puts an object: it is answered as it should be; it is applied, and the connection
#: ends without an answer; the connection ends, and the request is applied when `S3StandIn.apply_late` is called.
FINE, LOSE_REPLY, LATE = "fine", "lose reply", "late"


def first_try(action: str) -> Callable[[str], str]:
    """This, for the first put of each version of a Delta table's log."""
    seen: set[str] = set()

    def fault(key: str) -> str:
        if "_delta_log/" not in key or not key.endswith(".json") or key in seen:
            return FINE
        seen.add(key)
        return action

    return fault


@dataclass
class S3StandIn:
    """``fault``: of the put of a key. ``conditions``: whether they are kept."""

    objects: dict[str, bytes] = field(default_factory=dict)
    fault: Callable[[str], str] = lambda key: FINE
    conditions: bool = True
    lock: threading.RLock = field(default_factory=threading.RLock)
    late: list[tuple[str, bytes, bool]] = field(default_factory=list)
    #: Every put that was applied or refused: key, and whether it was applied.
    puts: list[tuple[str, bool]] = field(default_factory=list)
    port: int = 0

    def put(self, key: str, content: bytes, *, if_absent: bool) -> bool:
        """Whether it was applied."""
        with self.lock:
            applied = not (if_absent and self.conditions and key in self.objects)
            if applied:
                self.objects[key] = content
            self.puts.append((key, applied))
            return applied

    def keep(self, path: str, content: bytes) -> None:
        """Put an object at once, as a client does that nothing goes wrong for."""
        with self.lock:
            self.objects[path] = content

    def apply_late(self) -> None:
        """Apply what was put off, in order."""
        with self.lock:
            late, self.late = self.late, []
        for key, content, if_absent in late:
            self.put(key, content, if_absent=if_absent)

    def location(self, path: str) -> Location:
        """Of a table in the bucket, with a client that sends a request three times."""
        settings = HadoopSettings(ObjectStore(f"127.0.0.1:{self.port}").settings)
        found = location_of(f"s3a://{BUCKET}/{path}", settings)
        within = f"{TIMEOUT:.0f}s"
        few = {"timeout": within, "retry_timeout": within, "max_retries": "2"}
        return replace(found, options=StorageOptions({**found.options, **few}))


@contextlib.contextmanager
def s3_stand_in() -> Iterator[S3StandIn]:
    """An empty one on a free port of the loopback, gone at the end."""
    store = S3StandIn()

    with answering(type("Asked", (_Asked,), {"stand_in": store}), quiet=True) as store.port:
        yield store


class _Asked(Handler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body in one packet
    stand_in: S3StandIn

    def _place(self) -> tuple[str, dict[str, str]]:
        url = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        return unquote(url.path).removeprefix(f"/{BUCKET}").lstrip("/"), query

    def do_PUT(self) -> None:
        key, _ = self._place()
        content = self.body()
        if_absent = self.headers.get("If-None-Match") == "*"
        fault = self.stand_in.fault(key)
        if fault == LATE:
            self.stand_in.late.append((key, content, if_absent))
            self.close_connection = True
            return
        applied = self.stand_in.put(key, content, if_absent=if_absent)
        if fault == LOSE_REPLY:
            self.close_connection = True
            return
        if applied:
            self.reply(200, b"", {"ETag": _etag(content)})
        else:
            self.reply(412, b"<Error><Code>PreconditionFailed</Code></Error>")

    def do_GET(self) -> None:
        key, query = self._place()
        if "list-type" in query:
            self.reply(200, self._listed(query), {"Content-Type": "application/xml"})
        else:
            self._object(key)

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        with self.stand_in.lock:
            self.stand_in.objects.pop(self._place()[0], None)
        self.reply(204, b"")

    def do_POST(self) -> None:
        """Several objects are deleted."""
        text = self.body().decode()
        keys = [unquote(part.partition("</Key>")[0]) for part in text.split("<Key>")[1:]]
        with self.stand_in.lock:
            for key in keys:
                self.stand_in.objects.pop(key, None)
        done = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        self.reply(200, f"<DeleteResult>{done}</DeleteResult>".encode())

    def _object(self, key: str) -> None:
        with self.stand_in.lock:
            content = self.stand_in.objects.get(key)
        if content is None:
            self.reply(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        headers = {"ETag": _etag(content), "Last-Modified": formatdate(usegmt=True)}
        asked = self.headers.get("Range", "")
        if not asked:
            self.reply(200, content, headers)
            return
        first, _, last = asked.removeprefix("bytes=").partition("-")
        begin = int(first) if first else max(0, len(content) - int(last))
        end = min(int(last) + 1, len(content)) if first and last else len(content)
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(content)}"
        self.reply(206, content[begin:end], headers)

    def _listed(self, query: dict[str, str]) -> bytes:
        prefix, delimiter, after = (query.get(name, "") for name in ("prefix", "delimiter", "start-after"))
        with self.stand_in.lock:
            sizes = {key: len(content) for key, content in self.stand_in.objects.items()}
        found, folders = "", set()
        for key, size in sorted(sizes.items()):
            if not key.startswith(prefix) or key <= after:
                continue
            rest, cut, _ = key.removeprefix(prefix).partition(delimiter) if delimiter else (key, "", "")
            if cut:
                folders.add(prefix + rest + delimiter)
                continue
            found += (
                f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size><ETag>&quot;x&quot;</ETag>"
                "<LastModified>2024-01-01T00:00:00.000Z</LastModified></Contents>"
            )
        common = "".join(f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in sorted(folders))
        text = f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}{common}</ListBucketResult>"
        return b'<?xml version="1.0" encoding="UTF-8"?>' + text.encode()


def _etag(content: bytes) -> str:
    return f'"{md5(content, usedforsecurity=False).hexdigest()}"'
