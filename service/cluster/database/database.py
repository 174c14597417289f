"""The database of a cluster as routers and shards call it."""

from __future__ import annotations

from typing import Final

from gcws_search.service.cluster.database import schema
from gcws_search.service.cluster.database.connections import Connections
from gcws_search.service.cluster.database.replicas import ReplicaTables
from gcws_search.service.cluster.epochs import EpochMemory

SCHEMA: Final = "gcws"
"""Of the tables."""


class Database(ReplicaTables):
    """An open database; any thread, any number of processes.

    Each method raises StoreUnavailable where the database does not answer.
    """

    @classmethod
    def open(  # noqa: PLR0913
        cls,
        url: str,
        *,
        buckets: int = 32,
        max_connections: int = 16,
        application: str = "router",
        seconds: float = 10.0,
        schema_name: str = SCHEMA,
        memory: EpochMemory | None = None,
        key: str | None = None,
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
        memory : EpochMemory or None
            Of the last epoch that is known here; None: nothing is.
        key : str or None
            Of the cluster, which the database knows by a salted hash; None: it is not compared.

        Raises
        ------
        StoreUnavailable
        ClusterMismatch
            The tables are of another format, of another number of buckets, or have another key.
        """
        connections = Connections(
            url,
            schema_name,
            limit=max_connections,
            application=application,
            seconds=seconds,
            memory=memory or EpochMemory(),
        )
        try:
            identity = schema.prepare(connections, buckets, key)
            if not connections.memory.number:  # the tables were made just now
                connections.forget()
            with connections.use():
                connections.cluster = identity
            return cls(connections, identity, buckets)
        except BaseException:
            connections.close()
            raise

    def rekey(self, key: str) -> None:
        """Replace the key that routers and shards need to start."""
        with self.connections.transaction() as connection:
            schema.set_key(connection, key)

    @staticmethod
    def adopt(url: str, *, seconds: float = 10.0) -> str:
        """Adopt a database that was restored from a backup; return its new identity.

        Routers and shards refuse it until they are started again, and the former one from then on.

        Raises
        ------
        StoreUnavailable
            No server takes writes, or several do.
        ClusterMismatch
            It has no tables of a cluster.
        """
        connections = Connections(
            url,
            SCHEMA,
            limit=1,
            application="command",
            seconds=seconds,
            memory=EpochMemory(),
        )
        with connections.only() as connection:
            return schema.adopt(connection)

    def close(self) -> None:
        """Close all connections."""
        self.connections.close()
