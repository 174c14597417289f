"""What routes call: protocols of a collection and of a catalog, wherever the items are.

Searching is awaited. All else is called in a thread, where it may wait for a disk or a network.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol, TypeVar

from gcws_search import index as ix
from gcws_search.index import AnyArray

if TYPE_CHECKING:
    from gcws_search.service.translate.requests import QueryRequest

T = TypeVar("T")

Point = str | Sequence[float] | AnyArray | ix.SparseVector | ix.NamedVector
"""An id or a vector."""
JsonVector = list[float] | dict[str, list[Any]]
"""A vector as the API shows it."""


class ShardsAsked(NamedTuple):
    """Which shards of a cluster answered.

    Attributes
    ----------
    total, answered : int
    missing : sequence of int
        The others.
    """

    total: int
    answered: int
    missing: Sequence[int]


class RankedHits(NamedTuple):
    """All that the answer to one query shows.

    Attributes
    ----------
    ids : sequence of str
        By falling score, ties by id.
    scores : sequence of float
    payloads : sequence of bytes or None
        JSON text of each hit, None for a hit without; None where they were not asked for.
    vectors : sequence of JsonVector or None
        As sent, None for an item deleted since; None where they were not asked for.
    explanation : Explanation or None
        None where it was not asked for.
    measured_recall : float or None
        What audited queries of this kind found; None without an explanation or such queries.
    seconds : float
        How long the search took.
    shards : ShardsAsked or None
        Of a cluster.
    """

    ids: Sequence[str]
    scores: Sequence[float]
    payloads: Sequence[bytes | None] | None
    vectors: Sequence[JsonVector | None] | None
    explanation: ix.Explanation | None
    measured_recall: float | None
    seconds: float
    shards: ShardsAsked | None = None


class AuditedQueries(NamedTuple):
    """Recall asked against recall found.

    Attributes
    ----------
    results : list of dict
        One kind of query each, as the API shows it.
    allowance : list of (int or None, float)
        Share of the missed hits that searches aim at, by limit.
    waiting : int
        Queries still to be answered exactly.
    """

    results: list[dict[str, Any]]
    allowance: list[tuple[int | None, float]]
    waiting: int


class NamesProtocol(Protocol):
    """Names of a collection's coordinates; see `index.vectors.names.CoordinateNames`."""

    @property
    def is_open(self) -> bool:
        """Whether items bring names of their own."""

    def __len__(self) -> int:
        """Return the number of names."""

    def reserve(self, names: Sequence[str]) -> list[int]:
        """Return the coordinates of names that items have."""

    def find(
        self, names: Sequence[str], *, beyond_dim: bool = False
    ) -> tuple[list[int], list[str]]:
        """Return the coordinates of a query's names, and those that no coordinate has."""

    def of(self, coordinates: Sequence[int]) -> list[ix.NamedCoordinate]:
        """Return those of some coordinates that have names."""


