"""The one polymorphic seam: what a collection asks of a search method.

A backend never changes what a reader sees. It hands out immutable states; a collection puts one
state beside the rows it was made for, into one view, and replaces the view by assignment.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from index.arrays import Float64s, Int64s, UInt8s, UInt64s
from index.params import SearchParams
from index.vectors import VectorBatch


@dataclass(frozen=True, slots=True)
class Explanation:
    """What one query cost and what it can promise.

    Attributes
    ----------
    method : str
        "scan", "probe" or the backend's own.
    bands, depth : int
        Tables probed, and the least depth reached (0 where no table was probed).
    candidates : int
        Live, permitted rows found in tables, or scanned.
    scored : int
        Rows whose exact similarity was computed.
    beam : int
        Width of the beam of a walk over neighbour lists, 0 without one.
    expected_recall : float
        The promise this answer was stopped at; 1 for a scan.
    """

    method: str
    bands: int
    depth: int
    candidates: int
    scored: int
    beam: int
    expected_recall: float


@dataclass(frozen=True, slots=True)
class RowHits:
    """Hits of one query by row.

    Attributes
    ----------
    rows : (h,) int64
    scores : (h,) float64
        Falling; equal scores by rising row. Where the ``limit``-th score is shared, a scan
        returns every row that shares it, so h may exceed ``limit``; the caller, who knows the
        ids, breaks the tie.
    explanation : Explanation
    """

    rows: Int64s
    scores: Float64s
    explanation: Explanation


@dataclass(frozen=True, slots=True)
class RowView:
    """The rows one search may see: rows 0 … n-1 of a collection.

    Attributes
    ----------
    vectors : VectorBatch
        All n rows, deleted ones included.
    permitted : (n,) uint8
        1 where a row may be returned (alive and passing the filter), 0 elsewhere.
    permitted_count : int
        Number of ones.
    """

    vectors: VectorBatch
    permitted: UInt8s
    permitted_count: int


State = TypeVar("State")


class Backend(Protocol[State]):
    """A search method over rows; ``State`` is its immutable index."""

    @property
    def kind(self) -> str:
        """The word that names the method in the API."""

    @property
    def code_width(self) -> int:
        """Number of uint64 words `encode` returns a row; 0 when nothing need be stored."""

    def encode(self, batch: VectorBatch) -> UInt64s:
        """Return the (n, code_width) words from which tables can be rebuilt; pure, any thread."""

    def empty(self) -> State:
        """Return the index of no rows."""

    def extend(self, state: State, batch: VectorBatch, codes: UInt64s, first_row: int) -> State:
        """Return ``state`` with rows first_row … first_row + n - 1 added; the old one stays valid.

        ``codes`` is what `encode` returned for ``batch``.
        """

    def renumber(self, state: State, new_rows: Int64s) -> State:
        """Return ``state`` after a compaction: row i becomes new_rows[i], -1 means gone.

        ``new_rows`` rises over the rows that stay.
        """

    def search(
        self,
        state: State,
        view: RowView,
        queries: VectorBatch,
        params: SearchParams,
        skip: Int64s | None = None,
    ) -> Sequence[RowHits]:
        """Return one `RowHits` a query; ``skip`` holds a row a query must not return, or -1."""

    def nbytes(self, state: State) -> int:
        """Bytes of memory the state holds."""

    def stats(self, state: State) -> dict[str, Any]:
        """Return table statistics for people, JSON-able."""
