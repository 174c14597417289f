"""Small writes that come while others are being written: committed together, by one thread.

A thread for each would cost more than the write does: threads that take turns at the interpreter
wait for each other, and each wakes the event loop by itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeAlias

from gcws_search import index as ix
from gcws_search.service.execution.pools import Pool
from gcws_search.service.http.errors import NotReady

Read: TypeAlias = Callable[[], ix.ItemBatch]


class Prepare(Protocol):
    """Turns items into what is to be put."""

    def __call__(self, items: ix.ItemBatch, encoded: ix.EncodedBatch | None = None, /) -> ix.Put:
        """Return it; the vectors may have been hashed already."""


_MAX_TURNS: Final = 64
"""Commits after which a thread lets other collections have a turn."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    read: Read
    prepare: Prepare
    context: Context  # what is logged in the thread names the request too
    future: asyncio.Future[ix.WriteResult]


_Ended: TypeAlias = tuple[_Waiting, ix.WriteResult | BaseException]


class GroupCommit:
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
        self._waiting: dict[ix.Collection, list[_Waiting]] = {}

    async def put(self, collection: ix.Collection, read: Read, prepare: Prepare) -> ix.WriteResult:
        """Put items; on return they are on the disk and found by new searches.

        Parameters
        ----------
        collection : StoredCollection
        read : callable
            Returns the items; called in a thread.
        prepare : callable
            Returns what is to be put; called in the same thread.

        Raises
        ------
        QueueFull
        NotReady
            The pool was closed before their turn.
        Exception
            What ``read``, ``prepare`` and `StoredCollection.commit` raise.
        """
        self._pool.enter()
        loop = asyncio.get_running_loop()
        waiting = _Waiting(read, prepare, copy_context(), loop.create_future())
        with self._lock:
            is_written_to = collection in self._waiting
            self._waiting.setdefault(collection, []).append(waiting)
        if not is_written_to:
            self._begin(collection, loop)
        return await waiting.future

    def _begin(self, collection: ix.Collection, loop: asyncio.AbstractEventLoop) -> None:
        write, drop = (partial(each, collection, loop) for each in (self._write, self._drop))
        self._pool.submit(write, drop)

    def _write(self, collection: ix.Collection, loop: asyncio.AbstractEventLoop) -> None:
        """Write what waits for a collection until nothing does."""
        for _ in range(_MAX_TURNS):
            with self._lock:
                waiting = self._waiting[collection]
                if not waiting:
                    del self._waiting[collection]
                    return
                self._waiting[collection] = []
            ended = _written(collection, waiting)
            loop.call_soon_threadsafe(self._tell, ended)
        self._begin(collection, loop)

    def _drop(self, collection: ix.Collection, loop: asyncio.AbstractEventLoop) -> None:
        """Tell those who wait that nobody will write for them any more."""
        with self._lock:
            waiting = self._waiting.pop(collection)
        ended: list[_Ended] = [(each, NotReady("stopping")) for each in waiting]
        loop.call_soon_threadsafe(self._tell, ended)

    def _tell(self, ended: Sequence[_Ended]) -> None:
        for waiting, result in ended:
            self._pool.leave()
            if waiting.future.done():  # who asked has gone
                continue
            if isinstance(result, BaseException):
                waiting.future.set_exception(result)
            else:
                waiting.future.set_result(result)


def _written(collection: ix.Collection, waiting: Sequence[_Waiting]) -> list[_Ended]:
    """Prepare and commit; return how each ended."""
    ended: list[_Ended] = []
    found: list[tuple[_Waiting, ix.ItemBatch]] = []
    for each in waiting:
        try:
            found.append((each, each.context.run(each.read)))
        except Exception as error:
            ended.append((each, error))
    prepared: list[tuple[_Waiting, ix.Put]] = []
    for (each, items), encoded in zip(found, _encoded(collection, found), strict=True):
        try:
            prepared.append((each, each.context.run(each.prepare, items, encoded)))
        except Exception as error:
            ended.append((each, error))
    try:
        errors = collection.commit_all([put for _, put in prepared]) if prepared else []
    except Exception as error:
        errors = [error] * len(prepared)
    for (each, put), refusal in zip(prepared, errors, strict=True):
        ended.append((each, put.result if refusal is None else refusal))
    return ended


def _encoded(
    collection: ix.Collection, found: Sequence[tuple[_Waiting, ix.ItemBatch]]
) -> Sequence[ix.EncodedBatch | None]:
    """Return the vectors of all hashed together; none where that is for each by itself."""
    if len(found) > 1:
        with suppress(Exception):  # each finds by itself what is wrong with it
            return collection.encoded([items for _, items in found])
    return [None] * len(found)
