"""What every collection can do, written once for callers that wait and callers that await.

An operation is a generator. It yields effects (a request, a call that takes a while, a pause), is
sent what each brings, and returns its result. `run` performs effects on the caller's thread, and
`run_async` on the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from gcws_search.client.results import (
    Added,
    Compared,
    Hits,
    Item,
    ManyHits,
    Pair,
)
from gcws_search.index.contracts.analysis import SHARES, Explained, ItemMap
from gcws_search.index.contracts.parameters import CollectionConfig

R = TypeVar("R")
Mode = Literal["upsert", "insert"]
OnError = Literal["stop", "skip"]
Progress = Callable[[int], None]
"""Called with the number of rows handed over since the last call."""
Piece = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Send:
    """Effect: send a request; brings a `Reply`.

    Attributes
    ----------
    method, path : str
    content : bytes, or callable that returns an iterable of bytes
        A callable is called again for each attempt.
    headers, params : mapping of str to str
    repeatable : bool
        Whether the request may be sent again where it may have been served.
    """

    method: str
    path: str
    content: bytes | Callable[[], Iterable[Piece]] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True, slots=True)
class Pause:
    """Effect: wait for ``seconds``."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Call:
    """Effect: call a function that computes, or reads and writes files; brings what it returns."""

    function: Callable[[], Any]


Effect = Send | Pause | Call
Plan = Generator[Effect, Any, R]
"""An operation that returns R."""


Exchange = Callable[[Send], Reply]
"""Sends a request and returns the answer; raises `retries.DroppedConnection`."""
AsyncExchange = Callable[[Send], Awaitable[Reply]]


def run(plan: Plan[R], exchange: Exchange) -> R:
    """Return the result of an operation; its effects happen on this thread."""
    brought: Any = None
    failure: Exception | None = None
    while True:
        try:
            effect = plan.send(brought) if failure is None else plan.throw(failure)
        except StopIteration as end:
            result: R = end.value
            return result
        brought, failure = None, None
        try:
            if isinstance(effect, Send):
                brought = exchange(effect)
            elif isinstance(effect, Call):
                brought = effect.function()
            else:
                time.sleep(effect.seconds)
        except Exception as error:
            failure = error


async def run_async(plan: Plan[R], exchange: AsyncExchange) -> R:
    """Return the result of an operation; calls happen on threads, the rest on this event loop."""
    brought: Any = None
    failure: Exception | None = None
    while True:
        try:
            effect = plan.send(brought) if failure is None else plan.throw(failure)
        except StopIteration as end:
            result: R = end.value
            return result
        brought, failure = None, None
        try:
            if isinstance(effect, Send):
                brought = await exchange(effect)
            elif isinstance(effect, Call):
                brought = await asyncio.to_thread(effect.function)
            else:
                await asyncio.sleep(effect.seconds)
        except Exception as error:
            failure = error


