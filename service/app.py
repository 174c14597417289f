"""The application: creates its parts, passes them to the routes, and closes them at the end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypeAlias, cast

from fastapi import FastAPI

from gcws_search.index import POLICIES, Catalog, Policies
from gcws_search.service.api import (
    analysis,
    backends,
    collections,
    health,
    items,
    join,
    load,
    openapi,
    page,
    query,
    snapshots,
)
from gcws_search.service.contract import RouterProtocol
from gcws_search.service.http import Application, Service
from gcws_search.service.ingest.job import Loads
from gcws_search.service.keys import ApiKeys, database_url
from gcws_search.service.limits import Admission, Room
from gcws_search.service.metrics import Metrics
from gcws_search.service.pools import AwaitedWrites, Pools
from gcws_search.service.searches import LocalSearches
from gcws_search.service.settings import Settings
from gcws_search.service.startup import Startup
from gcws_search.version import program_version

_DESCRIPTION = """
Near-neighbour search for weighted, signed vectors, dense or sparse: exact GMM scores, hash tables,
and a recall promise.
"""

# Matching tries these in order: the most frequent routes come first.
_ROUTERS = (
    query.router,
    items.writing,
    items.reading,
    load.writing,
    load.reading,
    load.looking,
    collections.reading,
    collections.writing,
    backends.writing,
    backends.reading,
    snapshots.reading,
    snapshots.writing,
    analysis.router,
    analysis.comparing,
    join.router,
    health.router,
    health.service_router,
    health.metrics_router,
    page.router,
)


OpenRouter: TypeAlias = Callable[[Settings, Catalog, Metrics], RouterProtocol]
"""Joins a cluster; is handed the catalog of a folder for snapshots."""


def create_app(
    settings: Settings, *, catalog: Catalog | None = None, open_router: OpenRouter | None = None
) -> FastAPI:
    """Return the application.

    ``catalog`` is closed when the application ends; without one, the directory of the settings is
    opened at the start (DirectoryLocked prevents the start). ``open_router`` returns the
    collections of a cluster; None: those of the catalog, or of the cluster in the settings.
    """
    metrics, keys, admission = Metrics(), ApiKeys(settings), Admission(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        opened = catalog
        if opened is None:
            opened = await asyncio.to_thread(open_catalog, settings)
        workers = Pools(settings)
        startup = Startup(opened)
        cluster = await asyncio.to_thread(_join_cluster, settings, opened, metrics, open_router)
        if cluster is not None:
            await asyncio.to_thread(cluster.start, asyncio.get_running_loop())
        # Collections of a cluster have the same methods.
        collections = opened if cluster is None else cast("Catalog", cluster)
        room = Room(settings) if cluster is None else Room(settings, cluster.full)
        app.state.service = Service(
            settings,
            workers,
            metrics,
            keys,
            admission,
            startup,
            collections,
            cluster or LocalSearches(workers, startup, metrics, settings),
            cluster,
            AwaitedWrites(workers.writes),
            room,
            Loads(),
        )
        metrics.watch(
            collections.list,
            lambda: startup.progress.phase == "ready",
            lambda: workers.gauges() | admission.gauges() | room.gauges(),
        )
        startup.start()
        try:
            yield
        finally:
            await asyncio.to_thread(startup.stop)
            await asyncio.to_thread(workers.close)
            await asyncio.to_thread(collections.close)

    app = Application(
        metrics=metrics,
        admission=admission,
        access_log=settings.access_log,
        title="gcws-search",
        version=program_version(),
        description=_DESCRIPTION,
        servers=[{"url": "./"}],  # relative to this page, also below the prefix of a proxy
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    # The routes are complete: a router within a router would cost time in each request.
    app.router.routes[:0] = [route for router in _ROUTERS for route in router.routes]
    openapi.install(app)
    return app


def _join_cluster(
    settings: Settings, opened: Catalog, metrics: Metrics, open_router: OpenRouter | None
) -> RouterProtocol | None:
    """Return the collections of a cluster; None without a cluster."""
    if open_router is None and database_url(settings) is not None:
        # Cluster dependencies are installed and imported only for a cluster.
        from gcws_search.service.cluster.catalog import open_router  # noqa: PLC0415
    return None if open_router is None else open_router(settings, opened, metrics)


def open_catalog(settings: Settings, *, policies: Policies = POLICIES) -> Catalog:
    """Lock the data directory and open its collections."""
    return Catalog.open(
        settings.data_dir,
        durability=settings.durability,
        threads=settings.threads,
        policies=replace(policies, audit_share=settings.audit_share),
    )
