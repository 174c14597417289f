"""What a backend hands out besides hits: codes, sketches, pairs, figures."""

import zlib
from collections.abc import Callable
from functools import cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from gcws_search.index.backends import ExactBackend, GcwsBackend, make_backend
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.hits import RowView
from gcws_search.index.contracts.parameters import (
    BackendParams,
    CollectionConfig,
    Encoding,
    ExactParams,
    GcwsParams,
    SearchParams,
)
from gcws_search.index.hashing.gcws import Signatures
from gcws_search.index.vectors.space import VectorSpace
from tests.support.data import generated
from tests.support.data.adapters import LARGE_DIM, dense_of, full_sketch, prepared, space_of
from tests.support.index.small_index import Rows, SmallIndex, all_scores
from tests.support.reference import mathematics
from tests.support.statistics import SIGMAS, assert_proportion

DIM = 24
RELATIVE = 1e-12
Vector = dict[int, float]


def gcws(dim: int | None, params: GcwsParams, *, threads: int = 1) -> GcwsBackend:
    backend = make_backend(CollectionConfig(dim=dim, backend=params), threads=threads)
    assert isinstance(backend, GcwsBackend)
    return backend


def vectors_of(rng: np.random.Generator, n: int) -> list[Vector]:
    return [
        {int(i): float(x) for i, x in enumerate(row) if rng.random() < 0.7 or i == 0}
        for row in rng.standard_normal((n, DIM)).astype(np.float32)
    ]


def codes_of(backend: GcwsBackend, batch: VectorBatch) -> npt.NDArray[np.uint16]:
    codes = backend.sketch(batch, "b_bit")
    assert not isinstance(codes, Signatures)
    return codes


# --- codes and sketches ------------------------------------------------------------------------


@pytest.mark.parametrize("params", [GcwsParams(bands=5), GcwsParams(bands=3, band_width=3)])
def test_codes_are_the_same_dense_and_sparse_alone_and_in_a_batch_on_any_threads(
    rng: np.random.Generator, params: GcwsParams
) -> None:
    vectors = vectors_of(rng, 700)
    space = space_of(DIM)
    expected = gcws(DIM, params).encode(space.prepare(space.from_dense(dense_of(vectors, DIM))))
    assert expected.shape == (700, params.bands)
    assert expected.dtype == np.uint64
    for threads in (1, 2, 3):
        for dim in (DIM, LARGE_DIM, None):
            backend = gcws(dim, params, threads=threads)
            assert backend.code_width == params.bands
            batch = prepared(space_of(dim), vectors)
            np.testing.assert_array_equal(backend.encode(batch), expected)
            np.testing.assert_array_equal(backend.encode(batch[3:4]), expected[3:4])
            np.testing.assert_array_equal(backend.encode(batch[300:]), expected[300:])


def test_codes_differ_between_seeds_and_encodings(rng: np.random.Generator) -> None:
    batch = prepared(space_of(DIM), vectors_of(rng, 20))
    encodings: tuple[Encoding, ...] = ("full", "zero_bit", "b_bit")
    codes = [
        gcws(DIM, GcwsParams(bands=4, seed=seed, encoding=encoding)).encode(batch)
        for seed in (0, 1, 2**40)
        for encoding in encodings
    ]
    for i, one in enumerate(codes):
        for other in codes[:i]:
            assert np.all(one != other)


def test_encoding_nothing_gives_no_codes() -> None:
    for dim in (DIM, None):
        backend = gcws(dim, GcwsParams(bands=4))
        assert backend.encode(prepared(space_of(dim), [])).shape == (0, 4)


@pytest.mark.parametrize("dim", [DIM, LARGE_DIM, None])
@pytest.mark.parametrize("params", [GcwsParams(bands=5), GcwsParams(bands=3, band_width=3)])
def test_a_sketch_shows_the_samples_that_are_banded(
    rng: np.random.Generator, dim: int | None, params: GcwsParams
) -> None:
    batch = prepared(space_of(dim), vectors_of(rng, 30))
    backend = gcws(dim, params)
    full = backend.sketch(batch, "full")
    zero_bit = backend.sketch(batch, "zero_bit")
    assert isinstance(full, Signatures)
    assert isinstance(zero_bit, Signatures)
    assert full.slots.shape == full.levels.shape == (30, backend.plan.samples)
    expected = full_sketch(batch, seed=params.seed, samples=512)
    samples = backend.plan.samples
    np.testing.assert_array_equal(full.slots, expected.slots[:, :samples])
    np.testing.assert_array_equal(full.levels, expected.levels[:, :samples])
    np.testing.assert_array_equal(zero_bit.slots, full.slots)


