"""Queries of a calibration."""

import threading

import numpy as np
import pytest

from gcws_search.index.contracts.hits import RowView
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.graph.held_out import HeldOut
from tests.support.index.recall import linked


def held_out(rows: np.ndarray, sums: int) -> HeldOut:
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
    best = sample.best_scores_of_sums()
    true = sample.true_hits(sample.items + np.arange(sample.sums), 1).scores[:, 0]
    assert (true <= best + 1e-6).all()
    if scale == 0:  # every norm is 1, and that of a sum 2
        assert best == pytest.approx(0.5)
    assert (best <= 1).all()
