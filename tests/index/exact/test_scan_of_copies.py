"""Scans that read copies first find what scans of floats find, to the bit, whatever the rows."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from gcws_search.index.contracts.arrays import AnyArray, Float64s, UInt8s
from gcws_search.index.contracts.batches import RowCopies, VectorBatch
from gcws_search.index.contracts.hits import BatchHits, RowView
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.contracts.policies import PairPolicy
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.exact.scan import scan
from gcws_search.index.joins import PairSink, all_pairs, compare_pairs
from gcws_search.index.kernels.gmm.rows import HitFilter, rows_of
from gcws_search.index.kernels.ordering.hits import empty_heaps
from gcws_search.index.kernels.quantized.rows import BYTES
from gcws_search.index.kernels.quantized.scan import scan_copies
from gcws_search.index.threads import Workers
from gcws_search.index.vectors.growing_rows import copies_of
from gcws_search.index.vectors.quantization import Quantizer
from tests.support.data.generated import Floats
from tests.support.index.small_index import all_scores

ROWS, QUERIES = 150, 5
WHOLE, FINE, ROUGH, NARROW = (
    Quantizer(BYTES, 1.0, 0),
    Quantizer(BYTES, 0.02, 128),
    Quantizer(BYTES, 1.0, 128),
    Quantizer(BYTES, 1e-3, 128),
)
QUANTIZERS = {"whole": WHOLE, "fine": FINE, "rough": ROUGH, "cut off": NARROW}


class CopiedView(RowView):
    """Rows whose copies are read however few they are."""

    @property
    def copies(self) -> RowCopies | None:
        return self.vectors.copies


def gaussian(rng: np.random.Generator, count: int, dim: int) -> Floats:
    return rng.standard_normal((count, dim)).astype(np.float32)


def clustered(rng: np.random.Generator, count: int, dim: int) -> Floats:
    centres = rng.standard_normal((4, dim))
    rows = centres[rng.integers(0, 4, count)] + 0.1 * rng.standard_normal((count, dim))
    rows[::5] = rows[0]
    return rows.astype(np.float32)


def one_huge_coordinate(rng: np.random.Generator, count: int, dim: int) -> Floats:
    rows = gaussian(rng, count, dim)
    rows[np.arange(count), rng.integers(0, dim, count)] *= rng.choice([1.0, 1e4, -1e20], count)
    return rows.astype(np.float32)


def one_huge_sum(rng: np.random.Generator, count: int, dim: int) -> Floats:
    """Return rows with the same great number, which float32 holds no digits beside."""
    rows = gaussian(rng, count, dim)
    rows[:, 0] = np.float32(1e7) + rng.integers(0, 3, count)
    return rows


def one_value(rng: np.random.Generator, count: int, dim: int) -> Floats:
    """Return rows with one distinct value, and a place that is empty."""
    rows = np.full((count, dim), 2.5, np.float32)
    rows[np.arange(count), rng.integers(0, dim, count)] = 0.0
    return rows


def scaled(every: int, factor: float, rng: np.random.Generator, count: int, dim: int) -> Floats:
    """Return rows, some of them much smaller."""
    rows = gaussian(rng, count, dim)
    rows[::every] *= np.float32(factor)
    return rows


DATA: dict[str, Callable[[np.random.Generator, int, int], AnyArray]] = {
    "gaussian": gaussian,
    "clustered": clustered,
    # Bytes hold these exactly: many scores and bounds are equal.
    "counts": lambda rng, count, dim: rng.integers(0, 4, (count, dim)),
    "one huge coordinate": one_huge_coordinate,
    "one huge sum": one_huge_sum,
    "heavy tailed": lambda rng, count, dim: rng.standard_t(1.0, (count, dim)).astype(np.float32),
    "denormal": partial(scaled, 2, 1e-40),
    "zero": partial(scaled, 3, 0.0),
    "negative": lambda rng, count, dim: -np.abs(gaussian(rng, count, dim)),
    "one value": one_value,
}


def batch_of(dense: AnyArray) -> VectorBatch:
    """Return rows, all-zero ones too, padded as a collection pads them."""
    padded = np.zeros((len(dense), -(-dense.shape[1] // 16) * 16), np.float32)
    padded[:, : dense.shape[1]] = dense
    norms = np.abs(dense.astype(np.float64)).sum(1).astype(np.float32)
    return VectorBatch("dense", dense=padded, norms=norms)


def permitting(rng: np.random.Generator, share: float, count: int) -> UInt8s:
    permitted = (rng.random(count) < share).astype(np.uint8)
    permitted[-1] = 1
    return permitted


def views(rows: VectorBatch, permitted: UInt8s, quantizer: Quantizer) -> tuple[RowView, RowView]:
    """Return the same rows with copies and without."""
    count = int(permitted.sum())
    copies = copies_of(rows.dense, quantizer)
    copied = VectorBatch("dense", dense=rows.dense, norms=rows.norms, copies=copies)
    return CopiedView(copied, permitted, count), RowView(rows, permitted, count)


def parts(hits: BatchHits) -> list[tuple[list[int], list[float]]]:
    found = [hits.hits(m) for m in range(len(hits.sizes))]
    return [(rows.tolist(), scores.tolist()) for rows, scores in found]


def true_scores(rows: VectorBatch, query: Floats) -> Float64s:
    scores: Float64s = all_scores(query[None, :], rows.dense, rows.dense.shape[1])[0]
    return scores


def same_hits(
    both: tuple[RowView, RowView],
    queries: VectorBatch,
    params: SearchParams,
    skip: int = -1,
    threads: int = 1,
) -> BatchHits:
    """Return the hits by copies, which are those by floats, to the bit."""
    by_copies, by_floats = (
        scan(
            view, queries, params, skip=np.full(len(queries), skip), inverted=InvertedIndex(),
            workers=Workers(threads),
        )
        for view in both
    )  # fmt: skip
    assert parts(by_copies) == parts(by_floats)
    return by_copies


@pytest.mark.parametrize("quantizer", QUANTIZERS)
@pytest.mark.parametrize("data", DATA)
def test_copies_change_no_answer_in_any_dimension(
    data: str, quantizer: str, rng: np.random.Generator
) -> None:
    # Each case has every sixteenth dimension: all of them together, each one two or three times.
    case = 4 * [*DATA].index(data) + [*QUANTIZERS].index(quantizer)
    for dim in (*range(1 + case % 16, 71, 16), (130, 257)[case % 3 % 2]):
        made = batch_of(DATA[data](rng, ROWS + QUERIES, dim))
        live = np.flatnonzero(made.norms)
        queries, rows = made[live[:QUERIES]], made[QUERIES:]
        permitted = permitting(rng, rng.choice([1.0, 0.9, 0.1]), ROWS)
        both = views(rows, permitted, QUANTIZERS[quantizer])
        for limit in (1, 7):
            params = SearchParams(limit=limit, recall=1.0)
            hits = same_hits(both, queries, params)
            same_hits(both, queries[:1], params)
            for m in range(len(queries)):
                truth = true_scores(rows, queries.dense[m])
                truth[both[0].permitted == 0] = -1.0
                found, scores = hits.hits(m)
                np.testing.assert_allclose(scores, truth[found], rtol=1e-9, atol=1e-12)
                better = np.flatnonzero(truth > scores[min(limit, len(scores)) - 1] + 1e-9)
                assert set(better.tolist()) <= set(found.tolist())


@pytest.mark.parametrize("quantizer", QUANTIZERS)
@pytest.mark.parametrize("data", DATA)
def test_copies_change_no_answer_of_scores_that_are_met_exactly(
    data: str, quantizer: str, rng: np.random.Generator
) -> None:
    made = batch_of(DATA[data](rng, 1003 + QUERIES, 50))
    queries, rows = made[np.flatnonzero(made.norms)[:QUERIES]], made[QUERIES:]
    both = views(rows, permitting(rng, 0.7, 1003), QUANTIZERS[quantizer])
    for m in range(QUERIES):
        scores = np.sort(true_scores(rows, queries.dense[m]))[::-1]
        for place in (0, 9, 500):
            for least in (scores[place], np.nextafter(scores[place], 2.0)):
                if 0.0 <= least <= 1.0:
                    params = SearchParams(limit=20, recall=1.0, min_score=float(least))
                    same_hits(both, queries[m : m + 1], params, skip=m)


@pytest.mark.parametrize(("width", "count"), [(33, 3003), (784, 603)])
@pytest.mark.parametrize("data", DATA)
def test_copies_change_no_answer_over_many_tiles(
    data: str, width: int, count: int, rng: np.random.Generator
) -> None:
    # Where bytes say little, tiles are read as floats in between.
    quantizer = [*QUANTIZERS][([*DATA].index(data) + (width == 784)) % 4]
    made = batch_of(DATA[data](rng, count + 40, width))
    queries, rows = made[np.flatnonzero(made.norms)[:40]], made[40:]
    both = views(rows, permitting(rng, 0.95, count), QUANTIZERS[quantizer])
    for limit, threads in ((3, 1), (40, 2), (4000, 1)):
        params = SearchParams(limit=limit, recall=1.0)
        same_hits(both, queries, params, threads=threads)
        same_hits(both, queries[:1], params, threads=threads)


@pytest.mark.parametrize("quantizer", QUANTIZERS)
@pytest.mark.parametrize("data", DATA)
def test_copies_change_no_pair(data: str, quantizer: str, rng: np.random.Generator) -> None:
    rows = batch_of(DATA[data](rng, 300, 60))  # more than a tile
    rows = rows[np.flatnonzero(rows.norms)]
    both = views(rows, permitting(rng, 0.9, len(rows)), QUANTIZERS[quantizer])
    a, b = rng.integers(0, len(rows), (2, 2))
    bounds = {float(true_scores(rows, rows.dense[i])[j]) for i, j in zip(a, b, strict=True)}
    for least in (0.0, *sorted(bounds & set(np.clip(list(bounds), 0.0, 1.0).tolist()))):
        by_copies, by_floats = (
            all_pairs(view, min_score=least, limit=300, stop=None, workers=Workers(1))
            for view in both
        )
        for found, expected in zip(by_copies, by_floats, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_more_pairs_than_there_is_room_for_are_all_found(rng: np.random.Generator) -> None:
    rows = batch_of(clustered(rng, 700, 40))
    found = []
    for view in views(rows, np.ones(700, np.uint8), FINE):
        sink = PairSink(view, 0.5, None, policy=PairPolicy(capacity=300))
        compare_pairs(view, InvertedIndex(), sink, workers=Workers(1))
        found.append(sink.result())
    assert len(found[0][0]) > 20_000
    for by_copies, by_floats in zip(*found, strict=True):
        np.testing.assert_array_equal(by_copies, by_floats)


@pytest.mark.parametrize(
    ("dim", "quantizer", "share"), [(64, FINE, 0.1), (784, FINE, 0.1), (64, WHOLE, 0.9)]
)
def test_few_rows_are_read_as_floats_where_copies_tell_them_apart(
    dim: int, quantizer: Quantizer, share: float, rng: np.random.Generator
) -> None:
    # The negative half of the values is lost to whole numbers, and with it all that bytes tell.
    rows, queries = (batch_of(0.4 * gaussian(rng, n, dim)) for n in (6000, 3))
    copies, heaps = copies_of(rows.dense, quantizer), empty_heaps(3, 10)
    wanted = HitFilter(np.ones(6000, np.uint8), np.full(3, -1), np.float32(0))
    read = scan_copies(rows_of(queries), rows_of(rows), copies, wanted, 0, 6000, heaps)
    assert (read > 0.5 * 18_000) == (share > 0.5)
    assert 30 <= read <= max(share, 0.1) * 18_000 or share > 0.5
