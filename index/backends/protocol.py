"""The interface of a search method (backend), and the one place where methods differ.

`backends.make_backend` chooses a method. A backend returns a new state for each change. A
collection publishes a state with its rows as one view, by a single assignment. One exception: the
links of a graph change in place (`graph.neighbour_graph` says what readers may meet).
"""

import threading
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from gcws_search.index.contracts.arrays import Int64s, UInt8s, UInt64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.cost_curve import CostCurve
from gcws_search.index.contracts.hits import BatchHits, Pairs, RowView
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.contracts.saved_index import SavedIndex
from gcws_search.index.joins.all_pairs import all_pairs
from gcws_search.index.similarities.public import Kernel
from gcws_search.index.threads import Workers

State = TypeVar("State")
State_contra = TypeVar("State_contra", contravariant=True)

ProgressReport: TypeAlias = Callable[[float], None]
"""Called with, from time to time, the share of some work that is done."""


def no_report(share: float) -> None:
    """Take no notice of what is reported."""
    del share


class Encoder(Protocol):
    """What makes codes of rows that are to come; equal ones make equal codes."""

    def encode(self, batch: VectorBatch) -> UInt64s:
        """Return the (n, words) codes of the vectors; pure, any thread."""


class Backend(Protocol[State]):
    """A way to search rows; ``State`` is its immutable index."""

    @property
    def kind(self) -> str:
        """The word that names it in the API."""

    @property
    def code_width(self) -> int:
        """Number of uint64 words `encode` returns a row; 0 when nothing need be stored."""

    @property
    def workers(self) -> Workers:
        """The threads of its kernels."""

    @property
    def kernel(self) -> Kernel:
        """The exact kernel that it estimates."""

    def encode(self, batch: VectorBatch) -> UInt64s:
        """Return the (n, code_width) words from which tables can be rebuilt; pure, any thread."""

    def empty(self) -> State:
        """Return the index of no rows."""

    def extend(self, state: State, rows: VectorBatch, codes: UInt64s) -> State:
        """Return ``state`` with the last len(codes) of ``rows`` added; the old one stays valid.

        Parameters
        ----------
        state : State
            The index of all earlier rows.
        rows : VectorBatch
            All rows, the new ones included.
        codes : (n, words) uint64
            What `encode`, or the `encoder` of this state, returned for the new rows.
        """

    def renumber(self, state: State, rows: VectorBatch, new_rows: Int64s) -> State:
        """Return ``state`` after a compaction; any thread. The old one stays valid.

        Parameters
        ----------
        rows : VectorBatch
            The rows that stay, in their old order.
        new_rows : (old rows,) int64
            New number of each old row, rising over those that stay; -1 for a row that is gone.
        """

    def search(
        self,
        state: State,
        view: RowView,
        queries: VectorBatch,
        params: SearchParams,
        skip: Int64s | None = None,
    ) -> BatchHits:
        """Return the hits of each query; ``skip`` holds a row a query must not return, or -1."""

    def nbytes(self, state: State) -> int:
        """Bytes of memory the state holds."""

    def stats(self, state: State) -> dict[str, Any]:
        """Return table statistics for people, JSON-able."""


@runtime_checkable
class SelfOptimizing(Protocol[State]):
    """A backend whose index is optimized in the background."""

    def is_overdue(self, state: State, rows: int, live: int) -> bool:
        """Return whether `optimize` is worth its time.

        Parameters
        ----------
        rows, live : int
            How many rows there are, and how many of them are alive.
        """

    def optimize(
        self,
        state: State,
        rows: VectorBatch,
        alive: UInt8s,
        stop: threading.Event,
        report: ProgressReport = no_report,
    ) -> State | None:
        """Return ``state`` with what makes searches quicker: long work, for any thread.

        Parameters
        ----------
        rows : VectorBatch
            All its rows.
        alive : (n,) uint8
            1 for the rows that are alive.
        stop : threading.Event
            Once it is set the work ends soon, and None is returned.
        report : callable
            Called with the share that is done, where that is known.
        """

    def adopt(self, state: State, rows: VectorBatch, replacement: State) -> State | None:
        """Return ``state`` with what was optimized; quick.

        Parameters
        ----------
        state : State
            The state that was optimized, or one extended since.
        rows : VectorBatch
            All its rows.

        Returns
        -------
        State or None
            None when too many rows have been added since.
        """


@runtime_checkable
class StateSaving(Protocol[State]):
    """A backend whose index is saved beside the rows, as it takes long to build."""

    def saved(self, state: State) -> SavedIndex | None:
        """Return what to keep of ``state``; None when there is nothing.

        Cheap, for it is asked once for every piece written: ``links`` may be the array in use, and
        change while it is read.
        """

    def restore(self, rows: VectorBatch, codes: UInt64s, saved: SavedIndex) -> State:
        """Return the index of all of ``rows`` at once.

        Parameters
        ----------
        codes : (n, code_width) uint64
            What `encode` returned for the rows.
        saved : SavedIndex
            What was kept of an earlier state, in numbers of the present rows, the backend's to
            keep. R is that of the widest row kept, 1 without any. Links may stem from several
            moments: of two rows, one may name the other and not be named back. Entries for rows
            that are gone have been left out; a row that lost all it had is `UNKNOWN`. Notes are
            empty when there are none.
        """


