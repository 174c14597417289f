"""Replicas of shards behind HTTP, as the database lists them."""

from __future__ import annotations

import asyncio
import io
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import aiohttp

from gcws_search.service.cluster.contract import (
    DEAD_SECONDS,
    MESSAGES,
    PLACE,
    Replica,
    ReplicaClient,
    place_of,
)
from gcws_search.service.cluster.database.database import Database
from gcws_search.service.errors import StoreUnavailable

LIST_SECONDS: Final = 1.0
"""How often the database is asked which replicas there are."""
_RENEW_SECONDS: Final = 0.1
"""How old the list may be for a query that no replica has answered."""
_BAD_STATUS: Final = 400
_LARGE_BYTES: Final = 1 << 20
"""Messages of more are written in pieces."""


class HttpReplica:
    """One replica at an address; see `ReplicaClient`.

    Parameters
    ----------
    address
        Such as "10.0.0.7:8001".
    place
        Of its shard; see `place_of`.
    """

    def __init__(self, address: str, place: str, replicas: HttpReplicas) -> None:
        self.address = address
        self.refusal = ""
        self.is_filled = False
        self.seen = 0.0  # when it gave its last sign of life
        self._url = f"http://{address}{MESSAGES}"
        self._headers = {PLACE: place}
        self._replicas = replicas

    async def ask(self, message: bytes, seconds: float) -> bytes:
        """Return the answer to a message; OSError or TimeoutError where there is none."""
        timeout = aiohttp.ClientTimeout(total=seconds)
        body = io.BytesIO(message) if len(message) > _LARGE_BYTES else message
        try:
            async with self._replicas.session.post(
                self._url, data=body, headers=self._headers, timeout=timeout
            ) as answer:
                if answer.status >= _BAD_STATUS:
                    raise OSError(f"status {answer.status}: {(await answer.text())[:200]}")
                return await answer.read()
        except aiohttp.ClientError as error:
            raise OSError(str(error) or type(error).__name__) from None


class HttpReplicas:
    """The replicas of all shards, as the database lists them.

    All of one list are of the same number of shards: the one that the database says, or that of the
    settings where it says none.
    """

    def __init__(
        self,
        database: Database,
        cell: str,  # name of the cluster
        shards: int,  # how many there are, where the database does not say it
        key: str,  # that replicas ask for
        *,
        # how long a replica is asked after its last sign of life
        dead_seconds: float = DEAD_SECONDS,
    ) -> None:
        self._database = database
        self._cell = cell
        self._default = shards
        self._key = key
        self._dead_seconds = dead_seconds
        self._session: aiohttp.ClientSession | None = None
        # the replicas of each
        self.shards: list[Sequence[ReplicaClient]] = [[] for _ in range(shards)]
        self._known: dict[tuple[int, int, int], HttpReplica] = {}
        self._refreshing = threading.Lock()
        self._renewal: asyncio.Future[None] | None = None
        self._renewed = 0.0
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

    def start(self) -> None:
        """Read the list, and then again and again."""
        self.refresh()
        self._thread.start()

    async def renew(self) -> None:
        """Read the list now: once for all who ask meanwhile, and not again at once."""
        now = time.monotonic()
        if self._renewal is None or (self._renewal.done() and now - self._renewed > _RENEW_SECONDS):
            self._renewed = now
            self._renewal = asyncio.ensure_future(asyncio.to_thread(self._try_refresh))
        await asyncio.shield(self._renewal)

    def _try_refresh(self) -> None:
        with suppress(StoreUnavailable):  # those known are asked meanwhile
            self.refresh()

    async def close(self) -> None:
        """Close all connections."""
        self._stopping.set()
        if self._session is not None:
            await self._session.close()

    def _poll(self) -> None:
        while not self._stopping.wait(LIST_SECONDS):
            self._try_refresh()

    def refresh(self) -> None:
        """Read the list; replicas are taken off it by their word, or by their last sign of life.

        None can give one while the database is gone (StoreUnavailable); one that has restarted may
        have lost the list.
        """
        with self._refreshing:
            self._refresh()

    def _refresh(self) -> None:
        try:
            shards = self._database.shards(self._cell) or self._default
            rows = self._database.replicas(self._cell)
        except StoreUnavailable:
            now = time.monotonic()
            for known in self._known.values():
                known.seen = now
            raise
        now = time.monotonic()
        for row in rows:
            self._take(row, now)
        self._known = {
            place: known
            for place, known in self._known.items()
            if now - known.seen < self._dead_seconds
        }
        self.shards = [
            _complete([each for place, each in self._known.items() if place[:2] == (shards, shard)])
            for shard in range(shards)
        ]

    def _take(self, row: Replica, now: float) -> None:
        """Take what the list says of a replica."""
        place = row.shards, row.shard, row.replica
        if not row.address:
            self._known.pop(place, None)
        if not row.address or row.seen >= self._dead_seconds:
            return
        known = self._known.get(place)
        if known is None or known.address != row.address:
            known = HttpReplica(row.address, place_of(row.shard, row.shards), self)
            self._known[place] = known
        known.refusal, known.is_filled, known.seen = row.refusal, row.is_filled, now - row.seen


def _complete(replicas: Sequence[HttpReplica]) -> Sequence[ReplicaClient]:
    """Return those that have all their collections, or all where none has."""
    return [each for each in replicas if each.is_filled] or replicas
