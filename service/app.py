"""The application: its parts are built here, handed to the routes, and closed at the end."""

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

# Matching goes through these in order: the hot path first.
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

    ``catalog`` is closed at its end; without one the settings' directory is opened at the start
    (DirectoryLocked then ends the start). ``open_router`` returns the collections of a cluster;
    None takes those of the catalog, or of the cluster that the settings name.
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
        # Those of a cluster answer to the same calls.
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
        servers=[{"url": "./"}],  # where this page is, below the prefix of a proxy too
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    # The routes are complete as they are: a router within a router costs at every request.
    app.router.routes[:0] = [route for router in _ROUTERS for route in router.routes]
    openapi.install(app)
    return app


def _join_cluster(
    settings: Settings, opened: Catalog, metrics: Metrics, open_router: OpenRouter | None
) -> RouterProtocol | None:
    """Return the collections of a cluster; None where they are this process's own."""
    if open_router is None and database_url(settings) is not None:
        # What a cluster needs is installed and imported for it alone.
        from gcws_search.service.cluster.catalog import open_router  # noqa: PLC0415
    return None if open_router is None else open_router(settings, opened, metrics)


def open_catalog(settings: Settings, *, policies: Policies = POLICIES) -> Catalog:
    """Take the data directory and open what is in it."""
    return Catalog.open(
        settings.data_dir,
        durability=settings.durability,
        threads=settings.threads,
        policies=replace(policies, audit_share=settings.audit_share),
    )