class Operations(Protocol):
    """What every collection can do, on a server or in a file of this process."""

    @property
    def name(self) -> str:
        """Name of the collection."""

    @property
    def config(self) -> CollectionConfig:
        """What the collection was created with."""

    def add(  # noqa: PLR0913  # each is an option of its own
        self,
        data: Any,
        *,
        ids: Any = None,
        payloads: Any = None,
        mode: Mode = "upsert",
        on_error: OnError = "stop",
        id_start: int | None = None,
        keep_payloads: bool = False,
        progress: Progress | None = None,
    ) -> Plan[Added]:
        """Store items, a batch at a time; what was stored before an error stays.

        Parameters
        ----------
        data : array, sparse matrix, frame, sequence of vectors, or iterable of items
            An (n, dim) array of any type and order; anything of scipy's sparse; a frame of pandas,
            polars or Arrow; lists of numbers; dicts of names or coordinates and their values.
        ids : sequence, str or None
            A string names the column of a frame; "index" is the index of a frame of pandas. None
            takes the frame's column ``id``, or its index where that has a name or holds text. Rows
            without ids are given the next numbers not taken, from 0 on: see ``ids`` of the result.
        payloads : dict of columns, sequence of dicts, names of columns, or None
            ``{"label": y}`` gives row i the payload ``{"label": y[i]}``.
        mode : {"upsert", "insert"}
            "upsert" replaces items that exist; "insert" refuses them.
        on_error : {"stop", "skip"}
            "skip" leaves out rows that cannot be stored, and names them in the result.
        id_start : int or None
            Number rows without ids from here on instead: items of these numbers are replaced.
        keep_payloads : bool
            Whether an item that exists keeps its payload where it comes without one; takes ids.
        progress : callable or None
            Called with the number of rows handed over since the last call.

        Raises
        ------
        InvalidVector, InvalidId, InvalidPayload
        ItemExists
            The mode is "insert".
        """

    def query(  # noqa: PLR0913  # each is an option of its own
        self,
        vector: Any = None,
        *,
        id: str | int | None = None,  # the API's word
        limit: int = 10,
        recall: float = 0.9,
        min_score: float = 0.0,
        where: Mapping[str, Any] | None = None,
        guarantee: Literal["measured", "proven"] = "measured",
        backend: str | None = None,
        explain: bool = False,
    ) -> Plan[Hits]:
        """Return the most similar items.

        Parameters
        ----------
        vector : (dim,) array, sequence of numbers, dict, or sparse row
        id : str, int or None
            Search around this stored item instead, which is left out.
        limit : int
        recall : float
            Expected share of the true hits, in (0, 1]; 1 is an exact scan.
        min_score : float
        where : dict or None
            Condition on payloads: a filter of the API, or values by key: ``{"label": 3}``,
            ``{"label": [3, 5]}``, ``{"price": {"gte": 5, "lt": 9}}``.
        guarantee : {"measured", "proven"}
        backend : str or None
        explain : bool
            Whether the hits have an ``explanation`` of what the query cost.

        Raises
        ------
        InvalidVector, InvalidParameter, InvalidFilter, ItemNotFound, BackendNotFound
        """

    def query_many(  # noqa: PLR0913  # each is an option of its own
        self,
        vectors: Any,
        *,
        limit: int = 10,
        recall: float = 0.9,
        min_score: float = 0.0,
        where: Mapping[str, Any] | None = None,
        guarantee: Literal["measured", "proven"] = "measured",
        backend: str | None = None,
        on_error: OnError = "stop",
    ) -> Plan[ManyHits]:
        """Return the most similar items of each vector, as arrays; see `query` and `add`.

        With ``on_error="skip"`` a vector that cannot be searched for has no hits, and is named in
        ``rejected`` of the result.
        """

    def get(self, id: str | int) -> Plan[Item]:
        """Return an item.

        Raises
        ------
        ItemNotFound
        """

    def delete(
        self,
        ids: str | int | Iterable[str] | None = None,
        *,
        where: Mapping[str, Any] | None = None,
    ) -> Plan[int]:
        """Delete items by their ids, or all that pass a filter; return how many there were."""

    def pairs(
        self, *, min_score: float, limit: int | None = None, recall: float = 0.9
    ) -> Plan[list[Pair]]:
        """Return the pairs of items at least so similar, the most similar first."""

    def explain(self, a: Any, b: Any, *, limit: int = SHARES) -> Plan[Explained]:
        """Return what each coordinate adds to the similarity of two items, or vectors.

        Parameters
        ----------
        a, b : str, int or vector
            A string, or an integer, is the id of an item.
        limit : int
            How many coordinates are listed, 1 to 4096; all others are summed.

        Raises
        ------
        ItemNotFound, InvalidVector, InvalidParameter
        """

    def map(
        self,
        *,
        sample: int = 5000,
        landmarks: int = 256,
        seed: int = 0,
        where: Mapping[str, Any] | None = None,
        also: Iterable[Any] = (),
        key: str | None = None,
    ) -> Plan[ItemMap]:
        """Return places in a plane for a sample of items and others, with their neighbours.

        Parameters
        ----------
        sample, landmarks : int
            Items at most, up to 20,000, and those of them that the axes are learned from.
        seed : int
            Of the choice of both.
        where : dict or None
            Condition on payloads of the sample, as of `query`.
        also : iterable of str, int or vector
            Ids and vectors that are given places and neighbours too.
        key : str or None
            Payload key whose values are returned.

        Raises
        ------
        ItemNotFound, InvalidVector, InvalidParameter, InvalidFilter
        """

    def profile(self, *, sample: int = 1000, seed: int = 0) -> Plan[dict[str, Any]]:
        """Return histograms of similarities and non-zeros, S-curves and bucket sizes.

        Parameters
        ----------
        sample : int
            Items at most that are looked at, up to 10,000.
        seed : int
            Of their choice.

        Returns
        -------
        dict
            As the API shows it.

        Raises
        ------
        InvalidParameter
        """

    def compare(
        self,
        queries: Any = None,
        *,
        sample: int = 100,
        limit: int = 10,
        recall: float = 0.9,
        backends: list[str] | None = None,
        seed: int = 0,
    ) -> Plan[Compared]:
        """Return what each backend finds of the exact neighbours, and what it costs.

        Parameters
        ----------
        queries : vectors or None
            None takes ``sample`` stored items.
        sample, limit : int
        recall : float
        backends : list of str or None
            Names; None for all.
        seed : int
            Of the choice of the sample.
        """

    def page(
        self, cursor: str | None = None, *, limit: int = 1000, with_vector: bool = True
    ) -> Plan[tuple[list[Item], str | None]]:
        """Return some items in the order in which they were put, and where the next page starts."""

    def export(
        self,
        path: str | Path,
        *,
        progress: Progress | None = None,
    ) -> Plan[int]:
        """Write all items to a file that `gcws-search load` reads; return how many.

        Parameters
        ----------
        path : str or Path
            Ends in ``.ndjson`` or ``.parquet``; the file appears when it is whole.
        progress : callable or None
        """

    def names(
        self, prefix: str = "", *, limit: int = 20, indices: Iterable[int] | None = None
    ) -> Plan[dict[int, str]]:
        """Return names of coordinates by coordinate.

        Parameters
        ----------
        prefix : str
            Only names that begin so.
        limit : int
        indices : iterable of int, or None
            The names of these coordinates instead; one without a name is left out.
        """

    def set_names(self, names: Iterable[str]) -> Plan[int]:
        """Give the first coordinates of a fixed ``dim`` their names; return how many.

        In an open space, names come with the items that are added.
        """

    def count(self) -> Plan[int]:
        """Return the number of items."""

    def describe(self) -> Plan[dict[str, Any]]:
        """Return all there is to know of the collection, as the API shows it."""
