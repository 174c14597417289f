"""Joins by bands: pairs that share one are found once, scored exactly, at the recall asked for."""

import numpy as np
import pytest

from gcws_search.index.contracts.parameters import CollectionConfig, GcwsParams
from gcws_search.index.kernels.lsh.band_join import BandShape, Buckets, fill_buckets, join_buckets
from tests.support.data.generated import sparse_of
from tests.support.index.small_index import SmallIndex, all_scores

DIM = 40


def made(rng: np.random.Generator, count: int, base: np.ndarray) -> np.ndarray:
    rows = base[rng.integers(0, len(base), count)] * rng.gamma(60, 1 / 60, (count, base.shape[1]))
    return np.asarray(rows, np.float32)


def index_of(rows: np.ndarray, dim: int | None, params: GcwsParams) -> SmallIndex:
    index = SmallIndex(CollectionConfig(dim=dim, backend=params), threads=2)
    return index.add(rows if dim is not None else sparse_of(rows), [500])


def joined(
    index: SmallIndex, queries: np.ndarray, least: float, recall: float, permitted: np.ndarray
) -> dict[tuple[int, int], float]:
    asked = index.prepare(queries if index.config.dim is not None else sparse_of(queries))
    view = index.view(permitted.astype(np.uint8))
    join = index.backend.band_join(index.state, view, asked[:9], min_score=least, recall=recall)
    places, rows, scores = join(asked)
    pairs = zip(places.tolist(), rows.tolist(), strict=True)
    hits = dict(zip(pairs, scores.tolist(), strict=True))
    assert len(hits) == len(places)
    return hits


@pytest.mark.parametrize(
    "params", [GcwsParams(), GcwsParams(encoding="b_bit", bits=12), GcwsParams(bands=3)]
)
@pytest.mark.parametrize("dim", [DIM, None])
def test_the_share_asked_for_is_found_of_permitted_rows_and_scored_exactly(
    rng: np.random.Generator, dim: int | None, params: GcwsParams
) -> None:
    base = rng.gamma(0.5, size=(60, DIM)) * rng.choice([-1, 1], (60, DIM))
    rows, queries = made(rng, 1500, base), made(rng, 700, base)
    permitted = rng.random(1500) < 0.7
    scores = all_scores(queries, rows, DIM)
    for least, recall in ((0.7, 0.9), (0.9, 0.5), (0.9, 0.99)):
        hits = joined(index_of(rows, dim, params), queries, least, recall, permitted)
        wanted = np.count_nonzero(permitted & (scores >= least))
        assert all(
            permitted[row] and scores[key] >= least - 1e-12 for key in hits for row in key[1:]
        )
        assert hits == {key: pytest.approx(float(scores[key]), abs=1e-12) for key in hits}
        # Pairs share the draws of their samples: more than the binomial spread is allowed for.
        assert len(hits) >= (recall - 0.08) * wanted > 300


def test_rows_that_wait_in_the_delta_are_joined_as_well(rng: np.random.Generator) -> None:
    rows = made(rng, 2200, rng.gamma(0.5, size=(60, DIM)))
    index = index_of(rows[:2100], DIM, GcwsParams())
    index.state = index.optimize()
    index.add(rows[2100:])
    assert index.state.delta.count == 100
    hits = joined(index, rows[2000:], 0.9, 0.9, np.arange(2200) != 2150)
    assert {(place, 2000 + place) for place in range(200)} - hits.keys() == {(150, 2150)}


def test_no_bands_join_at_a_score_that_too_few_samples_tell_apart(rng: np.random.Generator) -> None:
    rows = made(rng, 800, rng.gamma(0.5, size=(20, DIM)))
    for params, least, recall in (
        (GcwsParams(bands=1), 0.05, 0.99),
        (GcwsParams(), 0.9, 1.0),
        (GcwsParams(band_width=2), 0.9, 0.9),
    ):
        index = index_of(rows, DIM, params)
        view, asked = index.view(), index.prepare(rows[:5])
        join = index.backend.band_join(index.state, view, asked, min_score=least, recall=recall)
        assert join is None


@pytest.mark.parametrize(
    ("depths", "bits", "width"), [(16, 4, 5), (16, 4, 16), (5, 12, 3), (8, 8, 1)]
)
def test_rows_and_queries_of_equal_bands_are_listed_whatever_the_room(
    rng: np.random.Generator, depths: int, bits: int, width: int
) -> None:
    keys, rows, asked = 4, 300, 50
    samples = rng.integers(0, 2, (rows + asked, keys * depths)).astype(np.uint64)
    codes = np.zeros((keys, rows + asked), np.uint64)
    for number in range(keys * depths):
        place = np.uint64(64 - (number % depths + 1) * bits)
        codes[number // depths] |= samples[:, number] << place
    held, own = codes[:, :rows].copy(), codes[:, rows:].copy()
    bands = keys * depths // width
    shape, permitted = (
        BandShape(depths, bits, width, bands),
        (rng.random(rows) < 0.5).astype(np.uint8),
    )
    buckets = Buckets(
        np.empty((bands, 65), np.int32),
        np.empty((bands, asked), np.int32),
        np.empty((bands, 16), np.uint64),
    )
    fill_buckets(own, shape, buckets)
    out = np.empty(3, np.uint64)
    for band in range(bands):
        part = samples[:, band * width : (band + 1) * width]
        equal = (part[rows:, None] == part[None, :rows]).all(axis=2) & (permitted == 1)
        found, row, at = list[int](), 0, 0
        while row < rows:
            count, row, at = join_buckets(
                own, buckets, held, permitted, shape, band, row, rows, at, out
            )
            found += out[:count].tolist()
        expected = [(query << 32) + number for query, number in np.argwhere(equal).tolist()]
        assert sorted(found) == expected
