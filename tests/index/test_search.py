"""Search by tables: the recall promised, answers that depend on nothing else, exact scores."""

import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from index.backends import GcwsBackend
from index.params import CollectionConfig, Encoding, GcwsParams, Guarantee, SearchParams
from tests import made_data, reference
from tests.laws import SIGMAS, assert_proportion, standard_error
from tests.made_data import Csr
from tests.searching import Mask, Rows, SmallIndex, all_scores, answer, answers

RELATIVE = 1e-12
"""Roundings of some thousand float64 sums."""
FLOAT32_TIES = 1e-6
"""Hits are ranked by float32 scores while probing: closer scores may change places."""
DIM = 24
ROWS = 6000
QUERIES = 40
KINDS = ["dense", "near-duplicates", "counts"]


def made(kind: str, rng: np.random.Generator, n: int = ROWS) -> tuple[Rows, Rows, int]:
    """Return rows, held-out queries and the dimension."""
    if kind == "dense":
        return *made_data.clustered(rng, n, QUERIES, dim=DIM), DIM
    if kind == "near-duplicates":
        return *made_data.near_duplicates(rng, n, QUERIES, dim=DIM), DIM
    return *made_data.counts(rng, n, QUERIES), 400


@cache
def known(kind: str) -> tuple[Rows, Rows, npt.NDArray[np.float64]]:
    """Return rows, held-out queries and all their scores, made once."""
    rows, queries, dim = made(kind, np.random.default_rng(zlib.crc32(kind.encode())))
    return rows, queries, all_scores(queries, rows, dim)


@cache
def encoded(kind: str, encoding: Encoding, seed: int) -> SmallIndex:
    """Return an index of the known rows, made once."""
    params = GcwsParams(bands=24, seed=seed, encoding=encoding, bits=4)
    return SmallIndex(config_of(kind, params)).add(known(kind)[0])


def config_of(kind: str, params: GcwsParams) -> CollectionConfig:
    return CollectionConfig(dim=None if kind == "counts" else DIM, backend=params)


def recall_of(
    hits: list[float], truth: npt.NDArray[np.float64], params: SearchParams, permitted: Mask
) -> float:
    """Return the share of the true hits reached, by score."""
    wanted = np.sort(truth[(permitted == 1) & (truth >= params.min_score)])[::-1]
    best = wanted[: params.limit].tolist()
    return reference.recall_by_score(hits, best, tolerance=FLOAT32_TIES)


# --- the recall promise ------------------------------------------------------------------------


