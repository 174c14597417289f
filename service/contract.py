"""Queries as collections receive them, and the protocols that answer them.

Routes call the index's own collections, `ix.StoredCollection` in `ix.Catalog`; those of a cluster
have the same methods. Searches are awaited. Other methods are called in a thread, where they may
wait for a disk or a network.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from gcws_search import index as ix

if TYPE_CHECKING:
    import asyncio

    from gcws_search.service.errors import Refused

T = TypeVar("T")

Point = str | Sequence[float] | ix.OneVector
"""An id, a vector or a text."""


class QueryRequest(NamedTuple):
    """Queries with equal options, ready for a search."""

    vectors: ix.RawBatch | None
    """One a query; None: they are around stored items, or one of unknown names."""
    item_ids: Sequence[str]
    """In the place of vectors, or none."""
    params: ix.SearchParams
    where: ix.Filter | None
    filter_text: bytes
    """The filter as JSON: equal texts, equal filters."""
    backend: str | None
    with_payload: bool
    with_vector: bool
    explain: bool
    offset: int = 0
    """The first hits of each ranking that are not shown; see `service.api.query`."""
    unknown_names: Sequence[str] = ()
    """Names that the query alone has."""
    hints: Sequence[str] = ()
    """What may be wrong with its names."""
    with_unknown: ix.SparseVector | None = None
    """In the place of vectors, where no coordinate of a fixed dim is for such names."""
    allow_partial: bool = False
    """In a cluster: whether shards may be left out, ..."""
    is_strict: bool = False
    """... and whether writes of others are waited for."""
    score: ix.ScoreKind = "gmm"
    """Of the scores that are shown; those of `params` and of hits are what the index ranks by."""
    shows_texts: bool = False
    """Whether the payloads of hits hold texts, which are shown beside them."""
    is_shown: bool = True
    """Whether all hits are part of an answer, whose length is limited."""

    def exactly(self) -> QueryRequest:
        """Return the same queries, answered by an exact scan."""
        return self._replace(params=replace(self.params, recall=1.0))

    @property
    def group(self) -> Hashable:
        """Key of all but the vectors and ids: one call answers the queries of a group."""
        shown = self.with_payload, self.with_vector, self.explain
        asked = self.params, self.filter_text, self.backend
        return *asked, *shown, self.allow_partial, self.is_strict


def group_queries(asked: Sequence[QueryRequest]) -> list[tuple[Sequence[int], QueryRequest]]:
    """Merge queries of at most one vector or id into few requests, with the query numbers."""
    groups: dict[Hashable, list[int]] = {}
    for number, one in enumerate(asked):
        group = number if one.with_unknown is not None else (one.group, one.vectors is None)
        groups.setdefault(group, []).append(number)
    found = list[tuple[Sequence[int], QueryRequest]]()
    for numbers in groups.values():
        one = asked[numbers[0]]
        rows = [rows for number in numbers if (rows := asked[number].vectors) is not None]
        ids = [item_id for number in numbers for item_id in asked[number].item_ids]
        vectors = ix.concatenate(rows) if rows else None
        found.append((numbers, one._replace(vectors=vectors, item_ids=ids)))
    return found


@contextmanager
def number_errors(numbers: Sequence[int]) -> Iterator[None]:
    """Replace the row in the place of an InvalidVector by the number of its query."""
    try:
        yield
    except ix.InvalidVector as error:
        error.move_row(lambda row: numbers[row] if len(numbers) > 1 else numbers[0])
        raise


class SearchesProtocol(Protocol):
    """Searches the collections of one kind."""

    def search(
        self,
        collection: Any,  # noqa: ANN401  # of the kind it searches
        asked: QueryRequest,
        show: Callable[[Sequence[ix.QueryResult]], T],
    ) -> Awaitable[T]:
        """Search for one query, or for several vectors with equal options; at least one.

        ``show`` gets the hits of each vector where the search ran, on the event loop or in a
        thread; its return value is the result. InvalidVector, whose place begins with the row: the
        transform makes a vector zero.
        """

    def search_batch(
        self,
        collection: Any,  # noqa: ANN401  # of the kind it searches
        asked: Sequence[QueryRequest],
        show: Callable[[Sequence[ix.QueryResult]], T],
    ) -> Awaitable[T]:
        """Search for many queries; queries with equal options are searched together.

        A single query may have several vectors: then each has an answer. The place of an
        InvalidVector begins with the number of the query.
        """


class RouterProtocol(SearchesProtocol, Protocol):
    """The collections of a cluster; also has all methods of `index.Catalog`."""

    @property
    def is_store_reachable(self) -> bool:
        """Whether the last query of the database was answered."""

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ask shards on this event loop."""

    def targets(self) -> list[dict[str, Any]]:
        """Return all replicas of shards, in the format of Prometheus discovery."""

    def full(self) -> Refused | None:
        """Return a shard all of whose replicas are full; None if every shard has one with room."""
