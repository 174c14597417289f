"""A replica behind its port: database, host, application and HTTP server as one."""

from __future__ import annotations

import logging
import socket
import time
from typing import Final

import uvicorn

from gcws_search.service.cluster.database.database import Database
from gcws_search.service.cluster.epochs import FILE, EpochMemory
from gcws_search.service.cluster.errors import ClusterMismatch
from gcws_search.service.cluster.shard.app import ShardService, create_shard_app
from gcws_search.service.cluster.shard.host import Announced, HostOptions, ShardHost
from gcws_search.service.execution.startup import policies_of
from gcws_search.service.guards.admission import Room
from gcws_search.service.guards.keys import database_url
from gcws_search.service.server import HttpServer, server_options
from gcws_search.service.settings import Settings

_ANY: Final = {"0.0.0.0", "::", ""}  # what a replica may listen on, and none can ask
_QUIET_SECONDS: Final = 3.0
"""Routers read the list of replicas each second: one that nobody asked for longer is not asked."""
_POLL_SECONDS: Final = 0.1

_log = logging.getLogger(__name__)


class ShardServer:
    """A replica of one shard that listens, and answers once it runs.

    Parameters
    ----------
    settings
        Where it listens, its folder, its database and its cell.
    key
        Of the cluster.
    shares_memory
        Whether the replicas of its host have one limit of memory together.

    Raises
    ------
    StoreUnavailable, DirectoryLocked, OSError
    ValueError
        The database, or the shard, is not one of this cluster.
    """

    def __init__(
        self,
        settings: Settings,
        shard: int,
        replica: int,
        key: str,
        *,
        shares_memory: bool = False,
    ) -> None:
        url, name = database_url(settings), f"shard {shard} replica {replica}"
        if url is None:
            raise ValueError("a shard needs a database; set GCWS_DATABASE_URL")
        self._listening = _listening(settings)
        self._database: Database | None = None
        try:
            self.address = address_of(settings, self._listening)
            memory = EpochMemory(settings.data_dir / FILE)
            self._database = Database.open(
                url, buckets=settings.buckets, application=name, memory=memory, key=key
            )
            if not shares_memory:  # those that Ray places may be the first of another number
                self._database.require_shards(settings.cell, settings.shards)
            self.host = ShardHost(
                self._database,
                settings.data_dir,
                shard,
                settings.shards,
                threads=settings.threads,
                policies=policies_of(settings),
                options=HostOptions(
                    announced=Announced(self.address, replica, settings.cell, shares_memory),
                    compiles=True,
                    full=Room(settings).look,
                ),
            )
        except BaseException as error:
            self._release()
            if isinstance(error, ClusterMismatch):
                raise ValueError(str(error)) from None
            raise
        self._service = ShardService(self.host, key, settings.threads)
        app = create_shard_app(self._service)
        self._server = HttpServer(uvicorn.Config(app, **server_options(settings)))
        _log.info("%s, of %d shards, at %s", name, settings.shards, self.address)

    def run(self) -> None:
        """Serve until told to stop."""
        try:
            self._server.run(sockets=[self._listening])
        finally:
            self._release()

    def stop(self) -> None:
        """Have `run` end; any thread."""
        self._server.should_exit = True

    @property
    def quiet_seconds(self) -> float:
        """How long there has been no message."""
        return self._service.quiet_seconds

    def leave(self, seconds: float) -> None:
        """Have routers ask others, and stop once none asks this replica; a thread but its own.

        Parameters
        ----------
        seconds
            Bounds both waits together.
        """
        end = time.monotonic() + seconds
        withdrawn = self.host.withdraw(seconds) and time.monotonic()
        while withdrawn and (now := time.monotonic()) < end:
            if now - withdrawn >= _QUIET_SECONDS <= self.quiet_seconds:
                break
            time.sleep(_POLL_SECONDS)
        self.stop()

    def _release(self) -> None:
        self._listening.close()
        if self._database is not None:
            self._database.close()


def _listening(settings: Settings) -> socket.socket:
    """Return a socket that listens; OSError where it cannot."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.create_server((settings.host, settings.port), family=family)
    listening.set_inheritable(True)
    return listening


def address_of(settings: Settings, listening: socket.socket) -> str:
    """Return where routers find the replica: on its published host, or the one it listens on."""
    host = settings.published_host or settings.host
    if host in _ANY:
        host = socket.gethostname()
    if ":" in host:
        host = f"[{host}]"
    return f"{host}:{listening.getsockname()[1]}"
