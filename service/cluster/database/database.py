"""The database of a cluster as routers and shards call it."""

from __future__ import annotations

from gcws_search.service.cluster.database import schema
from gcws_search.service.cluster.database.connections import Connections
from gcws_search.service.cluster.database.replicas import ReplicaTables


class Database(ReplicaTables):
    """An open database; any thread, any number of processes.

    Each method raises StoreUnavailable where the database does not answer.
    """

    @classmethod
    def open(
        cls,
        url: str,
        *,
        buckets: int = 32,
        max_connections: int = 16,
        application: str = "router",
        seconds: float = 10.0,
        schema_name: str = "gcws",
    ) -> Database:
        """Open a database, and make its tables where there are none.

        Parameters
        ----------
        url : str
            Of libpq: ``postgresql://user@host:5432/name``.
        buckets : int
            Parts of each collection's items, the same for the life of a cluster.
        max_connections : int
        application : str
            What the database lists the connections as.
        seconds : float
            How long the database may take to answer.
        schema_name : str
            Of the tables.

        Raises
        ------
        StoreUnavailable
        ClusterMismatch
            The tables are of another format, or of another number of buckets.
        """
        connections = Connections(
            url, schema_name, limit=max_connections, application=application, seconds=seconds
        )
        try:
            return cls(connections, schema.prepare(connections, buckets), buckets)
        except BaseException:
            connections.close()
            raise

    def close(self) -> None:
        """Close all connections."""
        self.connections.close()