@pytest.mark.parametrize("recall", [0.5, 0.8, 0.95])
@pytest.mark.parametrize(
    ("limit", "share", "min_score", "encoding"),
    [
        (1, 1.0, 0.0, "full"),
        (10, 1.0, 0.0, "full"),
        (10, 0.3, 0.0, "full"),
        (50, 1.0, 0.6, "full"),
        (10, 1.0, 0.0, "zero_bit"),
        (10, 1.0, 0.0, "b_bit"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_recall_reaches_the_target(  # noqa: PLR0917
    rng: np.random.Generator,
    kind: str,
    limit: int,
    share: float,
    min_score: float,
    encoding: Encoding,
    recall: float,
) -> None:
    _, queries, truth = known(kind)
    permitted = (rng.random(ROWS) < share).astype(np.uint8)
    params = SearchParams(limit=limit, recall=recall, min_score=min_score)
    reached, promised = [], []
    for seed in range(4):
        results = encoded(kind, encoding, seed).search(queries, params, permitted=permitted)
        assert all(hits.explanation.expected_recall >= recall - 1e-9 for hits in results)
        for m, hits in enumerate(results):
            reached.append(recall_of(answer(hits)[1], truth[m], params, permitted))
            promised.append(hits.explanation.expected_recall)
    assert np.mean(reached) >= recall - SIGMAS * standard_error(reached)


def lone_neighbours(
    rng: np.random.Generator, similarity: float, n: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return n queries, and rows of which each query has one at the similarity and none near it.

    Every pair takes coordinates of its own; all other rows have GMM 0 with its query.
    """
    queries = np.zeros((n, 4 * n), np.float32)
    strangers = np.zeros((3000, 4 * n), np.float32)
    strangers[np.arange(3000), rng.integers(0, n, 3000) * 4 + 3] = -1.0
    for i in range(n):
        queries[i, 4 * i : 4 * i + 2] = rng.gamma(2.0, size=2)
    rows = queries.copy()
    own = 4 * np.arange(n) + 2
    rows[np.arange(n), own] = queries.sum(axis=1) * (1 / similarity - 1)
    return np.concatenate([rows, strangers]), queries


@pytest.mark.parametrize("similarity", [0.5, 0.7, 0.9, 0.96])
@pytest.mark.parametrize("recall", [0.5, 0.8, 0.95])
def test_probing_finds_exactly_the_share_it_promises_where_nothing_is_left_to_chance(
    rng: np.random.Generator, similarity: float, recall: float
) -> None:
    """With min_score at the similarity of the only neighbour, hit or no hit is charged alike.

    So the search stops at the same table whatever it finds, and the promise is an equality.
    """
    rows, queries = lone_neighbours(rng, similarity, 100)
    params = SearchParams(limit=1, recall=recall, min_score=similarity * (1 - 1e-6))
    found, promised = [], []
    for seed in range(6):
        config = CollectionConfig(dim=rows.shape[1], backend=GcwsParams(bands=24, seed=seed))
        for i, hits in enumerate(SmallIndex(config).add(rows).search(queries, params)):
            if hits.explanation.method == "probe":
                found.append(i in hits.rows)
                promised.append(hits.explanation.expected_recall)
    assert len(found) > 300
    assert min(promised) >= recall
    # Chance hits of hashed prefixes are part of the promise; the float32 similarity is not.
    assert_proportion(sum(found), len(found), float(np.mean(promised)), slack=1e-4)


@pytest.mark.parametrize("width", [2, 5])
def test_classical_banding_finds_rows_as_often_as_the_s_curve_says(
    rng: np.random.Generator, width: int
) -> None:
    rows, queries, dim = made("dense", rng, 800)
    truth = all_scores(queries, rows, dim)
    bands = 6
    expected = 1 - (1 - truth**width) ** bands
    surplus = []
    for seed in range(40):
        params = GcwsParams(bands=bands, band_width=width, seed=seed)
        index = SmallIndex(config_of("dense", params)).add(rows)
        results = index.search(queries, SearchParams(limit=799, recall=0.999))
        found = np.zeros_like(expected)
        for m, hits in enumerate(results):
            assert hits.explanation.method == "probe"
            assert hits.explanation.candidates == len(hits.rows)
            found[m, hits.rows] = 1
        # Weighted towards the similar: nearly all of the 800 are strangers.
        surplus.append(float(np.sum((found - expected) * truth) / np.sum(truth)))
    assert abs(np.mean(surplus)) < SIGMAS * standard_error(surplus)


@pytest.mark.parametrize("guarantee", ["measured", "proven"])
def test_only_a_proof_makes_classical_banding_scan(
    rng: np.random.Generator, guarantee: Guarantee
) -> None:
    rows, queries, dim = made("dense", rng, 2000)
    config = config_of("dense", GcwsParams(bands=2, band_width=12))
    index = SmallIndex(config).add(rows)
    params = SearchParams(limit=10, recall=0.9, guarantee=guarantee)
    results = index.search(queries, params)
    methods = {hits.explanation.method for hits in results}
    everything = np.ones(len(rows), np.uint8)
    truth = all_scores(queries, rows, dim)
    if guarantee == "measured":
        assert methods == {"probe"}
        return
    assert "scan" in methods
    reached = [
        recall_of(answer(hits)[1], truth[m], params, everything) for m, hits in enumerate(results)
    ]
    assert np.mean(reached) >= 0.9 - SIGMAS * standard_error(reached)


# --- the probe is the reference's --------------------------------------------------------------


def nibbles(codes: npt.NDArray[np.uint64], bits: int) -> list[list[int]]:
    """Return each row's keys cut into pieces of ``bits`` bits, most significant first."""
    width = 64 // bits
    pieces = [
        (codes >> np.uint64(64 - bits * (i + 1))) & np.uint64(2**bits - 1) for i in range(width)
    ]
    return [row.ravel().tolist() for row in np.stack(pieces, axis=2)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("recall", [0.3, 0.7, 0.9])
@pytest.mark.parametrize(
    ("limit", "min_score", "filtered"), [(1, 0.0, False), (5, 0.0, True), (8, 0.45, False)]
)
def test_probing_is_the_naive_search_to_the_table(
    rng: np.random.Generator,
    kind: str,
    recall: float,
    limit: int,
    min_score: float,
    filtered: bool,
) -> None:
    n, bands = 1500, 4
    rows, queries, dim = made(kind, rng, n)
    queries = queries[:6]
    index = SmallIndex(config_of(kind, GcwsParams(bands=bands))).add(rows, [700, 3, 500])
    backend = index.backend
    assert isinstance(backend, GcwsBackend)
    bits = backend.plan.bits
    signatures = nibbles(backend.encode(index.rows.view()), bits)
    sought = nibbles(backend.encode(index.prepare(queries)), bits)
    permitted = (rng.random(n) < (0.6 if filtered else 1.0)).astype(np.uint8)
    truth = all_scores(queries, rows, dim)
    rule = reference.StopRule(limit, recall, min_score, floor=2.0**-bits)
    banding = reference.Banding(bands, 64 // bits)
    params = SearchParams(limit=limit, recall=recall, min_score=min_score)
    numbers = np.flatnonzero(permitted)
    for m, hits in enumerate(index.search(queries, params, permitted=permitted)):
        if hits.explanation.method == "scan":
            continue
        naive = reference.prefix_search(
            banding,
            sought[m],
            [(signatures[i], float(truth[m, i])) for i in numbers],
            rule,
        )
        assert hits.explanation.depth == naive.depth
        assert hits.explanation.scored == len(naive.scored)
        expected = [(int(numbers[i]), score) for i, score in naive.hits]
        assert hits.scores == pytest.approx([s for _, s in expected], rel=RELATIVE)
        assert dict(zip(*answer(hits), strict=True)) == pytest.approx(dict(expected), rel=RELATIVE)


@pytest.mark.parametrize("kind", ["dense", "near-duplicates"])
def test_tables_answer_most_queries_of_these_tests(kind: str) -> None:
    _, queries, _ = known(kind)
    results = encoded(kind, "full", 0).search(queries, SearchParams(limit=1, recall=0.8))
    assert np.mean([hits.explanation.method == "probe" for hits in results]) > 0.5


# --- exact scores ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [None, 3])
def test_scores_of_hits_are_exact(rng: np.random.Generator, kind: str, width: int | None) -> None:
    rows, queries, dim = made(kind, rng)
    index = SmallIndex(config_of(kind, GcwsParams(band_width=width))).add(rows)
    truth = all_scores(queries, rows, dim)
    for m, hits in enumerate(index.search(queries, SearchParams(limit=20, recall=0.8))):
        found, scores = answer(hits)
        assert len(found) == len(set(found))
        assert scores == pytest.approx(truth[m, found].tolist(), rel=RELATIVE)
        assert sorted(zip(scores, found, strict=True), key=lambda hit: (-hit[0], hit[1])) == list(
            zip(scores, found, strict=True)
        )


def test_a_score_equal_to_the_least_one_wanted_is_found(rng: np.random.Generator) -> None:
    """GMM k/10 of counts, probed: float32 rounds 3/10 and 7/10 down, 1/10 and 9/10 up."""
    for tenths in (3, 6, 7, 9):
        query = np.zeros((1, DIM), np.float32)
        query[0, :10] = 1
        row = np.zeros((300, DIM), np.float32)
        row[:, :tenths] = 1
        strangers = -np.abs(rng.standard_normal((5000, DIM))).astype(np.float32)
        rows = np.concatenate([row, strangers])
        for width in (None, 1):
            index = SmallIndex(config_of("dense", GcwsParams(band_width=width, bands=64))).add(rows)
            params = SearchParams(limit=299, recall=0.9, min_score=tenths / 10)
            [hits] = index.search(query, params)
            assert len(hits.rows) >= 299
            assert set(hits.scores.tolist()) == {tenths / 10}


def test_a_stored_vector_is_its_own_best_hit(rng: np.random.Generator) -> None:
    for kind in KINDS:
        rows, _, _ = made(kind, rng, 3000)
        index = SmallIndex(config_of(kind, GcwsParams())).add(rows)
        for i, hits in enumerate(index.search(rows[:50], SearchParams(limit=1, recall=0.5))):
            assert hits.scores[0] == 1.0
            assert hits.rows[0] <= i


def test_a_row_to_skip_is_left_out_while_probing(rng: np.random.Generator) -> None:
    for kind in KINDS:
        rows, _, _ = made(kind, rng)
        index = SmallIndex(config_of(kind, GcwsParams())).add(rows)
        params = SearchParams(limit=5, recall=0.7)
        skipped = index.search(rows[:QUERIES], params, skip=list(range(QUERIES)))
        for i, hits in enumerate(skipped):
            assert i not in hits.rows
            everything: Mask = np.ones(ROWS, np.uint8)
            everything[i] = 0
            [masked] = index.search(rows[i : i + 1], params, permitted=everything)
            if masked.explanation.method == hits.explanation.method:
                assert answer(masked) == answer(hits)


@pytest.mark.parametrize("kind", KINDS)
def test_only_permitted_rows_are_hits(rng: np.random.Generator, kind: str) -> None:
    rows, queries, _ = made(kind, rng)
    index = SmallIndex(config_of(kind, GcwsParams())).add(rows)
    for share in (0.002, 0.1, 0.9):
        permitted = (rng.random(ROWS) < share).astype(np.uint8)
        for limit in (1, 20):
            params = SearchParams(limit=limit, recall=0.7)
            for hits in index.search(queries, params, permitted=permitted):
                assert permitted[hits.rows].all()
                # Places left free are charged to the promise in full.
                assert len(hits.rows) >= 0.7 * min(limit, permitted.sum())


# --- answers depend on nothing else ------------------------------------------------------------


def assert_same_answers(a: SmallIndex, b: SmallIndex, queries: Rows, params: SearchParams) -> None:
    left, right = a.search(queries, params), b.search(queries, params)
    assert answers(left) == answers(right)
    for one, other in zip(left, right, strict=True):
        promised = one.explanation.expected_recall
        assert other.explanation.expected_recall == pytest.approx(promised, rel=RELATIVE)
        assert replace(one.explanation, expected_recall=0) == replace(
            other.explanation, expected_recall=0
        )


SOME_SIZES = [
    [1, 1, 1, 5000],
    [100] * 50,
    [512, 511, 513, 1],
    [3000, 2999],
    [0, 17, 0, 4096, 900],
]
QUESTIONS = [
    SearchParams(limit=1, recall=0.6),
    SearchParams(limit=10, recall=0.9),
    SearchParams(limit=30, recall=0.8, min_score=0.5),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [None, 4])
def test_the_sizes_of_batches_change_no_answer(
    rng: np.random.Generator, kind: str, width: int | None
) -> None:
    rows, queries, _ = made(kind, rng)
    config = config_of(kind, GcwsParams(bands=8, band_width=width))
    whole = SmallIndex(config).add(rows)
    for sizes in SOME_SIZES:
        parts = SmallIndex(config).add(rows, sizes)
        for params in QUESTIONS:
            assert_same_answers(whole, parts, queries, params)


@pytest.mark.parametrize("kind", KINDS)
def test_a_compaction_keeps_the_answers(rng: np.random.Generator, kind: str) -> None:
    rows, queries, _ = made(kind, rng)
    config = config_of(kind, GcwsParams(bands=8))
    for stays_share in (0.1, 0.7):
        stays = rng.random(ROWS) < stays_share
        numbers = np.flatnonzero(stays)
        compacted = SmallIndex(config).add(rows, [2500, 40])
        compacted.compact(stays)
        fresh = SmallIndex(config)
        dense = rows if not isinstance(rows, Csr) else None
        kept = dense[stays] if dense is not None else _take(rows, numbers)
        fresh.add(kept)
        for params in QUESTIONS:
            assert_same_answers(compacted, fresh, queries, params)


def _take(rows: Rows, numbers: npt.NDArray[np.int64]) -> Csr:
    assert isinstance(rows, Csr)
    pieces = [rows.row(int(i)) for i in numbers]
    lengths = [len(indices) for indices, _ in pieces]
    return Csr(
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.concatenate([indices for indices, _ in pieces]),
        np.concatenate([values for _, values in pieces]),
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stays_share", [0.3, 0.7])
def test_rows_that_are_not_permitted_change_no_answer(
    rng: np.random.Generator, kind: str, stays_share: float
) -> None:
    """Deleted rows stay in the tables until a compaction; a restart leaves them out."""
    rows, queries, _ = made(kind, rng)
    config = config_of(kind, GcwsParams(bands=8))
    stays = rng.random(ROWS) < stays_share
    numbers = np.flatnonzero(stays)
    index = SmallIndex(config).add(rows)
    kept = _take(rows, numbers) if isinstance(rows, Csr) else rows[stays]
    fresh = SmallIndex(config).add(kept)
    for params in QUESTIONS:
        masked = index.search(queries, params, permitted=stays.astype(np.uint8))
        for before, after in zip(masked, fresh.search(queries, params), strict=True):
            found, scores = answer(after)
            assert answer(before) == (numbers[found].tolist(), scores)
            assert before.explanation.method == after.explanation.method


@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_queries_and_threads_change_no_answer(
    rng: np.random.Generator, kind: str
) -> None:
    rows, queries, _ = made(kind, rng)
    config = config_of(kind, GcwsParams(bands=8))
    index = SmallIndex(config).add(rows, [4000])
    threaded = SmallIndex(config, threads=2).add(rows, [4000])
    for params in QUESTIONS:
        assert_same_answers(index, threaded, queries, params)
        together = index.search(queries, params)
        for m in (0, 7, QUERIES - 1):
            [alone] = index.search(queries[m : m + 1], params)
            assert answer(alone) == answer(together[m])
            assert alone.explanation == together[m].explanation


@pytest.mark.parametrize("kind", KINDS)
def test_many_readers_at_once_get_the_answers_of_one(rng: np.random.Generator, kind: str) -> None:
    rows, queries, _ = made(kind, rng)
    config = config_of(kind, GcwsParams(bands=8))
    alone = SmallIndex(config).add(rows, [4000])
    expected = [answers(alone.search(queries, params)) for params in QUESTIONS]
    shared = SmallIndex(config, threads=2).add(rows, [4000])

    def ask(_: int) -> list[list[tuple[list[int], list[float]]]]:
        return [answers(shared.search(queries, params)) for params in QUESTIONS]

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(ask, range(8)):
            assert found == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_held_by_a_reader_answers_as_before(rng: np.random.Generator, kind: str) -> None:
    rows, queries, _ = made(kind, rng)
    index = SmallIndex(config_of(kind, GcwsParams(bands=8))).add(rows[:2000], [1500])
    held = SmallIndex(index.config)
    held.backend, held.state = index.backend, index.state
    held.rows.append(index.rows.view())
    before = [answers(held.search(queries, params)) for params in QUESTIONS]
    index.add(rows[2000:], [10, 700])
    index.compact(rng.random(ROWS) < 0.5)
    assert [answers(held.search(queries, params)) for params in QUESTIONS] == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_recall_of_1_is_a_scan(rng: np.random.Generator, kind: str) -> None:
    rows, queries, dim = made(kind, rng, 2000)
    index = SmallIndex(config_of(kind, GcwsParams(bands=4))).add(rows)
    truth = all_scores(queries, rows, dim)
    for m, hits in enumerate(index.search(queries, SearchParams(limit=10, recall=1.0))):
        assert hits.explanation.method == "scan"
        assert hits.explanation.expected_recall == 1.0
        best = np.sort(truth[m])[::-1][:10]
        assert hits.scores[:10] == pytest.approx(best, rel=RELATIVE)


@pytest.mark.parametrize("kind", KINDS)
def test_a_higher_target_probes_on_from_where_a_lower_one_stops(
    rng: np.random.Generator, kind: str
) -> None:
    rows, queries, _ = made(kind, rng)
    index = SmallIndex(config_of(kind, GcwsParams(bands=16))).add(rows)
    params = SearchParams(limit=10)
    best = np.zeros((QUERIES, 2))
    for recall in (0.2, 0.5, 0.8, 0.9, 0.99):
        for m, hits in enumerate(index.search(queries, replace(params, recall=recall))):
            if hits.explanation.method == "probe":
                now = np.array([hits.scores[:10].sum(), hits.explanation.scored])
                assert np.all(now >= best[m] - FLOAT32_TIES)
                best[m] = now
