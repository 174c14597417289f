"""The queries of one search: compared quickly with rows as walks keep them, exactly with all."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from index.arrays import Float32s, Int64s, UInt8s, UInt32s
from index.kernels.coarse import SPARSE, Query, clear, place_shift, spread_over
from index.kernels.gmm_dense import exact_dense_at
from index.kernels.gmm_sparse import exact_sparse_at
from index.kernels.simd import at, offset, pointer


class Queries(NamedTuple):
    """Queries by address.

    Attributes
    ----------
    kind : int
        As what rows are kept; see `kernels.coarse`.
    codes, stride, norms : address of uint8, bytes, address of float32
        Dense queries as the rows are kept.
    dense, width : address of float32, int
        The same, exactly.
    indptr, slots, values : addresses of int64, uint32 and float32
        Sparse queries, compressed.
    """

    kind: Any
    codes: Any
    stride: Any
    norms: Any
    dense: Any
    width: Any
    indptr: Any
    slots: Any
    values: Any


@njit(cache=True, nogil=True)
def queries_of(
    kind: Any, codes: UInt8s, norms: Float32s, dense: Float32s, indptr: Int64s, slots: UInt32s,
    values: Float32s,
) -> Any:  # fmt: skip
    """Return queries by the addresses of their arrays, which must outlive them."""
    return Queries(
        kind, pointer(codes), codes.shape[1], pointer(norms), pointer(dense), dense.shape[1],
        pointer(indptr), pointer(slots), pointer(values),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _shift(queries: Any, m: Any) -> Any:
    return place_shift(at(queries.indptr, m + 1) - at(queries.indptr, m))


@njit(cache=True, nogil=True)
def spread_query(queries: Any, m: Any, table: Any) -> None:
    """Write a sparse query to an empty table; `clear_query` must follow."""
    if queries.kind == SPARSE:
        first, last = at(queries.indptr, m), at(queries.indptr, m + 1)
        spread_over(table, _shift(queries, m), queries.slots, queries.values, first, last)


@njit(cache=True, nogil=True)
def clear_query(queries: Any, m: Any, table: Any) -> None:
    """Make the table empty again that a sparse query was written to."""
    if queries.kind == SPARSE:
        first, last = at(queries.indptr, m), at(queries.indptr, m + 1)
        clear(table, _shift(queries, m), queries.slots, first, last)


@njit(cache=True, nogil=True)
def query_at(queries: Any, m: Any, table: Any) -> Any:
    """Return a query to be compared quickly; a sparse one has been written to the table."""
    shift = _shift(queries, m) if queries.kind == SPARSE else np.uint32(0)
    return Query(offset(queries.codes, m * queries.stride), at(queries.norms, m), table, shift)


@njit(cache=True, nogil=True)
def score_exactly(
    queries: Any, m: Any, rows: Any, floats: Any, chosen: Any, count: Any, out: Any
) -> None:
    """Write the exact scores of a query and some rows.

    Parameters
    ----------
    queries, m : Queries, int
    rows : coarse.Rows
        With the sparse rows.
    floats : address of float32
        The dense rows.
    chosen : address of int64
        The rows, of which the first ``count`` are scored.
    out : address of float64, written from its beginning on
    """
    if queries.kind == SPARSE:
        first = at(queries.indptr, m)
        exact_sparse_at(
            offset(queries.slots, first), offset(queries.values, first),
            at(queries.indptr, m + 1) - first, rows.indptr, rows.slots, rows.values, chosen, count,
            out,
        )  # fmt: skip
    else:
        query = offset(queries.dense, m * queries.width)
        exact_dense_at(query, floats, queries.width, chosen, count, out)
