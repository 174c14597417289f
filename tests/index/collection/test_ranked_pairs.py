"""Pairs as lists by falling score, ties by ids, as sorting all of them gives."""

from contextlib import closing
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from gcws_search import index as ix
from gcws_search.index.contracts.policies import PairPolicy
from tests.support.index.items import opened_catalog, put_vectors
from tests.support.index.small_index import all_scores

_IDS = st.lists(st.text("abZ0äß€𝄞", min_size=1, max_size=3), min_size=2, max_size=8, unique=True)


@given(_IDS, st.data())
def test_ranked_pairs_are_the_first_of_all_when_sorted(ids: list[str], data: st.DataObject) -> None:
    every = [*combinations(range(len(ids)), 2)]
    pairs = np.array(data.draw(st.permutations(every)))
    choices = st.sampled_from([0.0, 0.25, 0.5, 1.0])
    scores = np.array(data.draw(st.lists(choices, min_size=len(every), max_size=len(every))))
    limit = data.draw(st.none() | st.integers(1, len(every) + 1))
    names = [sorted((ids[a], ids[b])) for a, b in pairs.tolist()]
    expected = sorted((-score, *both) for both, score in zip(names, scores.tolist(), strict=True))
    found = ix.rank_pairs(ids, pairs[:, 0], pairs[:, 1], scores, limit)
    assert found == [(a, b, -score) for score, a, b in expected[:limit]]


class _Counted(str):
    """An id that counts how often ids are compared."""

    __slots__ = ()
    compared = 0

    def __lt__(self, other: str) -> bool:
        _Counted.compared += 1
        return super().__lt__(other)


def test_ids_are_compared_as_often_as_sorting_them_needs_however_many_pairs_tie() -> None:
    ids = [_Counted(f"i{number}") for number in range(200)]
    a, b = np.triu_indices(len(ids), 1)
    order = ix.pair_order(ids, a, b, np.ones(len(a)), 3)
    assert len(order) == 3
    assert 0 < _Counted.compared < len(ids) * 8  # log2(200) is 7.6


def test_the_first_pairs_by_ids_are_listed_where_all_rows_are_equal(catalog: ix.Catalog) -> None:
    stored, _ = catalog.create("alike", ix.CollectionConfig(dim=3))
    put_vectors(stored, np.ones((60, 3), np.float32))
    every = [(a, b, 1.0) for a, b in combinations(sorted(f"i{row}" for row in range(60)), 2)]
    assert stored.pairs(min_score=0.9) == every
    assert stored.pairs(min_score=0.9, limit=70) == every[:70]


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("kind", ["gmm", "containment"])
def test_pairs_of_many_equal_rows_are_the_first_by_ids(
    tmp_path: Path, rng: np.random.Generator, kind: ix.Ranking, form: str
) -> None:
    """Many more than are held, and rows that have score 1 with others, but are not equal."""
    rows = np.zeros((90, 5))
    rows[:, 0], rows[:, 1] = 1e30, rng.integers(1, 4, 90)  # which a sum of doubles does not show
    rows[60:] = rng.integers(1, 3, (30, 5))
    singles = rows[rng.permutation(90)].astype(np.float32)
    rows = singles.astype(np.float64)
    policies = ix.Policies(pairs=PairPolicy(max_pairs=20))
    with closing(opened_catalog(tmp_path, policies=policies)) as catalog:
        config = ix.CollectionConfig(dim=5 if form == "dense" else None)
        stored, _ = catalog.create("alike", config)
        put_vectors(stored, singles)
        scores = all_scores(singles, singles, 5)
        if kind == "containment":
            shared = np.minimum(rows[:, None], rows[None]).sum(axis=2)
            scores = shared / np.minimum(*np.broadcast_arrays(rows.sum(1)[:, None], rows.sum(1)))
        ids = [f"i{row}" for row in range(90)]
        expected = sorted(
            (-scores[a, b], *sorted((ids[a], ids[b]))) for a, b in combinations(range(90), 2)
        )
        for limit in (1, 2, 90, 700):
            found = stored.pairs(min_score=0.7, recall=1.0, limit=limit, ranking=kind)
            assert found == [(a, b, -score) for score, a, b in expected[:limit]]
