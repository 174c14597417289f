"""Searching a view for many queries, in parts that bound what their hits take."""

from __future__ import annotations

from typing import Final

import numpy as np

from gcws_search.index.collection.backend_index import BackendIndex
from gcws_search.index.collection.items import View, without_surplus
from gcws_search.index.contracts.arrays import Int64s
from gcws_search.index.contracts.hits import BatchHits, RowView
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.vectors.space import VectorBatch

_MAX_TIES: Final = 1 << 25
"""Queries times rows searched together: all rows may tie, where all items are equal."""


def search_in_parts(
    indexed: BackendIndex,
    view: View,
    rows: RowView,
    queries: VectorBatch,
    params: SearchParams,
    skip: Int64s | None,
) -> BatchHits:
    """Return the hits of each query by one backend.

    Parameters
    ----------
    indexed : BackendIndex
    view : View
    rows : RowView
        The view's rows, and which of them are permitted.
    queries : VectorBatch
        m of them.
    params : SearchParams
    skip : (m,) int64 or None
        A row each query must not return, or -1.
    """
    step = max(1, _MAX_TIES // max(1, len(view)))
    if len(queries) <= step:
        return indexed.backend.search(indexed.state, rows, queries, params, skip)
    parts = []
    for first in range(0, len(queries), step):
        places = np.arange(first, min(first + step, len(queries)))
        found = indexed.backend.search(
            indexed.state,
            rows,
            queries[places[0] : places[-1] + 1],
            params,
            None if skip is None else skip[places],
        )
        parts.append((places, without_surplus(found, view.ids, params.limit)))
    return BatchHits.merged(parts)
