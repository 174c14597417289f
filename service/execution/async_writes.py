"""Awaited puts: queued in the writer of their collection, which commits them in groups.

A thread for each would cost more than the write does: threads that take turns at the interpreter
wait for each other, and each wakes the event loop by itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextvars import copy_context
from functools import partial
from typing import Literal, TypeAlias

from gcws_search import index as ix
from gcws_search.service.contract import CollectionProtocol
from gcws_search.service.errors import Stopping
from gcws_search.service.execution.pools import Pool

_Future: TypeAlias = asyncio.Future[ix.WriteResult]


class AwaitedPuts:
    """Puts of the requests of one event loop.

    pool: its threads write, its limit holds for those who wait.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._ended: deque[tuple[_Future, ix.WriteResult | BaseException]] = deque()
        self._is_notifying = False

    async def put(
        self,
        collection: CollectionProtocol,
        read: Callable[[], ix.ItemBatch],
        mode: Literal["upsert", "insert"],
    ) -> ix.WriteResult:
        """Put items; on return they are on the disk and found by new searches.

        read: returns the items; called in a thread.
        Raises QueueFull, Stopping (the pool was closed before their turn), Exception (what ``read``
            and `CollectionProtocol.put` raise).
        """
        self._pool.enter()
        loop = asyncio.get_running_loop()
        future: _Future = loop.create_future()
        # What is logged in the thread names the request too.
        in_context = partial(copy_context().run, read)
        run = partial(self._pool.submit, loop)
        collection.submit(in_context, mode, partial(self._end, loop, future), run)
        return await future

    def _end(
        self,
        loop: asyncio.AbstractEventLoop,
        future: _Future,
        outcome: ix.WriteResult | BaseException,
    ) -> None:
        """Wake the event loop, once for all puts that end before it looks."""
        self._ended.append((future, outcome))
        if not self._is_notifying:
            self._is_notifying = True
            loop.call_soon_threadsafe(self._notify)

    def _notify(self) -> None:
        self._is_notifying = False
        while self._ended:
            future, outcome = self._ended.popleft()
            self._pool.leave()
            if future.done():  # who asked has gone
                continue
            if isinstance(outcome, CancelledError):
                future.set_exception(Stopping())
            elif isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
