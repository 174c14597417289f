"""The queries of one search: compared quickly with quantized rows, and exactly with all rows."""

from typing import Any, NamedTuple

import numpy as np

from gcws_search.index.kernels.compiling import inner
from gcws_search.index.kernels.gmm.dense import exact_dense
from gcws_search.index.kernels.gmm.sparse import exact_sparse
from gcws_search.index.kernels.hashing.gcws_table import draw_keys
from gcws_search.index.kernels.lanes.vector import at, offset, pointer
from gcws_search.index.kernels.quantized.l1_distance import REGISTER_BYTES
from gcws_search.index.kernels.quantized.quantize import round_rows
from gcws_search.index.kernels.quantized.rows import BYTES, FLOATS, MAX_SHORT, SPARSE, RowAddresses

_MAX_BYTE = 255.0


class Queries(NamedTuple):
    """The m queries of one call."""

    norms: Any  # (m,) float32
    dense: Any
    indptr: Any
    slots: Any
    values: Any
    keys: Any  # (m, t) uint64: in the first t tables; (0, 0) if they must be computed
    skip: Any  # (m,) int64: a row that a query must not return, or -1
    min_score: Any  # rows below this exact score are not hits


class QueryRows(NamedTuple):
    """Queries by address: in the form of the quantized rows, and dense ones as float32."""

    quantized: Any
    dense: Any
    width: Any


@inner
def query_keys(queries: Any, hashing: Any, tables: Any) -> Any:
    """Return the (m, tables) keys of queries, computed if they are not known."""
    if len(queries.keys) > 0:
        return queries.keys
    keys = np.empty((len(queries.norms), tables), np.uint64)
    draw_keys(queries.dense, hashing, keys)
    return keys


@inner
def quantize_queries(rows: Any, queries: Any, step: Any, origin: Any) -> Any:
    """Return queries quantized like the rows: memory, start of its copies, (m,) norms."""
    m, stride = len(queries.norms), rows.stride
    if rows.kind in (FLOATS, SPARSE):
        return queries.dense.view(np.uint8).reshape(-1), 0, queries.norms
    block = np.empty(m * stride + REGISTER_BYTES, np.uint8)
    start = -block.ctypes.data % REGISTER_BYTES
    copies = block[start : start + m * stride].reshape((m, stride))
    norms = np.empty(m, np.float32)
    if rows.kind == BYTES:
        round_rows(queries.dense, step, origin, 0.0, _MAX_BYTE, copies, norms)
    else:
        round_rows(queries.dense, step, 0, -MAX_SHORT, MAX_SHORT, copies.view(np.int16), norms)
    return block, start, norms


@inner
def query_rows(rows: Any, queries: Any, copies: Any, copy_norms: Any) -> Any:
    """Return queries by the addresses of their arrays, which must stay alive."""
    quantized = RowAddresses(
        rows.kind,
        copies,
        rows.stride,
        copy_norms,
        pointer(queries.indptr),
        pointer(queries.slots),
        pointer(queries.values),
    )
    return QueryRows(quantized, pointer(queries.dense), queries.dense.shape[1])


@inner
def score_exactly(
    queries: Any, m: Any, rows: Any, vectors: Any, chosen: Any, count: Any, out: Any
) -> None:
    """Write the exact scores of query m and the first ``count`` rows chosen.

    Sparse rows are in ``rows``; dense ones are ``vectors``, by address.
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
        width, stride = queries.width, vectors.stride
        query = offset(queries.dense, m * width)
        if stride > 0:
            exact_dense(query, width, vectors.codes, stride, chosen, count, out)
        else:
            exact_dense(query, width, vectors.floats, width, chosen, count, out)