class CollectionProtocol(Protocol):
    """One collection.

    What each call raises stands at `index.catalog.collection.StoredCollection`.
    """

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def identity(self) -> object:
        """The same object as long as it is this collection, and no other of its name."""

    @property
    def config(self) -> ix.CollectionConfig:
        """What it was created with."""

    @property
    def space(self) -> ix.VectorSpace:
        """Checks and transforms vectors."""

    @property
    def names(self) -> NamesProtocol:
        """Names of coordinates."""

    def wait_until_found(self) -> None:
        """Return when searches find what was put, or when that takes too long."""

    # Searching

    def search(
        self, asked: QueryRequest, show: Callable[[Sequence[RankedHits]], T]
    ) -> Awaitable[T]:
        """Search for one query, or for several vectors that ask for the same; at least one.

        Parameters
        ----------
        asked : QueryRequest
        show : callable
            Is handed the hits of each, where the search ran: on the event loop, or in a thread.

        Returns
        -------
        awaitable
            Of what ``show`` returns.

        Raises
        ------
        BackendNotFound, ItemNotFound, AnswerTooLarge
        InvalidVector
            The transform leaves nothing of the vector; its place begins with the row.
        """

    def search_batch(
        self, asked: Sequence[QueryRequest], show: Callable[[Sequence[RankedHits]], T]
    ) -> Awaitable[T]:
        """Search for many queries in a thread; those that ask for the same are searched together.

        Parameters
        ----------
        asked : sequence of QueryRequest
            An only one may have several vectors. Then there is an answer for each.
        show : callable
            As of `search`.

        Raises
        ------
        BackendNotFound, ItemNotFound, AnswerTooLarge
        InvalidVector
            As of `search`; its place begins with the number of the query.
        """

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
    ) -> Callable[[], ix.WriteResult]:
        """Check and hash items; return what puts them, to be called once."""

    def submit(
        self,
        read: Callable[[], ix.ItemBatch],
        mode: ix.Mode,
        ended: Callable[[ix.WriteResult | BaseException], None],
        run: Callable[[Callable[[], None], Callable[[], None]], None],
    ) -> None:
        """Put items without a thread that waits for them; called on the event loop."""

    def delete(self, ids: Sequence[str]) -> int:
        """Delete items, and return how many there were."""

    def delete_where(self, where: ix.Filter) -> int:
        """Delete all items whose payloads pass a filter, and return how many did."""

    def load_names(self) -> None:
        """Know all names that have been stored, by whichever process."""

    def set_names(self, names: Sequence[str]) -> None:
        """Give the first coordinates their names."""

    def replace_metadata(self, value: bytes | None) -> None:
        """Replace the metadata, JSON text of an object; None removes it."""

    def loads(self, since: int, key: str | None = None) -> list[ix.LoadRecord]:
        """Return how far loads under keys have come."""

    def save_load(self, record: ix.LoadRecord, forgotten: int) -> None:
        """Store how far a load has come."""

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

    def count(self, where: ix.Filter | None) -> int:
        """Return the number of items, or of those whose payloads pass a filter."""

    def find_names(self, prefix: str = "", limit: int = 20) -> list[ix.NamedCoordinate]:
        """Return the first coordinates that have names."""

    def describe(self) -> ix.Description:
        """Return all there is to know of the collection."""

    def curve(self, limit: int) -> ix.CostCurve:
        """Return what recall costs for a limit."""

    def audited(self) -> AuditedQueries:
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

    def map_items(
        self, params: ix.MapParams, where: ix.Filter | None, also: Sequence[Point]
    ) -> ix.ItemMap:
        """Return places in a plane for a sample of the items."""

    def profile(self, sample: int, seed: int) -> ix.Profile:
        """Return histograms of a sample of the items."""


class SnapshotsProtocol(Protocol):
    """The snapshots of all collections; see `index.storage.snapshots.Snapshots`."""

    def list(self, collection: str) -> list[ix.Snapshot]:
        """Return a collection's snapshots by name."""

    def opened(self, collection: str, name: str) -> tuple[ix.Snapshot, BinaryIO]:
        """Return a snapshot and its file, open for reading."""

    def incoming(self, collection: str, name: str) -> ix.Incoming:
        """Begin a snapshot that comes from elsewhere."""

    def remove(self, collection: str, name: str) -> None:
        """Remove a snapshot."""


class CatalogProtocol(Protocol):
    """All collections; see `index.catalog.catalog.Catalog` for what each call raises."""

    @property
    def snapshots(self) -> SnapshotsProtocol:
        """The snapshots of all collections."""

    @property
    def is_store_reachable(self) -> bool | None:
        """Whether the database of a cluster answered last; None on one machine."""

    def get(self, name: str) -> CollectionProtocol:
        """Return a collection; called on the event loop."""

    def list(self) -> list[ix.Summary]:
        """Return the collections that can be used, by name."""

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