PAIRS: dict[str, Callable[[np.random.Generator], npt.NDArray[np.float64]]] = {
    "signed": lambda rng: rng.standard_normal((2, 300)),
    "not negative": lambda rng: rng.gamma(1.0, size=(2, 300)),
    "few slots that win most": lambda rng: rng.gamma(1.0, size=(2, 300)) ** 12,
    "one slot each": lambda _: np.eye(2, 300),
}


@pytest.mark.parametrize("bits", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("name", PAIRS)
def test_codes_of_different_slots_are_equal_with_the_probability_of_their_bits(
    rng: np.random.Generator, name: str, bits: int
) -> None:
    rows: list[Vector] = [{i: float(x) for i, x in enumerate(row) if x} for row in PAIRS[name](rng)]
    batch = prepared(space_of(300), rows)
    hits = others = 0
    for seed in range(8):
        backend = gcws(300, GcwsParams(bands=256, bits=bits, seed=seed))
        codes, full = codes_of(backend, batch), backend.sketch(batch, "full")
        assert isinstance(full, Signatures)
        assert codes.dtype == np.uint16
        assert codes.max() < 2**bits
        equal, same = codes[0] == codes[1], full.slots[0] == full.slots[1]
        assert equal[same].all()
        hits, others = hits + int(equal[~same].sum()), others + int((~same).sum())
    assert others > 1000
    assert_proportion(hits, others, 2.0**-bits)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_b_bit_codes_collide_as_theory_says(rng: np.random.Generator, bits: int) -> None:
    dim = 1000
    u = rng.standard_normal(dim)
    v = u + 0.8 * rng.standard_normal(dim)
    pair = [
        {i: float(x) for i, x in enumerate((w / np.abs(w).sum()).astype(np.float32))}
        for w in (u, v)
    ]
    similarity = mathematics.gmm(*pair)
    batch = prepared(space_of(dim), pair)
    hits, samples = 0, 0
    for seed in range(4):
        codes = codes_of(gcws(dim, GcwsParams(bands=256, bits=bits, seed=seed)), batch)
        hits += int(np.sum(codes[0] == codes[1]))
        samples += codes.shape[1]
    expected = similarity + (1 - similarity) * 2.0**-bits
    # Codes drop t*, which adds less than 0.01 for vectors of one norm and many slots.
    assert_proportion(hits, samples, expected, slack=0.01)


# --- pairs -------------------------------------------------------------------------------------


def true_pairs(
    scores: npt.NDArray[np.float64], min_score: float, alive: npt.NDArray[np.uint8]
) -> dict[tuple[int, int], float]:
    a, b = np.nonzero(np.triu(scores >= min_score, 1))
    return {
        (int(i), int(j)): float(scores[i, j])
        for i, j in zip(a, b, strict=True)
        if alive[i] and alive[j]
    }


def found_pairs(
    index: SmallIndex, alive: npt.NDArray[np.uint8], min_score: float, recall: float
) -> dict[tuple[int, int], float]:
    view = RowView(index.rows.view(), alive, int(alive.sum()))
    a, b, scores = index.backend.pairs(index.state, view, min_score=min_score, recall=recall)
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    assert len(pairs) == len(set(pairs))
    assert all(i < j for i, j in pairs)
    return dict(zip(pairs, scores.tolist(), strict=True))


ALL = 1200


@cache
def duplicated(kind: str) -> tuple[Rows, int | None, npt.NDArray[np.float64]]:
    """Return rows with many near pairs, the dimension, and all scores; made once."""
    rng = np.random.default_rng(zlib.crc32(kind.encode()))
    if kind == "dense":
        rows, _ = generated.near_duplicates(rng, ALL, 1)
        return rows, 24, all_scores(rows, rows, 24)
    counts, _ = generated.counts(rng, ALL, 1, words=150)
    return counts, None, all_scores(counts, counts, 150)


@pytest.mark.parametrize("kind", ["dense", "counts"])
@pytest.mark.parametrize("backend", [ExactParams(), GcwsParams(bands=8)])
def test_a_recall_of_1_finds_every_pair(
    rng: np.random.Generator, kind: str, backend: BackendParams
) -> None:
    rows, dim, scores = duplicated(kind)
    index = SmallIndex(CollectionConfig(dim=dim, backend=backend)).add(rows, [1100, 3])
    alive = (rng.random(ALL) < 0.8).astype(np.uint8)
    for min_score in (0.35, 0.5):
        truth = true_pairs(scores, min_score, alive)
        assert truth
        found = found_pairs(index, alive, min_score, 1.0)
        assert found == pytest.approx(truth, rel=RELATIVE)


@pytest.mark.parametrize("kind", ["dense", "counts"])
@pytest.mark.parametrize(("min_score", "recall"), [(0.4, 0.5), (0.5, 0.9), (0.6, 0.8)])
def test_joined_pairs_are_real_and_as_many_as_asked_for(
    rng: np.random.Generator, kind: str, min_score: float, recall: float
) -> None:
    rows, dim, scores = duplicated(kind)
    alive = (rng.random(ALL) < 0.8).astype(np.uint8)
    truth = true_pairs(scores, min_score, alive)
    shares = []
    for seed in range(8):
        params = GcwsParams(bands=16, seed=seed)
        index = SmallIndex(CollectionConfig(dim=dim, backend=params)).add(rows, [1100, 3])
        found = found_pairs(index, alive, min_score, recall)
        assert found.keys() <= truth.keys()
        assert all(score == pytest.approx(truth[pair]) for pair, score in found.items())
        shares.append(len(found) / len(truth))
    spread = float(np.std(shares, ddof=1)) / np.sqrt(len(shares))
    assert np.mean(shares) >= recall - SIGMAS * spread


@pytest.mark.parametrize("kind", ["dense", "counts"])
@pytest.mark.parametrize("limit", [1, 7, 300])
def test_a_limit_keeps_the_most_similar_pairs(
    rng: np.random.Generator, kind: str, limit: int
) -> None:
    rows, dim, scores = duplicated(kind)
    alive = (rng.random(ALL) < 0.8).astype(np.uint8)
    best = sorted(true_pairs(scores, 0.3, alive).values(), reverse=True)[:limit]
    for backend in (ExactParams(), GcwsParams(bands=8)):
        index = SmallIndex(CollectionConfig(dim=dim, backend=backend)).add(rows, [1100])
        view = RowView(index.rows.view(), alive, int(alive.sum()))
        for recall in (0.8, 1.0):
            a, b, found = index.backend.pairs(
                index.state, view, min_score=0.3, recall=recall, limit=limit
            )
            assert found == pytest.approx(scores[a, b], rel=RELATIVE)
            ranked = sorted(found.tolist(), reverse=True)
            # Ties at the limit are complete: the caller, who knows the ids, breaks them.
            assert ranked[limit:] == pytest.approx([ranked[limit - 1]] * len(ranked[limit:]))
            if recall == 1.0 or isinstance(backend, ExactParams):
                assert ranked[:limit] == pytest.approx(best, rel=RELATIVE)


def test_more_pairs_than_are_listed_at_a_time_are_all_found() -> None:
    n = 800  # 319,600 pairs in every table
    rows = np.ones((n, 3), np.float32)
    for dense in (True, False):
        config = CollectionConfig(dim=3 if dense else None, backend=GcwsParams(bands=2))
        index = SmallIndex(config).add(rows if dense else generated.sparse_of(rows))
        alive = np.ones(n, np.uint8)
        view = RowView(index.rows.view(), alive, n)
        a, b, scores = index.backend.pairs(index.state, view, min_score=0.9, recall=0.9)
        assert len(a) == n * (n - 1) // 2
        assert np.all(a < b)
        assert np.all(scores == 1.0)


def test_a_pair_at_the_least_score_is_found() -> None:
    for low, high in ((7, 10), (3, 10), (9, 10)):
        rows = np.zeros((2, DIM), np.float32)
        rows[0, :high] = 1
        rows[1, :low] = 1
        for backend in (ExactParams(), GcwsParams(bands=256)):
            index = SmallIndex(CollectionConfig(dim=DIM, backend=backend)).add(rows)
            alive = np.ones(2, np.uint8)
            for recall in (0.99, 1.0):
                found = found_pairs(index, alive, low / high, recall)
                assert found == {(0, 1): low / high}


def test_no_rows_make_no_pairs() -> None:
    for backend in (ExactParams(), GcwsParams(bands=4)):
        index = SmallIndex(CollectionConfig(dim=DIM, backend=backend))
        assert found_pairs(index, np.zeros(0, np.uint8), 0.5, 0.9) == {}
        index.add(np.ones((3, DIM), np.float32))
        assert found_pairs(index, np.array([0, 1, 0], np.uint8), 0.5, 0.9) == {}


# --- figures -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [DIM, None])
def test_memory_and_statistics_are_told(rng: np.random.Generator, dim: int | None) -> None:
    dense, _ = generated.clustered(rng, 3000, 1, dim=DIM)
    rows: Rows = dense if dim else generated.sparse_of(dense)
    index = SmallIndex(CollectionConfig(dim=dim, backend=GcwsParams(bands=6))).add(rows)
    backend = index.backend
    assert isinstance(backend, GcwsBackend)
    held = backend.nbytes(index.state)
    assert held >= 12 * 3000 * 6
    figures = backend.stats(index.state)
    assert sum(figures["segments"]) == 3000
    assert 12 <= figures["bytes_per_item_and_table"] < 12.6
    exact = make_backend(CollectionConfig(dim=dim, backend=ExactParams()))
    assert isinstance(exact, ExactBackend)
    assert exact.nbytes(exact.empty()) == 0


def test_keys_of_one_table_say_nothing_of_another(rng: np.random.Generator) -> None:
    """Bands are independent: matches of one pair in two tables are uncorrelated."""
    u = rng.standard_normal(DIM)
    pair = np.stack([u, u + 0.3 * rng.standard_normal(DIM)]).astype(np.float32)
    space = space_of(DIM)
    batch = space.prepare(space.from_dense(pair))
    matches = []
    for seed in range(800):
        keys = gcws(DIM, GcwsParams(bands=8, band_width=2, seed=seed)).encode(batch)
        matches.append(keys[0] == keys[1])
    table = np.array(matches, float)
    for i, j in pairwise(range(8)):
        correlation = float(np.corrcoef(table[:, i], table[:, j])[0, 1])
        assert abs(correlation) < SIGMAS / np.sqrt(len(table))
    share = table.mean()
    counts = table.sum(axis=1)
    # The number of matching tables is binomial: its variance too.
    variance = float(np.var(counts, ddof=1)) / (8 * share * (1 - share))
    assert stats.chi2.ppf(3e-5, 799) < 799 * variance < stats.chi2.ppf(1 - 3e-5, 799)


@pytest.mark.parametrize("backend", [ExactParams(), GcwsParams(bands=2)])
def test_no_queries_get_no_answers(backend: BackendParams) -> None:
    config = CollectionConfig(dim=2, backend=backend)
    space = VectorSpace.of(config)
    batch = space.prepare(space.from_dense(np.ones((5, 2))))
    made = make_backend(config, threads=2)
    state = made.extend(made.empty(), batch, made.encode(batch))
    view = RowView(batch, np.ones(5, np.uint8), 5)
    assert len(made.search(state, view, batch[:0], SearchParams(limit=1))) == 0


def test_an_estimate_of_recall_proves_nothing() -> None:
    index = SmallIndex(CollectionConfig(dim=2)).add(np.ones((5, 2), np.float32))
    params = SearchParams(rerank="none", guarantee="proven")
    with pytest.raises(InvalidParameter, match="guarantee: expected 'measured'"):
        index.search(np.ones((1, 2), np.float32), params)
