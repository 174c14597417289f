"""The interface of a search method, and the one place where methods differ.

`backends.make_backend` chooses a method. A backend returns a new state for each change. A
collection publishes a state with its rows as one view, by a single assignment. One exception: the
links of a graph change in place (`graph.neighbour_graph` says what readers may meet).
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
    """Take no notice of what is reported."""
    del share


class Backend(ABC, Generic[State]):
    """A way to search rows; ``State`` is its immutable index.

    What is abstract every method has. The rest is for a method that optimizes its index, saves it,
    takes in rows later, or promises recall; by default none of that.

    kind: the word that names it in the API.
    code_width: words `encode` returns a row; 0 when nothing need be stored.
    kernel: the exact kernel that it estimates.
    promises_recall: whether it searches farther where queries were audited and found too little.
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
        """Return what makes, of rows to come, all that can be made before `extend`; any thread.

        Its codes are never stored: they may be wider than `code_width`.
        """
        del state
        return self.encode

    @abstractmethod
    def empty(self) -> State:
        """Return the index of no rows."""

    @abstractmethod
    def extend(self, state: State, rows: VectorBatch, codes: UInt64s) -> State:
        """Return ``state`` with the last len(codes) of ``rows`` added; the old one stays valid.

        ``codes`` are what `encode`, or the `encoder` of this state, returned for the new rows.
        """

    def can_defer(self, state: State, rows: VectorBatch, count: int, numbers: int) -> bool:
        """Return whether ``count`` further rows may wait until the next reader adds them.

        True only where `extend` by them takes a moment, and can be tried again after an error.
        ``numbers`` is what a scan of them would read.
        """
        del state, rows, count, numbers
        return False

    @abstractmethod
    def renumber(self, state: State, rows: VectorBatch, new_rows: Int64s) -> State:
        """Return ``state`` after a compaction; any thread. The old one stays valid.

        ``rows`` are those that stay, in their old order. ``new_rows`` has the new number of each
        old row, rising over those that stay; -1 for a row that is gone.
        """

    def is_overdue(self, state: State, rows: int, live: int) -> bool:
        """Return whether `optimize` is worth its time for ``rows`` rows, ``live`` of them alive."""
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
        """Return ``state`` with what makes searches quicker: long work, for any thread.

        ``alive`` is 1 for the rows that are. None is returned soon once ``stop`` is set.
        """
        del rows, alive, stop, report
        return state

    def adopt(self, state: State, rows: VectorBatch, replacement: State) -> State | None:
        """Return ``state`` with what was optimized; quick. None when too many rows are new.

        ``replacement`` was made of ``state``, or of one that it was extended from. ``rows`` are all
        rows of ``state``.
        """
        del state, rows
        return replacement

    def saved(self, state: State) -> SavedIndex | None:
        """Return what to keep of ``state`` beside the rows; None when there is nothing.

        Cheap, for it is asked once for every piece written: ``links`` may be the array in use, and
        change while it is read.
        """
        del state
        return None

    def byte_step(self, notes: dict[str, Any]) -> tuple[float, int] | None:
        """Return step and origin of the bytes in which a saved index has rows; None without."""
        del notes
        return None

    def restore(self, rows: VectorBatch, codes: UInt64s, saved: SavedIndex) -> State:
        """Return the index of all of ``rows`` at once; ``codes`` are what `encode` returned.

        ``saved`` is what was kept of an earlier state, in numbers of the present rows, the
        backend's to keep. R is that of the widest row kept, 1 without any. Links may stem from
        several moments: of two rows, one may name the other and not be named back. Entries for rows
        that are gone have been left out; a row that lost all it had is `UNKNOWN`. Notes are empty
        when there are none.
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
        """Return the hits of each query; ``skip`` holds a row a query must not return, or -1."""

    def inverted(self, state: State, rows: VectorBatch) -> InvertedIndex:
        """Return postings of sparse rows: all, or all but the last; made now unless kept."""
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
        """Return pairs of permitted rows with GMM at least ``min_score``: rows a < b, scores.

        Each is found with probability ``recall`` at least: by default all rows are compared. With
        a limit there are only the most similar pairs, this many. Once ``stop`` is set, the work
        ends soon, with whatever has been found.

        Raises InvalidParameter (without a limit there are more than ``max_pairs``; of
            `PairPolicy`, unless given).
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
        """Return a join of permitted rows with queries like these, where there are bands for it."""
        del state, view, queries, min_score, recall
        return None

    def curve(self, state: State, view: RowView, limit: int) -> CostCurve:
        """Return what recall costs for a limit; the reason where that is not known."""
        del state, view
        return CostCurve(limit, reason=f"backend {self.kind!r} promises no measured recall")

    def allowance(self) -> list[tuple[int | None, float]]:
        """Return the share of the allowed miss aimed at, by greatest limit; None for any."""
        return []

    def take_audit(self, limit: int, asked: float, found: float) -> None:
        """Take in the recall that an audited query asked for, and what it found; one thread."""

    def finds_too_little(self) -> bool:
        """Return whether queries audited last found less than was asked, in the mean.

        It may be by chance: more of them should be audited.
        """
        return False

    @abstractmethod
    def nbytes(self, state: State) -> int:
        """Bytes of memory the state holds."""

    @abstractmethod
    def stats(self, state: State) -> dict[str, Any]:
        """Return table statistics for people, JSON-able."""
