"""Pairs as lists by falling score, ties by ids, as sorting all of them gives."""

from itertools import combinations

import numpy as np
from hypothesis import given, strategies as st

from gcws_search import index as ix
from tests.support.index.items import put_vectors

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
