"""Queries of a calibration."""

import itertools
import threading

import numpy as np
import pytest

from gcws_search.index.contracts.arrays import Float32s
from gcws_search.index.contracts.hits import RowView
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.graph.held_out import HeldOut
from tests.support.data.generated import Csr, sparse_of
from tests.support.index.recall import linked


def held_out(rows: Float32s | Csr, sums: int) -> HeldOut:
    """Return the first 64 rows of a graph, held out, with sums of two."""
    index = linked(rows)
    vectors, chosen = index.rows.view(), np.arange(64)
    graph, tables = index.state.graph, index.state.tables
    return HeldOut.of(
        graph, tables, RowView(vectors, np.ones(len(vectors), np.uint8), len(vectors)), chosen,
        graph.band_keys.keys(vectors[chosen], 8), InvertedIndex(),
        sums=sums, pieces=4, stop=threading.Event(),
    )  # fmt: skip


@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0])
def test_no_sum_scores_better_than_its_norm_allows(scale: float, rng: np.random.Generator) -> None:
    rows = np.abs(rng.standard_normal((3000, 16)))
    rows /= rows.sum(axis=1, keepdims=True)
    rows *= np.exp(scale * rng.standard_normal((3000, 1)))
    sample = held_out(rows.astype(np.float32), sums=40)
    others = sample.items + np.arange(2 * sample.sums)
    best = sample.best_scores(others)
    true = sample.true_hits(others, 1).scores[:, 0]
    assert (true <= best + 1e-6).all()
    if scale == 0:  # every norm is 1, that of a sum 2, that of a mean 1 again
        assert best == pytest.approx([0.5] * 40 + [1.0] * 40)
    assert (best <= 1).all()


def test_means_are_half_of_the_sums(rng: np.random.Generator) -> None:
    rows = rng.standard_normal((3000, 16)).astype(np.float32)
    dense = held_out(rows, sums=9)
    sums, means = (dense.queries.dense[first : first + 9, :16] for first in (64, 73))
    assert sums == pytest.approx(rows[:9] + rows[1:10])
    assert means == pytest.approx(sums / 2)
    sparse = held_out(sparse_of(rows), sums=9).queries
    borders = sparse.indptr[[64, 73, 82]]
    sums, means = (sparse.values[first:last] for first, last in itertools.pairwise(borders))
    assert means == pytest.approx(sums / 2)
    assert sparse.norms[73:82] == pytest.approx(sparse.norms[64:73] / 2)
