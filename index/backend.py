"""The interface of a search method, and the one place where methods differ.

`backends.make_backend` chooses a method. A backend returns a new state for each change. A
collection publishes a state with its rows as one view, by a single assignment. One exception: the
links of a graph change in place (see `graph.neighbour_graph` for what readers may see).
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

from gcws_search.index.contracts.analysis import CostCurve
from gcws_search.index.contracts.arrays import Int64s, UInt8s, UInt64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import BatchHits, Pairs, RowView
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.contracts.saved_index import SavedIndex
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.joins import all_pairs
from gcws_search.index.lsh.band_join import BandJoin
from gcws_search.index.similarities import Kernel
from gcws_search.index.threads import Workers

State = TypeVar("State")

ProgressReport: TypeAlias = Callable[[float], None]
"""Called with, from time to time, the share of some work that is done."""


def no_report(share: float) -> None:
    """Ignore progress reports."""
    del share


class Backend(ABC, Generic[State]):
    """A way to search rows; ``State`` is its immutable index.

    Every method implements the abstract functions. The rest is for methods that optimize or save
    their index, add rows later, or promise recall; the defaults do none of that.

    kind: the name of the method in the API.
    code_width: words per row that `encode` returns; 0 if nothing needs to be stored.
    kernel: the exact kernel that it estimates.
    promises_recall: whether it searches farther if audited queries found too little.
    """

    kind: str
    code_width: int
    workers: Workers
    kernel: Kernel
    promises_recall = False

    @abstractmethod
    def encode(self, batch: VectorBatch) -> UInt64s:
        """Return the (n, code_width) words from which tables can be rebuilt; pure, any thread."""

    def encoder(self, state: State) -> Callable[[VectorBatch], UInt64s]:
        """Return a function that computes what `extend` needs of new rows; any thread.

        Its codes are never stored, so they may be wider than `code_width`.
        """
        del state
        return self.encode

    @abstractmethod
    def empty(self) -> State:
        """Return an empty index."""

    @abstractmethod
    def extend(self, state: State, rows: VectorBatch, codes: UInt64s) -> State:
        """Return ``state`` with the last len(codes) of ``rows`` added; the old one stays valid.

        ``codes`` come from `encode`, or from the `encoder` of this state, for the new rows.
        """

    def can_defer(self, state: State, rows: VectorBatch, count: int, numbers: int) -> bool:
        """Return whether ``count`` further rows may wait until the next reader adds them.

        True only if `extend` with them is quick, and can be repeated after an error. ``numbers`` is
        how many numbers a scan of them would read.
        """
        del state, rows, count, numbers
        return False

    @abstractmethod
    def renumber(self, state: State, rows: VectorBatch, new_rows: Int64s) -> State:
        """Return ``state`` after a compaction; any thread. The old one stays valid.

        ``rows`` are the remaining rows in their old order. ``new_rows`` has the new number of each
        old row, ascending over the remaining rows; -1 for a removed row.
        """

    def is_overdue(self, state: State, rows: int, live: int) -> bool:
        """Return whether `optimize` is worthwhile for ``rows`` rows, ``live`` of them alive."""
        del state, rows, live
        return False

    def optimize(
        self,
        state: State,
        rows: VectorBatch,
        alive: UInt8s,
        stop: threading.Event,
        report: ProgressReport = no_report,
    ) -> State | None:
        """Return ``state`` with a faster index: long work, for any thread.

        ``alive`` is 1 for live rows. Returns None soon after ``stop`` is set.
        """
        del rows, alive, stop, report
        return state

    def adopt(self, state: State, rows: VectorBatch, replacement: State) -> State | None:
        """Return ``state`` with an optimized index; quick. None if too many rows are new.

        ``replacement`` was made from ``state``, or from an earlier state. ``rows`` are all rows of
        ``state``.
        """
        del state, rows
        return replacement

    def saved(self, state: State) -> SavedIndex | None:
        """Return the parts of ``state`` to save besides the rows; None if there are none.

        It must be cheap, because it is called for every part written: ``links`` may be the array in
        use, and change while it is read.
        """
        del state
        return None

    def byte_step(self, notes: dict[str, Any]) -> tuple[float, int] | None:
        """Return step and origin of a saved index's byte copies; None without them."""
        del notes
        return None

    def restore(self, rows: VectorBatch, codes: UInt64s, saved: SavedIndex) -> State:
        """Return the index of all of ``rows`` at once; ``codes`` are the result of `encode`.

        ``saved`` is from an earlier state, renumbered to the present rows; the backend may keep it.
        R is that of the widest saved row, 1 without any. Links may be from different times: a row
        may name another one that does not name it. Entries of removed rows are left out; a row that
        lost all its entries is `UNKNOWN`. Notes are empty if there are none.
        """
        del saved
        return self.extend(self.empty(), rows, codes)

    @abstractmethod
    def search(
        self,
        state: State,
        view: RowView,
        queries: VectorBatch,
        params: SearchParams,
        skip: Int64s | None = None,
    ) -> BatchHits:
        """Return the hits of each query; ``skip`` has a row that a query must not return, or -1."""

    def inverted(self, state: State, rows: VectorBatch) -> InvertedIndex:
        """Return postings of all sparse rows, except perhaps the last; built now unless stored."""
        del state
        return InvertedIndex.of(rows, self.workers)

    def pairs(
        self,
        state: State,
        view: RowView,
        *,
        min_score: float,
        recall: float,
        limit: int | None = None,
        stop: threading.Event | None = None,
        max_pairs: int | None = None,
    ) -> Pairs:
        """Return pairs of permitted rows a < b with GMM at least ``min_score``, with scores.

        Each is found with a probability of at least ``recall``: by default all rows are compared. A
        limit returns only that many most similar pairs. Once ``stop`` is set, the work ends soon,
        with the pairs found so far.

        Raises InvalidParameter (without a limit, there are more than ``max_pairs``; by default
            that of `PairPolicy`).
        """
        del recall
        return all_pairs(
            view,
            min_score=min_score,
            limit=limit,
            stop=stop,
            workers=self.workers,
            inverted=self.inverted(state, view.vectors),
            max_pairs=max_pairs,
        )

    def band_join(
        self, state: State, view: RowView, queries: VectorBatch, *, min_score: float, recall: float
    ) -> BandJoin | None:
        """Return a join of permitted rows with queries like these, if bands can find them."""
        del state, view, queries, min_score, recall
        return None

    def curve(self, state: State, view: RowView, limit: int) -> CostCurve:
        """Return the cost by recall, for a limit; or the reason why it is unknown."""
        del state, view
        return CostCurve(limit, reason=f"backend {self.kind!r} promises no measured recall")

    def allowance(self) -> list[tuple[int | None, float]]:
        """Return the share of the allowed misses aimed at, by greatest limit; None for any."""
        return []

    def take_audit(self, limit: int, asked: float, found: float) -> None:
        """Record the requested and the measured recall of an audited query; one thread."""

    def finds_too_little(self) -> bool:
        """Return whether recently audited queries found less than requested, on average.

        This may be chance, so more queries should be audited.
        """
        return False

    @abstractmethod
    def nbytes(self, state: State) -> int:
        """Bytes of memory of the state."""

    @abstractmethod
    def stats(self, state: State) -> dict[str, Any]:
        """Return statistics to be read by people, as JSON."""
