"""Indexes with neighbour lists, and the recall of their answers."""

import threading
from collections import Counter
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.harness.engine import RowHits
from gcws_search.index.backends import POLICIES, Policies
from gcws_search.index.contracts.parameters import CollectionConfig, SearchParams
from gcws_search.index.graph.search_plan import SearchPolicy
from tests.support.data.generated import Csr
from tests.support.index.policies import FREE_SEARCHES
from tests.support.index.small_index import Mask, Rows, SmallIndex
from tests.support.reference import mathematics

SIGMAS = 4
"""A mean over m queries may stay below what is expected by this many of its standard errors."""


def linked(rows: Rows, *, policies: Policies = POLICIES) -> SmallIndex:
    """Return an index of rows that has neighbour lists."""
    config = CollectionConfig(dim=None if isinstance(rows, Csr) else rows.shape[1])
    return link(SmallIndex(config, threads=2, policies=policies).add(rows))


def link(index: SmallIndex, alive: Mask | None = None) -> SmallIndex:
    """Make the neighbour lists of an index anew."""
    view = index.view(alive)
    made = index.backend.linked(index.state, view.vectors, view.permitted, threading.Event())
    index.adopt(made)
    assert index.state.graph is not None
    return index


def searching(index: SmallIndex, policy: SearchPolicy) -> SmallIndex:
    """Return an index that searches its graph by another policy."""
    other = copy(index)
    other.state = replace(index.state, graph=replace(index.state.graph, policy=policy))
    return other


def by_graph(index: SmallIndex) -> SmallIndex:
    """Return an index that searches its graph however cheap a scan is."""
    return searching(index, FREE_SEARCHES)


@dataclass(frozen=True)
class Recall:
    """Recall over some queries.

    ``mean``, ``error``: the mean share of the true hits, and the standard error of that mean.
    ``methods``: how many queries each method answered.
    """

    mean: float
    error: float
    methods: Counter[str]

    def reaches(self, asked: float) -> bool:
        """Return whether the mean is what was asked for, within chance."""
        return self.mean >= asked - SIGMAS * self.error


def recall(
    index: SmallIndex,
    queries: Rows,
    limit: int,
    asked: float = 0.9,
    *,
    permitted: Mask | None = None,
    min_score: float = 0.0,
    skip: Sequence[int] | None = None,
) -> Recall:
    """Compare the answers at the recall asked for with those of the exact scan."""
    found, true = (
        index.search(
            queries,
            SearchParams(limit=limit, recall=share, min_score=min_score),
            permitted=permitted,
            skip=skip,
        )
        for share in (asked, 1.0)
    )
    shares = []
    for hits, best in zip(found, true, strict=True):
        check_hits(hits, limit, min_score, permitted)
        assert min_score or min(limit, len(hits.rows)) == min(limit, len(best.rows))
        shares.append(
            mathematics.recall_by_score(hits.scores[:limit].tolist(), best.scores[:limit].tolist())
        )
    methods = Counter(hits.explanation.method for hits in found)
    return Recall(float(np.mean(shares)), float(np.std(shares)) / len(shares) ** 0.5, methods)


def check_hits(hits: RowHits, limit: int, min_score: float, permitted: Mask | None) -> None:
    """Check what holds of any answer."""
    assert mathematics.is_falling(hits.scores)
    assert len(set(hits.rows.tolist())) == len(hits.rows)
    assert all(score >= min_score for score in hits.scores)
    assert permitted is None or permitted[hits.rows].all()
    assert len(hits.rows) <= limit or hits.explanation.method == "scan"
