"""The queries of one search: compared quickly with rows as walks keep them, exactly with all."""

from typing import Any, NamedTuple

from numba import njit

from gcws_search.index.contracts.arrays import Float32s, Int64s, UInt8s, UInt32s
from gcws_search.index.kernels.gmm.dense import exact_dense_at
from gcws_search.index.kernels.gmm.sparse import exact_sparse_at
from gcws_search.index.kernels.lanes.vector import at, offset, pointer
from gcws_search.index.kernels.quantized.rows import SPARSE, RowAddresses


class QueryRows(NamedTuple):
    """Queries by address.

    Attributes
    ----------
    kept : coarse.RowAddresses
        The queries as the rows are kept.
    dense : address of (m, width) float32
        Dense queries, exactly.
    width : int
    """

    kept: Any
    dense: Any
    width: Any


@njit(cache=True, nogil=True)
def queries_of(
    kind: Any,
    copies: UInt8s,
    norms: Float32s,
    dense: Float32s,
    indptr: Int64s,
    slots: UInt32s,
    values: Float32s,
) -> Any:
    """Return queries by the addresses of their arrays, which must outlive them.

    Parameters
    ----------
    kind : int
        How rows are kept; see `kernels.coarse`.
    copies : (m, stride) uint8
        Dense queries as the rows are kept; (m, 0) when sparse.
    norms : (m,) float32
        Of the copies, in their steps; of the queries when sparse.
    dense : (m, width) float32
    indptr, slots, values : (m + 1,) int64, (nnz,) uint32 and (nnz,) float32
        Sparse queries, compressed.
    """
    kept = RowAddresses(
        kind,
        pointer(copies),
        copies.shape[1],
        pointer(norms),
        pointer(indptr),
        pointer(slots),
        pointer(values),
    )
    return QueryRows(kept, pointer(dense), dense.shape[1])


@njit(cache=True, nogil=True)
def score_exactly(
    queries: Any, m: Any, rows: Any, floats: Any, chosen: Any, count: Any, out: Any
) -> None:
    """Write the exact scores of a query and some rows.

    Parameters
    ----------
    queries, m : QueryRows, int
    rows : coarse.RowAddresses
        With the sparse rows.
    floats : address of float32
        The dense rows.
    chosen : address of int64
        The rows, of which the first ``count`` are scored.
    out : address of float64, written from its beginning on
    """
    kept = queries.kept
    if kept.kind == SPARSE:
        first = at(kept.indptr, m)
        exact_sparse_at(
            offset(kept.slots, first),
            offset(kept.values, first),
            at(kept.indptr, m + 1) - first,
            rows,
            chosen,
            count,
            out,
        )
    else:
        query = offset(queries.dense, m * queries.width)
        exact_dense_at(query, floats, queries.width, chosen, count, out)