@runtime_checkable
class Deferring(Protocol[State_contra]):
    """A backend that takes in rows in a moment, so that the next reader may add them."""

    def can_defer(self, state: State_contra, rows: VectorBatch, count: int, numbers: int) -> bool:
        """Return whether further rows may wait until the next reader adds them.

        True only where `extend` by them takes a moment, and can be tried again after an error.

        Parameters
        ----------
        rows : VectorBatch
            Those there are.
        count, numbers : int
            How many further ones, and how many numbers a scan of them would read.
        """


@runtime_checkable
class StateEncoding(Protocol[State_contra]):
    """A backend whose codes of rows to come depend on its state."""

    def encoder(self, state: State_contra) -> Encoder:
        """Return what makes, of rows to come, all that can be made before their turn.

        Its codes are for `extend` alone, and never stored: they may be wider than `code_width`.
        """


@runtime_checkable
class PairFinding(Protocol[State_contra]):
    """A backend whose index finds pairs quicker than a comparison of all rows."""

    def pairs(
        self,
        state: State_contra,
        view: RowView,
        *,
        min_score: float,
        recall: float,
        limit: int | None = None,
        stop: threading.Event | None = None,
    ) -> Pairs:
        """Return pairs of permitted rows with GMM at least ``min_score``: rows a < b, scores.

        Parameters
        ----------
        recall : float
            Each such pair is found with at least this probability.
        limit : int or None
            Only the most similar pairs, this many; None for all.
        stop : threading.Event or None
            Once set, the work ends soon, with whatever has been found.

        Raises
        ------
        InvalidParameter
            Without a limit there are more than `PairPolicy.max_pairs`.
        """


@runtime_checkable
class Audited(Protocol):
    """A backend that promises recall, and searches farther where queries found too little."""

    def allowance(self) -> list[tuple[int | None, float]]:
        """Return the share of the allowed miss aimed at, by greatest limit; None for any."""

    def audited(self, limit: int, asked: float, found: float) -> None:
        """Take in the recall that a query asked for, and what it found; one thread."""

    def finds_too_little(self) -> bool:
        """Return whether queries audited last found less than was asked, in the mean.

        It may be by chance: more of them should be audited.
        """


@runtime_checkable
class Calibrated(Protocol[State_contra]):
    """A backend that measures what recall costs."""

    def curve(self, state: State_contra, view: RowView, limit: int) -> CostCurve:
        """Return what recall costs for a limit; the reason where that is not known."""


@cache
def _does(kind: type, protocol: type) -> bool:
    """Return whether a class has the members of a protocol."""
    return issubclass(kind, protocol)


def audited(backend: Backend[State]) -> Audited | None:
    """Return a backend as one whose queries may be audited, None where it promises nothing."""
    return cast(Audited, backend) if _does(type(backend), Audited) else None


def cost_curve(backend: Backend[State], state: State, view: RowView, limit: int) -> CostCurve:
    """Return what recall costs for a limit; see `Calibrated`."""
    if _does(type(backend), Calibrated):
        return cast(Calibrated[State], backend).curve(state, view, limit)
    return CostCurve(limit, reason=f"backend {backend.kind!r} promises no measured recall")


def self_optimizing(backend: Backend[State]) -> SelfOptimizing[State] | None:
    """Return a backend as one that optimizes itself, None where it does not."""
    return cast(SelfOptimizing[State], backend) if _does(type(backend), SelfOptimizing) else None


def is_overdue(backend: Backend[State], state: State, rows: int, live: int) -> bool:
    """Return whether optimizing is due; see `SelfOptimizing`."""
    optimizing = self_optimizing(backend)
    return optimizing is not None and optimizing.is_overdue(state, rows, live)


def index_to_save(backend: Backend[State], state: State) -> SavedIndex | None:
    """Return what a file holds of a state beside its rows, None for nothing."""
    if not _does(type(backend), StateSaving):
        return None
    return cast(StateSaving[State], backend).saved(state)


def restore_state(
    backend: Backend[State], rows: VectorBatch, codes: UInt64s, saved: SavedIndex
) -> State:
    """Return the index of all of ``rows``, with what was saved of an earlier one."""
    if not _does(type(backend), StateSaving):
        return backend.extend(backend.empty(), rows, codes)
    return cast(StateSaving[State], backend).restore(rows, codes, saved)


def can_defer(
    backend: Backend[State], state: State, rows: VectorBatch, count: int, numbers: int
) -> bool:
    """Return whether further rows may be added by the next reader; see `Deferring`."""
    if not _does(type(backend), Deferring):
        return False
    return cast(Deferring[State], backend).can_defer(state, rows, count, numbers)


def encoder_of(backend: Backend[State], state: State) -> Encoder:
    """Return what encodes rows to come; see `StateEncoding`."""
    if not _does(type(backend), StateEncoding):
        return backend
    return cast(StateEncoding[State], backend).encoder(state)


def find_pairs(
    backend: Backend[State],
    state: State,
    view: RowView,
    *,
    min_score: float,
    recall: float,
    limit: int | None = None,
    stop: threading.Event | None = None,
) -> Pairs:
    """Return pairs of rows; see `PairFinding`. Without it all rows are compared."""
    if _does(type(backend), PairFinding):
        return cast(PairFinding[State], backend).pairs(
            state, view, min_score=min_score, recall=recall, limit=limit, stop=stop
        )
    return all_pairs(view, min_score=min_score, limit=limit, stop=stop, workers=backend.workers)
