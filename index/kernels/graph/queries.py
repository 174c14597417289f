"""The queries of one search: compared quickly with quantized rows, exactly with all rows."""

from typing import Any, NamedTuple

from gcws_search.index.kernels.compiling import inner
from gcws_search.index.kernels.gmm.dense import exact_dense
from gcws_search.index.kernels.gmm.sparse import exact_sparse
from gcws_search.index.kernels.lanes.vector import at, offset, pointer
from gcws_search.index.kernels.quantized.rows import SPARSE, RowAddresses


class Queries(NamedTuple):
    """The m queries of one call."""

    copies: Any  # (m, stride) uint8: dense queries, quantized as the rows are; (m, 0) when sparse
    copy_norms: Any  # (m,) float32: of the copies, in their steps; of the queries when sparse
    norms: Any
    dense: Any
    indptr: Any
    slots: Any
    values: Any
    keys: Any  # (m, t) uint64: in the first t tables
    skip: Any  # (m,) int64: a row that a query must not return, or -1
    min_score: Any  # rows below this exact score are no hits


class QueryRows(NamedTuple):
    """Queries by address: in the form of the quantized rows, and dense ones as float32."""

    quantized: Any
    dense: Any
    width: Any


@inner
def query_rows(kind: Any, queries: Any) -> Any:
    """Return queries by the addresses of their arrays, which must outlive them."""
    quantized = RowAddresses(
        kind,
        pointer(queries.copies),
        queries.copies.shape[1],
        pointer(queries.copy_norms),
        pointer(queries.indptr),
        pointer(queries.slots),
        pointer(queries.values),
    )
    return QueryRows(quantized, pointer(queries.dense), queries.dense.shape[1])


@inner
def score_exactly(
    queries: Any, m: Any, rows: Any, floats: Any, chosen: Any, count: Any, out: Any
) -> None:
    """Write the exact scores of query m and the first ``count`` rows chosen.

    Of sparse rows are those of ``rows``; dense ones are at the address of ``floats``.
    """
    held = queries.quantized
    if held.kind == SPARSE:
        first = at(held.indptr, m)
        exact_sparse(
            offset(held.slots, first),
            offset(held.values, first),
            at(held.indptr, m + 1) - first,
            rows,
            chosen,
            count,
            out,
        )
    else:
        query = offset(queries.dense, m * queries.width)
        exact_dense(query, floats, queries.width, chosen, count, out)
