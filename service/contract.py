"""What routes call, wherever the items are: the index's own collections, or a cluster's.

Searching is awaited. All else is called in a thread, where it may wait for a disk or a network.
"""

from __future__ import annotations

import threading
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
    """Queries that ask for the same, ready to be searched."""

    vectors: ix.RawBatch | None
    """One a query; None: they are one, around a stored item or of unknown names."""
    item_id: str | None
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
        """Return the queries asked so that a scan answers them."""
        return self._replace(params=replace(self.params, recall=1.0))

    @property
    def group(self) -> Hashable:
        """Queries of one group may be searched together."""
        return self.params, self.filter_text, self.backend, self.allow_partial, self.is_strict


def group_queries(asked: Sequence[QueryRequest]) -> list[tuple[Sequence[int], QueryRequest]]:
    """Return queries of at most one vector as few requests, with the numbers of their queries."""
    groups: dict[Hashable, list[int]] = {}
    for number, one in enumerate(asked):
        same = one.group, one.with_payload, one.with_vector, one.explain
        groups.setdefault(number if one.vectors is None else same, []).append(number)
    found = list[tuple[Sequence[int], QueryRequest]]()
    for numbers in groups.values():
        rows = [rows for number in numbers if (rows := asked[number].vectors) is not None]
        one = asked[numbers[0]]
        found.append((numbers, one._replace(vectors=ix.concatenate(rows)) if rows else one))
    return found


@contextmanager
def number_errors(numbers: Sequence[int]) -> Iterator[None]:
    """Have an InvalidVector begin with the number of its query, in the place of the row."""
    try:
        yield
    except ix.InvalidVector as error:
        error.move_row(lambda row: numbers[row] if len(numbers) > 1 else numbers[0])
        raise


class CollectionProtocol(Protocol):
    """One collection; `StoredCollection` of the index says what each call raises."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def config(self) -> ix.CollectionConfig:
        """What it was created with."""

    @property
    def space(self) -> ix.VectorSpace:
        """Checks and transforms vectors."""

    @property
    def names(self) -> ix.CoordinateNames:
        """Names of coordinates."""

    def wait_until_found(self) -> None:
        """Return when searches find what was put, or when that takes too long."""

    # Writing

    def put(self, items: ix.ItemBatch, mode: ix.Mode) -> ix.WriteResult:
        """Put items, all or none."""

    def prepare(
        self,
        items: ix.ItemBatch,
        mode: ix.Mode,
        *,
        keeps_payloads: bool,
        progress: Callable[[ix.WriteResult], ix.LoadRecord] | None,
    ) -> Any:  # noqa: ANN401  # each kind of collection has its own
        """Check and hash items; return what `commit` takes, once."""

    def commit(self, write: Any) -> ix.WriteResult:  # noqa: ANN401
        """Put prepared items."""

    def submit(
        self,
        read: Callable[[], tuple[ix.ItemBatch, ix.Mode]],
        ended: Callable[[ix.WriteResult | BaseException], None],
        run: ix.Run,
    ) -> None:
        """Put items without a thread that waits for them; called on the event loop."""

    def submit_payload(
        self,
        change: ix.PayloadChange,
        item_id: str,
        if_version: int | None,
        ended: Callable[[int | BaseException], None],
        run: ix.Run,
    ) -> None:
        """Change the payload of an item as `submit` puts items."""

    def delete(self, ids: Sequence[str], *, if_version: int | None = None) -> int:
        """Delete items, and return how many there were."""

    def change_payloads(
        self,
        change: ix.PayloadChange,
        where: ix.Filter | Sequence[str],
        *,
        if_version: int | None = None,
    ) -> int:
        """Change the payloads of items, all or none, and return how many there were."""

    def delete_where(self, where: ix.Filter) -> int:
        """Delete all items whose payloads pass a filter, and return how many did."""

    def load_names(self) -> None:
        """Know all names that have been stored, by whichever process."""

    def set_names(self, names: Sequence[str], *, replace: bool = True) -> None:
        """Give the first coordinates their names; without ``replace`` only if none has one."""

    def replace_metadata(self, value: bytes | None) -> None:
        """Replace the metadata, JSON text of an object; None removes it."""

    def loads(self, since: int, key: str | None = None) -> list[ix.LoadRecord]:
        """Return how far loads under keys have come."""

    def save_load(self, record: ix.LoadRecord, forgotten: int) -> None:
        """Store how far a load has come."""

    def fit(self, weights: tuple[float, ...] | ix.WeightKind | None) -> ix.WeightsDescription:
        """Learn weights of coordinates, or take others; see `StoredCollection.fit`."""
        ...

    def attach(self, params: ix.BackendParams, name: str | None) -> ix.BackendDescription:
        """Attach a comparison backend."""

    def detach(self, name: str) -> None:
        """Drop a comparison backend."""

    # Reading

    def get(self, item_id: str) -> ix.StoredItem:
        """Return an item."""

    def page(
        self,
        *,
        limit: int,
        cursor: str | None,
        with_vector: bool,
        where: ix.Filter | None,
        ids: Sequence[str] | None,
    ) -> ix.Page:
        """Return items in the order in which they were put."""

    def hints(self, where: ix.Filter) -> list[str]:
        """Return which keys and values of a filter no item has, where no item passes it."""

    def find(self, text: str, limit: int) -> ix.Page:
        """Return items by their ids' beginning, then by what ids and payloads contain."""

    def count(self, where: ix.Filter | None) -> int:
        """Return the number of items, or of those whose payloads pass a filter."""

    def find_names(self, prefix: str = "", limit: int = 20) -> list[ix.NamedCoordinate]:
        """Return the first coordinates that have names."""

    def describe(self) -> ix.Description:
        """Return all there is to know of the collection."""

    def curve(self, limit: int) -> ix.CostCurve:
        """Return what recall costs for a limit."""

    def audited(self) -> ix.AuditedQueries:
        """Return recall asked against recall found."""

    def compare(
        self,
        queries: Sequence[ix.RawBatch | ix.SparseVector] | None,
        params: ix.SearchParams,
        *,
        sample: int,
        seed: int,
        backends: Sequence[str] | None,
        stop: threading.Event,
    ) -> ix.Comparison:
        """Search for the same by several backends; CancelledError once ``stop`` is set."""

    def explain(self, a: Point, b: Point, *, limit: int) -> ix.Explained:
        """Return what each coordinate adds to a similarity."""

    def sketch(
        self, vectors: ix.RawBatch | ix.SparseVector, encoding: ix.Encoding
    ) -> ix.Signatures | ix.AnyArray:
        """Return the samples of vectors, or their b-bit codes."""

    def pairs(
        self, *, min_score: float, recall: float, limit: int | None, stop: threading.Event
    ) -> list[tuple[str, str, float]]:
        """Return near-duplicate pairs; soon, once ``stop`` is set."""

    def groups(
        self, params: ix.GroupParams, where: ix.Filter | None, stop: threading.Event
    ) -> list[ix.Group]:
        """Return groups of near-duplicates; soon, once ``stop`` is set."""

    def join(
        self, params: ix.JoinParams, where: ix.Filter | None, *, count: int, stop: threading.Event
    ) -> Callable[[ix.RawBatch], Iterator[ix.JoinedRows]]:
        """Return what yields the hits of vectors, ``count`` in all; soon, once ``stop`` is set."""

    def cursor_behind(self, item_id: str) -> str:
        """Return the cursor of the page that begins behind an item."""

    def map_items(
        self, params: ix.MapParams, where: ix.Filter | None, also: Sequence[Point]
    ) -> ix.ItemMap:
        """Return places in a plane for a sample of the items."""

    def profile(self, sample: int, seed: int) -> dict[str, Any]:
        """Return histograms of a sample of the items."""


