"""The delta: committed rows that the index does not hold yet, scanned exactly beside it.

Inserting one row into tables and graph costs many times its share of a bulk insert. So new rows
stay in the delta, and a background thread merges all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import Int64s, UInt64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import BatchHits, RowView
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.contracts.policies import DeltaPolicy
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.exact.scan import scan
from gcws_search.index.threads import Workers


@dataclass(frozen=True, slots=True)
class Delta:
    """The codes of the ``count`` rows that follow those of the index.

    ``last`` has the (n, bands) codes of the rows that were added last, ``before`` the earlier ones:
    adding to a delta copies none of them.
    """

    last: UInt64s | None = None
    count: int = 0
    before: Delta | None = None

    def with_more(self, codes: UInt64s) -> Delta:
        """Return the delta with further rows."""
        count = len(codes)
        return Delta(codes, self.count + count, self) if count else self

    def has_room(
        self, policy: DeltaPolicy, rows: VectorBatch, count: int = 0, numbers: int = 0
    ) -> bool:
        """Return whether a scan stays cheap with ``count`` further rows of ``numbers`` numbers.

        The rows of the delta are the last of ``rows``.
        """
        if self.count + count > policy.max_rows:
            return False
        if rows.form == "dense":
            own = self.count * int(rows.dense.shape[1])
        else:
            own = int(rows.indptr[-1] - rows.indptr[-1 - self.count])
        return own + numbers <= policy.max_numbers

    @property
    def codes(self) -> UInt64s:
        """The (count, bands) codes; there is at least one row."""
        parts: list[UInt64s] = []
        delta: Delta | None = self
        while delta is not None and delta.last is not None:
            parts.append(delta.last)
            delta = delta.before
        return parts[0] if len(parts) == 1 else np.concatenate(parts[::-1])

    def after(self, count: int) -> Delta:
        """Return the rows after the first ``count``."""
        if count == self.count:
            return NONE
        return Delta(self.codes[count:], self.count - count) if count else self

    def some(self, places: Int64s) -> Delta:
        """Return some of the rows: (m,) int64, rising, counted from the first of the delta."""
        return Delta(self.codes[places], len(places)) if len(places) else NONE


NONE: Final = Delta()

Search = Callable[[RowView, Int64s], BatchHits]
"""Returns the hits among rows; called with the row that each query must not return, or -1."""


def with_delta(
    search: Search,
    view: RowView,
    count: int,
    queries: VectorBatch,
    params: SearchParams,
    skip: Int64s,
    *,
    workers: Workers,
) -> BatchHits:
    """Return the hits that ``search`` finds in the index, merged with those of the delta.

    The delta has the last ``count`` rows of the view.
    """
    known = len(view.vectors) - count
    permitted = view.permitted[known:]
    new = int(np.count_nonzero(permitted))
    sample = view.sample
    if sample is not None:
        rows = sample.rows[sample.rows < known]
        sample = replace(sample, rows=rows) if len(rows) else None
    older = RowView(
        view.vectors.first(known), view.permitted[:known], view.permitted_count - new, sample
    )
    found = search(older, np.where(skip < known, skip, -1))
    if not new:
        return found
    if len(queries) == 1 and found.sizes[0] >= params.limit:  # less is not among the best
        last_score = float(found.scores[0, params.limit - 1])
        params = replace(params, min_score=min(1.0, max(params.min_score, last_score)))
    near = scan(
        RowView(view.vectors[known:], permitted, new),
        queries,
        params,
        skip=np.where(skip >= known, skip - known, -1),
        inverted=InvertedIndex(),
        workers=workers,
    )
    return found.merge(near.shift(known), params.limit)
