"""REST catalogs: limits of time and memory for each request. Also tells which errors of any catalog are temporary.

pyiceberg limits no request, so that a server which never answers would hold a query for ever, and one whose answer is
two megabytes of gzip can fill the driver's memory with two gigabytes. Only this module and
`spark_eos.pipelines.tables.iceberg.snapshots` use private names of pyiceberg.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import requests
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ServerError, ServiceUnavailableError, TooManyRequestsError

from spark_eos.pipelines.deadline import Overdue, within

#: The most seconds for a request to a REST catalog, with the token that it may need, redirects and the whole answer.
#: Half of the time for which a commit is tried: after a request without an answer, the table is read again.
REQUEST_S = 30.0
#: The most bytes of an answer when it is unpacked. The metadata of ten thousand snapshots has some ten MiB.
MOST_BYTES = 256 << 20
_PASSING = (
    Overdue,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    requests.ConnectionError,
    requests.Timeout,
)
#: Errors of databases, Glue and Hive that pass, by their names, as their packages need not be there: one is locked, or
#: nobody answers.
_PASSING_NAMES = frozenset(
    {
        "botocore.exceptions.ConnectionError",
        "botocore.exceptions.HTTPClientError",
        "sqlalchemy.exc.InterfaceError",
        "sqlalchemy.exc.OperationalError",
        "sqlalchemy.exc.TimeoutError",
        "thrift.transport.TTransport.TTransportException",
    }
)


def opened_in_time(open_: Callable[[], Catalog], overdue: Callable[[], object]) -> Catalog:
    """Return the catalog that ``open_`` makes. If it is a REST catalog, each request that it sends from then on is
    limited to `REQUEST_S` seconds and `MOST_BYTES`, as is the making of any catalog to that time.

    ``overdue``: called when a request took longer. The thread that sent it still uses the catalog, and may hold its
    locks, so that the next request is for another one. Raises Overdue, and errors of pyiceberg.
    """
    catalog = within(REQUEST_S, open_, "spark-eos-iceberg")
    from pyiceberg.catalog.rest import RestCatalog

    if isinstance(catalog, RestCatalog):
        _limit(catalog._session, overdue)  # noqa: SLF001  # pyiceberg has no setting for it
    return catalog


def _limit(session: requests.Session, overdue: Callable[[], object]) -> None:
    right = session.request
    session.headers["Accept-Encoding"] = "gzip"
    session.hooks["response"].append(_bound)

    def request(*arguments: object, **named: object) -> requests.Response:
        # A limit of the socket's, too, which ends the thread where nothing comes any more; ours ends first.
        call = partial(right, *arguments, **{"timeout": 1.2 * REQUEST_S, **named})  # type: ignore[arg-type]
        try:
            return within(REQUEST_S, call, "spark-eos-iceberg")
        except Overdue:
            overdue()
            raise

    session.request = request  # type: ignore[method-assign]


def _bound(response: requests.Response, **_: object) -> None:
    """Let no more than `MOST_BYTES` be read of an answer, whose body has not been read so far. Raises
    RequestException."""
    encoding = response.headers.get("Content-Encoding", "identity").lower()
    if encoding not in ("identity", "gzip"):
        raise requests.RequestException(f"the answer is packed as {encoding[:20]!r}")
    response.raw.stream = partial(_pieces, response.raw.stream)


def _pieces(stream: Callable[..., Iterator[bytes]], *how: object, **named: object) -> Iterator[bytes]:
    """Unpack a body piece by piece, as urllib3 does it. Raises RequestException for a larger one."""
    size = 0
    for piece in stream(*how, **named):
        size += len(piece)
        if size > MOST_BYTES:
            raise requests.RequestException(f"the answer has more than {MOST_BYTES >> 20} MiB")
        yield piece


def is_passing(error: BaseException) -> bool:
    """Return whether the same request may succeed in a while: there was no answer to it, or one that says so."""
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}
    return isinstance(error, _PASSING) or not names.isdisjoint(_PASSING_NAMES)
