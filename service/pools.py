"""Pools: threads with bounded queues; writes awaited on the event loop."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from gcws_search import index as ix
from gcws_search.service.errors import QueueFull, Stopping
from gcws_search.service.settings import Settings

T = TypeVar("T")
_Ended: TypeAlias = Callable[[Any], None]

_WRITE_THREADS: Final = 8
_LOOK_SECONDS: Final = 0.5
"""How often it is seen whether the client still waits."""
_LAST_SECONDS: Final = 2.0
"""How long a thread may go on computing when its pool is closed."""

_log = logging.getLogger(__name__)


class Pool:
    """Threads with a bounded queue."""

    def __init__(self, name: str, *, threads: int, limit: int, gives_way: bool = False) -> None:
        self.name = name
        self.limit = limit
        self.waiting = 0  # calls that run or wait
        self._awaited = Counter[Hashable]()  # number of waiting calls by ``same``
        self._executor = ThreadPoolExecutor(
            threads,
            thread_name_prefix=f"gcws-{name}",
            initializer=ix.give_way if gives_way else None,
        )

    async def run(self, function: Callable[..., T], *args: Any) -> T:  # noqa: ANN401
        """Call a function in a thread.

        Raises QueueFull (the limit of running and waiting calls is reached), Stopping (the pool is
        closed).
        """
        self.enter()
        # Log records of the thread contain the request id.
        call = partial(copy_context().run, function, *args)
        try:
            future = asyncio.get_running_loop().run_in_executor(self._executor, call)
        except RuntimeError:  # closed
            self.leave()
            raise Stopping from None
        try:
            # A request that ends early must not free the place that its thread still occupies.
            return await asyncio.shield(future)
        finally:
            if future.done():
                self.leave()
            else:
                future.add_done_callback(self._leave_when_done)
            del future  # an error's frames would keep it alive

    async def run_while_awaited(
        self,
        function: Callable[[threading.Event], T],
        is_left: Callable[[], Awaitable[bool]],
        same: Hashable = None,
    ) -> T:
        """Call a function in a thread; set its event once nobody waits for the result.

        function: ends soon after its event is set.
        is_left: returns whether the client has disconnected.
        same: key of calls that will be short once this one is done.
        Raises QueueFull, Stopping (the pool is closed, or the function was stopped).
        """
        stop = threading.Event()
        running = asyncio.create_task(self.run(function, stop))
        same = same or stop
        self._awaited[same] += 1
        is_awaited = True
        try:
            while not running.done():
                await asyncio.wait({running}, timeout=_LOOK_SECONDS)
                if is_awaited and await is_left():
                    is_awaited = False
                    self._awaited -= Counter([same])  # removes zeros
                if not self._awaited[same]:
                    stop.set()
        finally:
            if is_awaited:
                self._awaited -= Counter([same])
            stop.set()  # also if the request is cancelled
            running.add_done_callback(_take_error)
        if running.cancelled():  # the function stopped
            raise Stopping
        try:
            return running.result()
        finally:
            del running

    def enter(self) -> None:
        """Count a new call; on the event loop.

        Raises QueueFull (the limit of running and waiting calls is reached).
        """
        if self.waiting >= self.limit:
            raise QueueFull(self.name, self.limit)
        self.waiting += 1

    def leave(self) -> None:
        """Count the end of a call; on the event loop."""
        self.waiting -= 1

    def submit(
        self,
        loop: asyncio.AbstractEventLoop,
        function: Callable[[], object],
        dropped: Callable[[], object],
    ) -> None:
        """Call a function in a thread for calls that are already counted; any thread.

        dropped: called instead if the pool is closed, by that thread or this one.
        """
        if not ix.gives_way():
            self._submit(function, dropped)
            return
        # A thread inherits the priority and the processors of the one that starts it.
        try:
            loop.call_soon_threadsafe(self._submit, function, dropped)
        except RuntimeError:  # the loop is closed
            dropped()

    def _submit(self, function: Callable[[], object], dropped: Callable[[], object]) -> None:
        try:
            future = self._executor.submit(function)
        except RuntimeError:  # closed
            dropped()
        else:
            future.add_done_callback(lambda ended: dropped() if ended.cancelled() else None)

    def _leave_when_done(self, future: asyncio.Future[Any]) -> None:
        self.leave()
        _take_error(future)

    def close(self) -> None:
        """Accept no more calls, and drop waiting ones; running calls continue."""
        self._executor.shutdown(wait=False, cancel_futures=True)


class Pools:
    """The pools of one application."""

    def __init__(self, settings: Settings) -> None:
        count = settings.threads or os.cpu_count() or 1
        max_queue, max_loads = settings.max_queue, settings.max_loads
        self.searches = Pool("searches", threads=count, limit=max_queue)
        # Batches of queries take long: they must not delay single queries.
        self.batches = Pool("batches", threads=count, limit=max_queue)
        # More threads than cores: writes that wait for the disk together are committed together.
        self.writes = Pool(
            "writes", threads=max(_WRITE_THREADS, count), limit=settings.max_write_queue
        )
        self.loads = Pool("loads", threads=max_loads, limit=max_loads, gives_way=True)
        # Joins take long: one at a time, and separate from searches.
        self.joins = Pool("joins", threads=1, limit=max_loads)
        # A second or two each, while a user waits: separate from joins.
        self.analyses = Pool("analyses", threads=1, limit=max_loads, gives_way=True)
        # Calls only wait here: a collection builds its backends one by one in its own thread.
        self.builds = Pool("builds", threads=max_loads, limit=max_loads)
        # Long bodies are read here in pieces, so that short requests run in between.
        self.parsing = Pool("bodies", threads=1, limit=max_queue)
        # Copies of whole files: one at a time, and separate from writes.
        self.files = Pool("files", threads=1, limit=max_loads)

    @property
    def _pools(self) -> tuple[Pool, ...]:
        return tuple(vars(self).values())

    def gauges(self) -> dict[tuple[str, str], float]:
        """Return the number of calls that run or wait in each pool, as metrics."""
        found: dict[tuple[str, str], float] = {}
        for pool in self._pools:
            found["gcws_queue", pool.name] = pool.waiting
            found["gcws_queue_limit", pool.name] = pool.limit
        return found

    def close(self) -> None:
        """Accept no more calls; return when running ones have ended, or take too long."""
        for pool in self._pools:
            pool.close()
        limit = time.monotonic() + _LAST_SECONDS
        while (busy := [pool.name for pool in self._pools if pool.waiting]) and (
            time.monotonic() < limit
        ):
            time.sleep(0.01)
        if busy:
            _log.warning("stopped beside work that goes on: %s", ", ".join(busy))


class AwaitedWrites:
    """Writes of the requests of one event loop, queued in the writer of their collection.

    A thread for each would cost more than the write: threads that take turns at the interpreter
    wait for each other, and each wakes the event loop separately. The limit of the pool applies to
    these waiting writes, too.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._ended: deque[tuple[asyncio.Future[Any], Any]] = deque()
        self._is_notifying = False

    async def put(
        self, collection: ix.StoredCollection, read: Callable[[], tuple[ix.ItemBatch, ix.Mode]]
    ) -> ix.WriteResult:
        """Put items; on return they are on the disk and found by new searches.

        read: returns the items and the mode; called in a thread.
        Raises QueueFull, Stopping (the pool was closed before their turn), and the errors of
        ``read`` and `StoredCollection.put`.
        """
        # Log records of the thread contain the request id.
        in_context = partial(copy_context().run, read)
        result: ix.WriteResult = await self._wait(partial(collection.submit, in_context))
        return result

    async def change_payload(
        self,
        collection: ix.StoredCollection,
        item_id: str,
        change: ix.PayloadChange,
        if_version: int | None,
    ) -> int:
        """Change the payload of an item; return how many existed, 1 or 0; raises as `put`."""
        submit = partial(collection.submit_payload, change, item_id, if_version)
        count: int = await self._wait(submit)
        return count

    async def _wait(self, submit: Callable[[_Ended, ix.Run], None]) -> Any:  # noqa: ANN401
        """Return the result of a write, or raise its error."""
        self._pool.enter()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        submit(partial(self._end, loop, future), partial(self._pool.submit, loop))
        try:
            return await future
        finally:
            del future

    def _end(
        self,
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[Any],
        outcome: Any,  # noqa: ANN401
    ) -> None:
        """Wake the event loop, once for all writes that end before it runs."""
        self._ended.append((future, outcome))
        if not self._is_notifying:
            self._is_notifying = True
            loop.call_soon_threadsafe(self._notify)

    def _notify(self) -> None:
        self._is_notifying = False
        while self._ended:
            future, outcome = self._ended.popleft()
            self._pool.leave()
            if future.done():  # the caller has gone
                continue
            if isinstance(outcome, CancelledError):
                future.set_exception(Stopping())
            elif isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)


def _take_error(ended: asyncio.Future[Any]) -> None:
    """Retrieve an error that perhaps nobody awaits any more."""
    if not ended.cancelled():
        ended.exception()
