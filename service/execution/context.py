"""The context of a request: the service's parts, and the check of keys."""

from dataclasses import dataclass
from typing import Any, Final

from fastapi import Request

from gcws_search import index as ix
from gcws_search.service.contract import (
    CatalogProtocol,
    CollectionProtocol,
    RouterProtocol,
    SearchesProtocol,
)
from gcws_search.service.errors import HostRefused, OriginRefused, TooManyCollections
from gcws_search.service.execution.loads import Loads
from gcws_search.service.execution.pools import AwaitedPuts, Pools
from gcws_search.service.execution.startup import Startup
from gcws_search.service.guards.admission import Admission, Room
from gcws_search.service.guards.keys import ApiKeys, Permission, is_local
from gcws_search.service.settings import Settings
from gcws_search.service.telemetry.metrics import Metrics

HEADERS: Final = "gcws.headers"
"""Where a request's scope has its headers by name, the first of each: a look-up, not a search."""


@dataclass(frozen=True, slots=True)
class Guards:
    """What every process has that takes requests."""

    settings: Settings
    workers: Pools
    metrics: Metrics
    keys: ApiKeys
    admission: Admission


@dataclass(frozen=True, slots=True)
class Service(Guards):
    """The parts of one application while it runs; ``cluster`` is None on one machine."""

    startup: Startup
    collections: CatalogProtocol
    searches: SearchesProtocol[Any]
    cluster: RouterProtocol | None
    puts: AwaitedPuts
    room: Room
    loads: Loads

    @property
    def catalog(self) -> CatalogProtocol:
        """The catalog; NotReady until items of any form can be stored and scanned."""
        self.startup.require_basics()
        return self.collections

    def collection(self, name: str) -> CollectionProtocol:
        """Return a collection.

        Raises NotReady, CollectionNotFound, CollectionLoading, DamagedFile.
        """
        if self.startup.is_compiled:
            return self.collections.get(name)
        found = self.catalog.get(name)
        self.startup.require_basics(found.config.form)
        return found

    def create(self, name: str, config: ix.CollectionConfig) -> tuple[CollectionProtocol, bool]:
        """Return the collection of this name, and whether it was made just now; any thread.

        Raises NotReady, TooManyCollections, MemoryFull, DiskShareReached, InvalidParameter,
            CollectionExists, CollectionBusy, CollectionLoading, DamagedFile, DiskFull.
        """
        self.startup.require_basics(config.form)
        return self.collections.create(name, config, admit=self.require_place)

    def require_place(self, others: int) -> None:
        """Refuse a new collection where ``others`` leave no room for it.

        Raises TooManyCollections, MemoryFull, DiskShareReached.
        """
        self.room.require()
        if others >= self.settings.max_collections:
            raise TooManyCollections(self.settings.max_collections)


def guards_of(request: Request) -> Guards:
    """Return what guards the application that serves this request."""
    guards: Guards = request.scope["app"].state.service
    return guards


def service_of(request: Request) -> Service:
    """Return the parts of the application that serves this request."""
    service: Service = request.scope["app"].state.service
    return service


def header(request: Request, name: bytes) -> str | None:
    """Return a header by its name in lower case, None where it was not sent."""
    value: bytes | None = request.scope[HEADERS].get(name)
    return None if value is None else value.decode("latin-1")


def _key_of(request: Request) -> str | None:
    scheme, _, token = (header(request, b"authorization") or "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return header(request, b"x-api-key") or None


def permission_of(request: Request) -> Permission:
    """Return what the key of a request permits; raises KeyMissing, KeyRefused."""
    return guards_of(request).keys.permission(_key_of(request))


async def may_read(request: Request) -> None:
    """Raise KeyMissing, KeyRefused, OriginRefused or HostRefused unless the request may read."""
    guards: Guards = request.scope["app"].state.service
    if guards.keys.are_set:
        guards.keys.check(_key_of(request), writes=False)
        return
    headers = request.scope[HEADERS]
    host, origin = headers.get(b"host"), headers.get(b"origin")
    if host is not None and not guards.settings.allow_no_key:
        name = host.decode("latin-1")
        if not is_local(name):
            raise HostRefused(name)
    # A page from elsewhere, in a browser on this machine, has no key to know; it has an origin. A
    # browser says itself which page is this service's own, also where a proxy changes the host.
    if origin is None or headers.get(b"sec-fetch-site") == b"same-origin":
        return
    if origin.partition(b"://")[2] != host:
        raise OriginRefused(origin.decode("latin-1"))


async def may_write(request: Request) -> None:
    """Raise KeyMissing, KeyRefused, OriginRefused or HostRefused unless the request may write."""
    keys = guards_of(request).keys
    if keys.are_set:
        keys.check(_key_of(request), writes=True)
    else:  # whoever may come in may do all
        await may_read(request)