class CatalogProtocol(Protocol):
    """All collections; see `index.collection.catalog.Catalog` for what each call raises."""

    @property
    def snapshots(self) -> ix.Snapshots:
        """The snapshots of all collections."""

    def get(self, name: str) -> CollectionProtocol:
        """Return a collection; called on the event loop."""

    def list(self) -> list[ix.Summary]:
        """Return the collections that can be used, by name."""

    def close(self) -> None:
        """Finish what is under way, and let nothing be written any more."""

    def create(
        self, name: str, config: ix.CollectionConfig, *, admit: Callable[[int], None]
    ) -> tuple[CollectionProtocol, bool]:
        """Return the collection of this name, and whether it was made just now."""

    def drop(self, name: str) -> None:
        """Remove a collection."""

    def snapshot(self, name: str) -> ix.Snapshot:
        """Make a snapshot of a collection."""

    def restore(
        self, name: str, snapshot: str, *, replace: bool, admit: Callable[[int], None]
    ) -> CollectionProtocol:
        """Make a collection of a snapshot."""


class SearchesProtocol(Protocol):
    """Searches the collections of one kind."""

    def search(
        self,
        collection: Any,  # noqa: ANN401  # of the kind it searches
        asked: QueryRequest,
        show: Callable[[Sequence[ix.QueryResult]], T],
    ) -> Awaitable[T]:
        """Search for one query, or for several vectors that ask for the same; at least one.

        ``show`` is handed the hits of each where the search ran, on the event loop or in a thread;
        what it returns is the result. InvalidVector, whose place begins with the row, says that the
        transform leaves nothing of a vector.
        """

    def search_batch(
        self,
        collection: Any,  # noqa: ANN401  # of the kind it searches
        asked: Sequence[QueryRequest],
        show: Callable[[Sequence[ix.QueryResult]], T],
    ) -> Awaitable[T]:
        """Search for many queries; those that ask for the same are searched together.

        An only query may have several vectors. Then there is an answer for each. The place of an
        InvalidVector begins with the number of the query.
        """


class RouterProtocol(CatalogProtocol, SearchesProtocol, Protocol):
    """The collections of a cluster."""

    @property
    def is_store_reachable(self) -> bool:
        """Whether the database answered last."""

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ask shards on this event loop."""

    def full(self) -> Refused | None:
        """Return a shard all of whose replicas are full; None if every shard has one with room."""
