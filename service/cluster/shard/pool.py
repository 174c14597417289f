"""Threads that answer messages, short ones first, and threads in which messages wait."""

from __future__ import annotations

import asyncio
import heapq
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from typing import Any, Final

from gcws_search import index as ix

_WAITING: Final = 64
"""Messages that may wait for a change at once."""
_LONG: Final = 1
"""Messages of minutes that run at once."""

_Entry = tuple[float, int, Callable[[], bytes], "asyncio.Future[bytes]", asyncio.AbstractEventLoop]


class MessagePool:
    """Runs what answers messages.

    Parameters
    ----------
    threads
        That compute; None takes one a core.
    """

    def __init__(self, threads: int | None = None) -> None:
        self._waiting = ThreadPoolExecutor(_WAITING, thread_name_prefix="shard-waiting")
        self._long = ThreadPoolExecutor(
            _LONG, thread_name_prefix="shard-long", initializer=ix.give_way
        )
        self._queue: list[_Entry] = []
        self._numbers = count()
        self._changed = threading.Condition()
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._run, name="shard-search", daemon=True)
            for _ in range(threads or len(os.sched_getaffinity(0)))
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[[], bytes], seconds: float) -> bytes:
        """Return what some work returns.

        Of messages that wait, the one runs next that should end first: those of longer work are
        passed by others that come a little later, and by no others.

        Parameters
        ----------
        seconds
            How long it should take.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bytes] = loop.create_future()
        entry = time.monotonic() + seconds, next(self._numbers), work, future, loop
        with self._changed:
            heapq.heappush(self._queue, entry)
            self._changed.notify()
        return await future

    async def wait(self, work: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Return what some work returns that waits for others."""
        return await asyncio.get_running_loop().run_in_executor(self._waiting, work)

    async def run_long(self, work: Callable[[], bytes]) -> bytes:
        """Return what some work of minutes returns."""
        return await asyncio.get_running_loop().run_in_executor(self._long, work)

    def close(self) -> None:
        """Finish what is under way."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._waiting.shutdown()
        self._long.shutdown()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._is_closed)
                if not self._queue:
                    return
                _, _, work, future, loop = heapq.heappop(self._queue)
            if future.cancelled():  # who asked has gone
                continue
            try:
                tell = partial(_set_result, future, work())
            except BaseException as error:
                tell = partial(_set_exception, future, error)
            loop.call_soon_threadsafe(tell)


def _set_result(future: asyncio.Future[bytes], result: bytes) -> None:
    if not future.done():
        future.set_result(result)


def _set_exception(future: asyncio.Future[bytes], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
