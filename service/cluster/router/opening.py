"""A router's parts: the database, the shards that it lists, and the collections over both."""

from __future__ import annotations

from gcws_search import index as ix
from gcws_search.service.cluster.database.database import Database
from gcws_search.service.cluster.http_replica import HttpReplicas
from gcws_search.service.cluster.router.catalog import ClusterCatalog
from gcws_search.service.cluster.router.collection import RouterContext
from gcws_search.service.cluster.router.replicas import ReplicaList, ShardSet
from gcws_search.service.settings import Settings
from gcws_search.service.telemetry.metrics import Metrics


def open_router(
    settings: Settings, local: ix.Catalog, metrics: Metrics, replicas: ReplicaList | None = None
) -> ClusterCatalog:
    """Join a cluster as a router.

    Parameters
    ----------
    settings : Settings
    local : Catalog
        Of this machine's folder, for snapshots.
    metrics : Metrics
    replicas : ReplicaList or None
        None takes those that the database lists.

    Raises
    ------
    StoreUnavailable, ClusterMismatch
    """
    if settings.database_url is None:
        raise ValueError("a router needs the URL of a database")
    database = Database.open(settings.database_url.get_secret_value(), buckets=settings.buckets)
    shards = ShardSet(replicas or HttpReplicas(database, settings), settings.shard_seconds)
    context = RouterContext(database, shards, metrics, settings.max_answer_bytes, settings.threads)
    return ClusterCatalog(local, context)
