"""Replicas of shards behind HTTP, as the database lists them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

import aiohttp

from gcws_search.service.cluster.contract import ReplicaClient
from gcws_search.service.cluster.database.database import Database
from gcws_search.service.http.errors import StoreUnavailable
from gcws_search.service.settings import Settings

MESSAGES: Final = "/v1/messages"
"""Where a replica takes messages."""
_LIST_SECONDS: Final = 1.0
"""How often the database is asked which replicas there are."""
_DEAD_SECONDS: Final = 10.0
"""A replica without a sign of life for so long is not asked."""
_BAD_STATUS: Final = 400


class HttpReplica:
    """One replica at an address; see `ReplicaClient`.

    Parameters
    ----------
    address : str
        Such as "10.0.0.7:8001".
    replicas : HttpReplicas
    """

    def __init__(self, address: str, replicas: HttpReplicas) -> None:
        self.address = address
        self._url = f"http://{address}{MESSAGES}"
        self._replicas = replicas

    async def ask(self, message: bytes, seconds: float) -> bytes:
        """Return the answer to a message.

        Raises
        ------
        OSError, TimeoutError
        """
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with self._replicas.session.post(
                self._url, data=message, timeout=timeout
            ) as answer:
                if answer.status >= _BAD_STATUS:
                    raise OSError(f"status {answer.status}: {(await answer.text())[:200]}")
                return await answer.read()
        except aiohttp.ClientError as error:
            raise OSError(str(error) or type(error).__name__) from None


class HttpReplicas:
    """The replicas of all shards, as the database lists them.

    Parameters
    ----------
    database : Database
    settings : Settings
        Its cell, its key, and how many shards there are.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None
        self._shards: list[list[ReplicaClient]] = [[] for _ in range(settings.shards)]
        self._known: dict[str, HttpReplica] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="router-replicas", daemon=True)

    @property
    def session(self) -> aiohttp.ClientSession:
        """Connections to all replicas, of the event loop that asks first."""
        if self._session is None:
            key = self._settings.cluster_key
            headers = {} if key is None else {"Authorization": f"Bearer {key.get_secret_value()}"}
            connector = aiohttp.TCPConnector(limit=0)
            self._session = aiohttp.ClientSession(connector=connector, headers=headers)
        return self._session

    def listed(self) -> Sequence[Sequence[ReplicaClient]]:
        """Return the replicas of each shard."""
        return self._shards

    def start(self) -> None:
        """Read the list, and then again and again."""
        self._read()
        self._thread.start()

    async def close(self) -> None:
        """Close all connections."""
        self._stopping.set()
        if self._session is not None:
            await self._session.close()

    def _poll(self) -> None:
        while not self._stopping.wait(_LIST_SECONDS):
            try:
                self._read()
            except StoreUnavailable:
                continue  # those known are asked meanwhile

    def _read(self) -> None:
        shards: list[list[ReplicaClient]] = [[] for _ in range(self._settings.shards)]
        for each in self._database.replicas(self._settings.cell):
            if each.seen < _DEAD_SECONDS and each.shard < len(shards):
                known = self._known.get(each.address)
                if known is None:
                    known = self._known[each.address] = HttpReplica(each.address, self)
                shards[each.shard].append(known)
        self._shards = shards
