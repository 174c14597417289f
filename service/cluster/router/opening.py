"""A router's parts: the database, the shards that it lists, and the collections over both."""

from __future__ import annotations

from contextlib import ExitStack

from gcws_search import index as ix
from gcws_search.service.cluster.database.database import Database
from gcws_search.service.cluster.errors import ClusterMismatch
from gcws_search.service.cluster.http_replica import HttpReplicas
from gcws_search.service.cluster.router.catalog import ClusterCatalog
from gcws_search.service.cluster.router.collection import RouterContext
from gcws_search.service.cluster.router.replicas import ReplicaList, ShardSet
from gcws_search.service.guards.keys import cluster_key, database_url
from gcws_search.service.settings import Settings
from gcws_search.service.telemetry.metrics import Metrics


def open_router(
    settings: Settings,
    local: ix.Catalog,
    metrics: Metrics,
    replicas: ReplicaList | None = None,
    policies: ix.Policies = ix.POLICIES,
) -> ClusterCatalog:
    """Join a cluster as a router.

    Parameters
    ----------
    local
        Of this machine's folder, for snapshots.
    replicas
        None takes those that the database lists.

    Raises
    ------
    StoreUnavailable
    ClusterMismatch
        The database is of another cluster, or has fewer buckets than there are shards.
    ValueError
        There is no database, or no key.
    OSError
        The file of the key, or of the URL, cannot be read.
    """
    with ExitStack() as closing:
        key = _key(settings) if replicas is None else ""
        database = _database(settings)
        closing.callback(database.close)
        if replicas is None:
            replicas = HttpReplicas(database, settings.cell, settings.shards, key)
        shards = ShardSet(replicas, settings.shard_seconds, database.connections.memory)
        metrics.register(shards)
        context = RouterContext(
            database,
            shards,
            metrics,
            settings.max_answer_bytes,
            settings.threads,
            policies.pairs.max_pairs,
        )
        catalog = ClusterCatalog(local, context)
        closing.pop_all()  # what was opened is the catalog's from now on
    return catalog


def require_cluster(settings: Settings) -> None:
    """Raise what `open_router` would raise, before anything is started."""
    _key(settings)
    _database(settings).close()


def _key(settings: Settings) -> str:
    key = cluster_key(settings)
    if key is None:
        raise ValueError("a router needs the key of its cluster; set GCWS_CLUSTER_KEY")
    return key


def _database(settings: Settings) -> Database:
    url = database_url(settings)
    if url is None:
        raise ValueError("a router needs the URL of a database; set GCWS_DATABASE_URL")
    if settings.shards > settings.buckets:
        expected = f"at most {settings.buckets}, the buckets"
        raise ClusterMismatch("shards", expected, str(settings.shards))
    database = Database.open(url, buckets=settings.buckets, key=cluster_key(settings))
    try:
        database.require_shards(settings.cell, settings.shards)
    except BaseException:
        database.close()
        raise
    return database
