"""REST catalogs: a limit of time for each request. And which errors of catalogs of any kind pass.

pyiceberg limits no request, so that a server which never answers would hold a query for ever. This module and
`spark_eos.pipelines.tables.iceberg.snapshots` are the ones that use what is private in pyiceberg.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import requests
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ServerError, ServiceUnavailableError, TooManyRequestsError

from spark_eos.pipelines.deadline import Overdue, within

#: The most seconds for a request to a REST catalog, with the token that it may need, redirects and the whole answer.
#: Half of the time for which a commit is tried: after a request without an answer, the table is read again.
REQUEST_S = 30.0
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
    """The catalog that ``open_`` makes. If it is a REST catalog, each request that it sends from then on is limited to
    `REQUEST_S` seconds, as is the making of any catalog.

    ``overdue``: called when a request took longer. The thread that sent it still uses the catalog, and may hold its
    locks, so that the next request is for another one. Raises Overdue, and what pyiceberg raises.
    """
    catalog = within(REQUEST_S, open_, "spark-eos-iceberg")
    from pyiceberg.catalog.rest import RestCatalog

    if isinstance(catalog, RestCatalog):
        _limit(catalog._session, overdue)  # noqa: SLF001  # pyiceberg has no setting for it
    return catalog


def _limit(session: requests.Session, overdue: Callable[[], object]) -> None:
    right = session.request

    def request(*arguments: object, **named: object) -> requests.Response:
        # A limit of the socket's, too, which ends the thread where nothing comes any more; ours ends first.
        call = partial(right, *arguments, **{"timeout": 1.2 * REQUEST_S, **named})  # type: ignore[arg-type]
        try:
            return within(REQUEST_S, call, "spark-eos-iceberg")
        except Overdue:
            overdue()
            raise

    session.request = request  # type: ignore[method-assign]


def is_passing(error: BaseException) -> bool:
    """Return whether the same request may succeed in a while: there was no answer to it, or one that says so."""
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}
    return isinstance(error, _PASSING) or not names.isdisjoint(_PASSING_NAMES)
