"""Small writes that come while others are being written: committed together, by one thread.

A thread for each would cost more than the write does: threads that take turns at the interpreter
wait for each other, and each wakes the event loop by itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Final, TypeAlias

import index as ix
from service.workers import Pool

Prepare: TypeAlias = Callable[[], ix.Put]
_MOST_TURNS: Final = 64
"""Commits after which a thread lets other collections have a turn."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    prepare: Prepare
    context: Context  # what is logged in the thread names the request too
    future: asyncio.Future[ix.WriteResult]


_Ended: TypeAlias = tuple[_Waiting, ix.WriteResult | BaseException]


class Together:
    """Puts waiting for their turn; used on one event loop.

    Parameters
    ----------
    pool : Pool
        Its threads write, its limit holds for those who wait.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        # A collection is in it while a thread writes to it, with what the thread is to write next.
        self._waiting: dict[ix.StoredCollection, list[_Waiting]] = {}

    async def put(self, collection: ix.StoredCollection, prepare: Prepare) -> ix.WriteResult:
        """Put items; on return they are on the disk and found by new searches.

        Parameters
        ----------
        collection : StoredCollection
        prepare : callable
            Returns what is to be put; called in a thread.

        Raises
        ------
        QueueFull
        Exception
            What ``prepare`` and `StoredCollection.commit` raise.
        """
        self._pool.enter()
        loop = asyncio.get_running_loop()
        waiting = _Waiting(prepare, copy_context(), loop.create_future())
        with self._lock:
            is_written_to = collection in self._waiting
            self._waiting.setdefault(collection, []).append(waiting)
        if not is_written_to:
            self._pool.submit(self._write, collection, loop)
        return await waiting.future

    def _write(self, collection: ix.StoredCollection, loop: asyncio.AbstractEventLoop) -> None:
        """Write what waits for a collection until nothing does."""
        for _ in range(_MOST_TURNS):
            with self._lock:
                waiting = self._waiting[collection]
                if not waiting:
                    del self._waiting[collection]
                    return
                self._waiting[collection] = []
            ended = _written(collection, waiting)
            loop.call_soon_threadsafe(self._tell, ended)
        self._pool.submit(self._write, collection, loop)

    def _tell(self, ended: Sequence[_Ended]) -> None:
        for waiting, result in ended:
            self._pool.leave()
            if waiting.future.done():  # who asked has gone
                continue
            if isinstance(result, BaseException):
                waiting.future.set_exception(result)
            else:
                waiting.future.set_result(result)


def _written(collection: ix.StoredCollection, waiting: Sequence[_Waiting]) -> list[_Ended]:
    """Prepare and commit; return how each ended."""
    ended: list[_Ended] = []
    prepared: list[tuple[_Waiting, ix.Put]] = []
    for each in waiting:
        try:
            prepared.append((each, each.context.run(each.prepare)))
        except Exception as error:
            ended.append((each, error))
    try:
        errors = collection.commit_all([put for _, put in prepared]) if prepared else []
    except Exception as error:
        errors = [error] * len(prepared)
    for (each, put), found in zip(prepared, errors, strict=True):
        ended.append((each, put.result if found is None else found))
    return ended
