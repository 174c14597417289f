"""Queries that are checked and ready to be searched."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from gcws_search import index as ix

_SLOW_LIMIT: Final = 1000


class QueryRequest(NamedTuple):
    """Queries that ask for the same, ready to be searched.

    Attributes
    ----------
    vectors : RawBatch or None
        One a query.
    item_id : str or None
        The stored item to search around when there are no vectors.
    filter_text : bytes
        The filter as JSON: equal texts, equal filters.
    unknown_names : sequence of str
        Names that the query alone has.
    offset : int
        The first hits of each ranking that are not shown; see `service.api.pages`.
    with_unknown : SparseVector or None
        In the place of vectors, where a collection of fixed dim has no coordinates for such names.
    allow_partial, is_strict : bool
        In a cluster: whether shards may be left out, and whether writes of others are waited for.
    is_shown : bool
        Whether all hits are part of an answer, whose length is limited.
    """

    vectors: ix.RawBatch | None
    item_id: str | None
    params: ix.SearchParams
    where: ix.Filter | None
    filter_text: bytes
    backend: str | None
    with_payload: bool
    with_vector: bool
    explain: bool
    offset: int = 0
    unknown_names: Sequence[str] = ()
    with_unknown: ix.SparseVector | None = None
    allow_partial: bool = False
    is_strict: bool = False
    is_shown: bool = True

    def exactly(self) -> QueryRequest:
        """Return the queries asked so that a scan answers them."""
        return self._replace(params=replace(self.params, recall=1.0))

    @property
    def group(self) -> Hashable:
        """Queries of one group may be searched together."""
        return self.params, self.filter_text, self.backend, self.allow_partial, self.is_strict

    @property
    def may_block(self) -> bool:
        """Whether answering may read files, or the payloads that no filter has read before."""
        return self.with_vector or self.where is not None or self.with_unknown is not None

    @property
    def pace(self) -> Hashable:
        """Queries of one pace take about the same time."""
        params = self.params
        return (
            params.recall,
            params.guarantee,
            self.where is None,
            params.limit > _SLOW_LIMIT,
            self.backend,
            params.rerank,
            params.candidates,
        )
