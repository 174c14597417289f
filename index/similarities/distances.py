"""Parts of exact kernels: sums and products over coordinates, and cosines, in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gcws_search.index.contracts.arrays import Bools, Float64s, Int64s
from gcws_search.index.contracts.batches import VectorBatch

WORKED_ON: Final = 1 << 19
"""Numbers worked on at a time: a few megabytes."""

Each = Callable[[Float64s], Float64s]
"""What is done to |x_d − y_d|, entry by entry; gives the neutral element of its fold at 0."""


def folded_differences(
    queries: VectorBatch,
    rows: VectorBatch,
    each: Each,
    fold: np.ufunc,
    *,
    worked_on: int = WORKED_ON,
) -> Float64s:
    """Return the (m, n) folds of each(|x_d − y_d|) over all coordinates d."""
    out = np.empty((len(queries), len(rows)), np.float64)
    for part in _parts(rows, worked_on):
        if rows.form == "dense":
            values = rows.dense[part].astype(np.float64)
            for i, query in enumerate(queries.dense.astype(np.float64)):
                out[i, part] = fold.reduce(each(np.abs(values - query)), axis=1)
            continue
        entries = _Entries.of(rows[part])
        for i in range(len(queries)):
            shared = _Shared.of(_Entries.of(queries[i : i + 1]), entries)
            ours = each(np.abs(entries.values - shared.values))
            lone = np.broadcast_to(each(np.abs(shared.query.values)), shared.matched.shape)
            theirs = np.where(shared.matched, fold.identity, lone)
            out[i, part] = fold(fold.reduceat(ours, entries.starts), fold.reduce(theirs, axis=1))
    return out


def cosines(queries: VectorBatch, rows: VectorBatch, *, worked_on: int = WORKED_ON) -> Float64s:
    """Return the (m, n) cosines ρ of m queries and n rows, ``worked_on`` numbers at a time."""
    out = np.empty((len(queries), len(rows)), np.float64)
    known = np.unique(_Entries.of(queries).coordinates) if queries.form == "sparse" else None
    left, lengths = _rows_and_norms(queries, known)
    for part in _parts(rows, worked_on):
        right, norms = _rows_and_norms(rows[part], known)
        products = left @ right.T
        dots = products if known is None else products.toarray()
        out[:, part] = dots / (lengths[:, None] * norms)
    return np.clip(out, -1.0, 1.0)


def _rows_and_norms(batch: VectorBatch, known: Int64s | None) -> tuple[Any, Float64s]:
    """Return (n, width) vectors and their L2 norms; of sparse ones, the known coordinates alone."""
    if known is None:
        rows = batch.dense.astype(np.float64)
        return rows, np.sqrt(np.einsum("ij,ij->i", rows, rows))
    from scipy import sparse  # noqa: PLC0415  # no start waits for it

    entries = _Entries.of(batch)
    norms = np.sqrt(np.add.reduceat(entries.values**2, entries.starts))
    places = np.minimum(np.searchsorted(known, entries.coordinates), len(known) - 1)
    both = known[places] == entries.coordinates
    cells = entries.owners[both], places[both]
    shape = len(batch), len(known)
    return sparse.csr_array((entries.values[both], cells), shape=shape), norms


def _parts(rows: VectorBatch, worked_on: int) -> Iterator[slice]:
    """Yield runs of rows that are worked on together."""
    width = rows.dense.shape[1] if rows.form == "dense" else len(rows.values) // max(1, len(rows))
    step = max(1, worked_on // max(1, width))
    for first in range(0, len(rows), step):
        yield slice(first, min(first + step, len(rows)))


@dataclass(frozen=True, slots=True)
class _Entries:
    """The non-zero entries of sparse rows, none of them empty."""

    starts: Int64s  # (n,): where the entries of each row begin
    owners: Int64s  # (nnz,): the row of each entry
    coordinates: Int64s  # (nnz,): rising within a row
    values: Float64s  # (nnz,): signed

    @classmethod
    def of(cls, batch: VectorBatch) -> _Entries:
        """Return the entries of a sparse batch."""
        first = batch.indptr[0]
        entries = slice(first, batch.indptr[-1])
        slots = batch.slots[entries].astype(np.int64)
        magnitudes = batch.values[entries].astype(np.float64)
        owners = np.repeat(np.arange(len(batch)), np.diff(batch.indptr))
        signed = np.where(slots & 1, -magnitudes, magnitudes)
        return cls(batch.indptr[:-1] - first, owners, slots >> 1, signed)


@dataclass(frozen=True, slots=True)
class _Shared:
    """One query beside some rows."""

    query: _Entries
    values: Float64s  # (nnz of rows,): the query's, 0 where it has not the coordinate
    matched: Bools  # (n, nnz of query): whether a row has the query's coordinate too

    @classmethod
    def of(cls, query: _Entries, rows: _Entries) -> _Shared:
        """Match the coordinates of a query with those of rows."""
        last = len(query.coordinates) - 1
        places = np.minimum(np.searchsorted(query.coordinates, rows.coordinates), last)
        both = query.coordinates[places] == rows.coordinates
        matched = np.zeros((len(rows.starts), last + 1), np.bool_)
        matched[rows.owners[both], places[both]] = True
        return cls(query, np.where(both, query.values[places], 0.0), matched)
