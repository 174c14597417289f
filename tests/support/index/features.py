"""Indexes of real features, and what they should find by definition."""

import threading

import numpy as np
import numpy.typing as npt
import pytest

from gcws_search.index.comparison.features import FeatureState
from gcws_search.index.contracts.batches import SparseVector
from gcws_search.index.contracts.parameters import (
    BackendParams,
    CollectionConfig,
    FourierParams,
    NystroemParams,
)
from tests.support.data import generated
from tests.support.index.small_index import Mask, Rows, SmallIndex

DIM = 24
ALL = 700
QUERIES = 9
KINDS: tuple[BackendParams, ...] = (
    FourierParams(kind="rff", features=100, gamma=2.0),
    FourierParams(kind="nrff", features=96, gamma=2.0, seed=3),
    FourierParams(kind="folded_rff", features=64, gamma=1.0),
    NystroemParams(kind="gmm_nystroem", landmarks=50),
    NystroemParams(kind="rbf_nystroem", landmarks=50, gamma=2.0),
)
Doubles = npt.NDArray[np.float64]

every_kind = pytest.mark.parametrize("params", KINDS, ids=lambda params: params.kind)
nystroem = pytest.mark.parametrize("params", KINDS[3:], ids=lambda params: params.kind)
forms = pytest.mark.parametrize("dim", [DIM, None])


def items_of(
    rows: generated.Floats, dim: int | None
) -> list[npt.NDArray[np.float32] | SparseVector]:
    """Return dense rows as a user sends them."""
    if dim:
        return list(rows)
    return [SparseVector(np.arange(DIM), row) for row in rows]


def data_of(rng: np.random.Generator, dim: int | None) -> tuple[Rows, Rows]:
    rows, queries = generated.clustered(rng, ALL, QUERIES, dim=DIM)
    rows[300] = rows[17]  # ties
    return (rows, queries) if dim else (generated.sparse_of(rows), generated.sparse_of(queries))


def state_of(index: SmallIndex) -> FeatureState:
    assert isinstance(index.state, FeatureState)
    return index.state


def improve(index: SmallIndex, alive: Mask | None = None) -> None:
    """Draw landmarks, where the backend has any."""
    rows = index.rows.view()
    live = np.ones(len(rows), np.uint8) if alive is None else alive
    if index.backend.is_overdue(index.state, len(rows), int(live.sum())):
        better = index.backend.optimize(index.state, rows, live, threading.Event())
        index.state = index.backend.adopt(index.state, rows, better)


def made_index(
    rows: Rows, dim: int | None, params: BackendParams, *, threads: int = 1
) -> SmallIndex:
    index = SmallIndex(CollectionConfig(dim=dim, backend=params), threads=threads).add(rows)
    improve(index)
    return index


def estimates(index: SmallIndex, queries: Rows) -> Doubles:
    """Return the inner products of features by definition."""
    made = state_of(index).map
    assert made is not None
    left, right = (
        made.transform(batch).astype(np.float64)
        for batch in (index.prepare(queries), index.rows.view())
    )
    return np.asarray(left @ right.T)


def own_scores(index: SmallIndex, queries: Rows) -> Doubles:
    scores: Doubles = index.backend.kernel.scores(index.prepare(queries), index.rows.view())
    return scores


def best(scores: Doubles, limit: int, permitted: Mask | None = None) -> list[Doubles]:
    """Return the best permitted scores of each query, falling."""
    rows = slice(None) if permitted is None else permitted.astype(bool)
    return [np.sort(line[rows])[::-1][:limit] for line in scores]
