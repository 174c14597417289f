"""Replicas of shards behind HTTP, as the database lists them."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Final

import aiohttp

from gcws_search.service.cluster.contract import ReplicaClient
from gcws_search.service.cluster.database.database import Database
from gcws_search.service.http.errors import StoreUnavailable

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
    cell : str
        Name of the cluster.
    shards : int
    key : str
        That replicas ask for.
    """

    def __init__(self, database: Database, cell: str, shards: int, key: str) -> None:
        self._database = database
        self._cell = cell
        self._key = key
        self._session: aiohttp.ClientSession | None = None
        self._shards: list[list[ReplicaClient]] = [[] for _ in range(shards)]
        self._known: dict[tuple[int, str], HttpReplica] = {}
        self._until: dict[tuple[int, str], float] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="router-replicas", daemon=True)

    @property
    def session(self) -> aiohttp.ClientSession:
        """Connections to all replicas, of the event loop that asks first."""
        if self._session is None:
            headers = {"Authorization": f"Bearer {self._key}"}
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
        """Read the list; replicas are taken off it by their last sign of life alone.

        None can give one while the database is gone, and one that has restarted may have lost the
        list.
        """
        try:
            rows = self._database.replicas(self._cell)
        except StoreUnavailable:
            self._until = dict.fromkeys(self._until, time.monotonic() + _DEAD_SECONDS)
            raise
        now, shards = time.monotonic(), [list[ReplicaClient]() for _ in self._shards]
        for each in rows:
            place, until = (each.shard, each.address), now + _DEAD_SECONDS - each.seen
            self._until[place] = max(self._until.get(place, 0.0), until)
        self._until = {place: until for place, until in self._until.items() if until > now}
        known = {place: self._known.get(place) for place in self._until if place[0] < len(shards)}
        self._known = {place: one or HttpReplica(place[1], self) for place, one in known.items()}
        for (shard, _), replica in sorted(self._known.items(), key=lambda entry: entry[0]):
            shards[shard].append(replica)
        self._shards = [*shards]
