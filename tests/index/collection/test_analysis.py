"""Maps and profiles of items beside brute force."""

import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import KernelPCA
from threadpoolctl import threadpool_limits

from gcws_search import index as ix
from gcws_search.index.collection.item_map import kernel_axes
from gcws_search.index.contracts.arrays import Float64s
from gcws_search.index.threads import Workers, limit_blas
from tests.support.data.adapters import signed_row
from tests.support.data.generated import Floats
from tests.support.index.blas import blas_threads
from tests.support.index.items import in_memory
from tests.support.index.small_index import all_scores
from tests.support.statistics import SIGMAS

DIM = 12
TRANSFORMS = [ix.Transform(), ix.Transform(power=0.5, normalize="l2")]


def signed(rng: np.random.Generator, n: int, dim: int = DIM) -> Floats:
    rows = rng.standard_normal((n, dim)).astype(np.float32)
    rows[rng.random((n, dim)) < 0.4] = 0
    rows[:, 0] += 1
    return rows


def filled(
    rows: Floats, config: ix.CollectionConfig, payloads: Sequence[bytes | None] | None = None
) -> ix.StoredCollection:
    return in_memory(config, rows, payloads)


def shown(
    collection: ix.StoredCollection, also: Sequence[object] = (), **params: int | str
) -> ix.ItemMap:
    return ix.map_items(collection.memory, ix.MapParams(**params), also=[*also])  # type: ignore[arg-type, list-item]


def stored(collection: ix.StoredCollection, dim: int = DIM) -> Floats:
    """Return all rows as they are scored."""
    rows = np.zeros((len(collection), dim), np.float32)
    for number in range(len(rows)):
        for place, value in signed_row(collection.memory.view.vectors, number).items():
            rows[number, place] = value
    return rows


def assert_nearest_within(found: ix.ItemMap, vectors: Floats) -> None:
    """Check the neighbours of a sample of some vectors."""
    chosen = vectors[[*map(int, found.ids)]]
    scores = all_scores(chosen, chosen, vectors.shape[1])
    np.fill_diagonal(scores, -1)
    assert_nearest(found.sample, scores)


def assert_nearest(found: ix.Places, scores: Float64s) -> None:
    """Check neighbours against the scores of all pairs; equal scores may stand in any order."""
    best = -np.sort(-scores, axis=1)[:, : found.scores.shape[1]]
    np.testing.assert_allclose(found.scores, best, rtol=1e-6)
    chosen = np.take_along_axis(scores, found.neighbours, axis=1)
    np.testing.assert_allclose(chosen, best, rtol=1e-6)
    assert all(len({*line}) == len(line) for line in found.neighbours.tolist())


@pytest.mark.parametrize(
    ("dim", "transform"),
    [*itertools.product([DIM, 5000, None], TRANSFORMS), (DIM, ix.Transform(center=(0.5,) * DIM))],
    ids=str,
)
def test_neighbours_and_places_are_those_of_the_exact_scores(
    rng: np.random.Generator, dim: int | None, transform: ix.Transform
) -> None:
    config = ix.CollectionConfig(dim=dim, transform=transform, backend=ix.ExactParams())
    collection = filled(signed(rng, 80), config)
    found = shown(collection)
    rows = stored(collection)
    scores = all_scores(rows, rows, DIM)
    expected = KernelPCA(2, kernel="precomputed", eigen_solver="dense").fit_transform(scores)
    signs = np.sign((found.sample.xy * expected).sum(axis=0))
    np.testing.assert_allclose(found.sample.xy, expected * signs, atol=1e-5)
    assert found.ids == [*map(str, range(80))]
    assert found.sample.neighbours.shape == (80, 15)
    assert_nearest_within(found, rows)


def test_a_sample_has_its_neighbours_within_itself(rng: np.random.Generator) -> None:
    collection = filled(signed(rng, 300), ix.CollectionConfig(dim=DIM))
    found = shown(collection, sample=90, landmarks=20)
    rows = [*map(int, found.ids)]
    assert len({*rows}) == 90
    assert rows == sorted(rows) != [*range(90)]
    assert_nearest_within(found, stored(collection))


def test_rows_with_copies_have_the_same_neighbours(rng: np.random.Generator) -> None:
    rows = np.abs(signed(rng, 1100, 512))
    collection = filled(rows, ix.CollectionConfig(dim=512, backend=ix.ExactParams()))
    assert collection.memory.view.vectors.copies is not None
    assert_nearest_within(shown(collection, sample=200), rows)


@pytest.mark.parametrize("backend", [ix.GcwsParams(), ix.ExactParams()])
@pytest.mark.parametrize("sample", [60, 200])
def test_neighbours_of_a_large_sample_are_searched_for(
    rng: np.random.Generator, backend: ix.GcwsParams | ix.ExactParams, sample: int
) -> None:
    collection = filled(signed(rng, 200), ix.CollectionConfig(dim=DIM, backend=backend))
    exact = shown(collection, sample=sample)
    found = ix.map_items(collection.memory, ix.MapParams(sample=sample), max_read=0, min_share=0.0)
    assert found.ids == exact.ids
    assert found.sample.xy.tolist() == exact.sample.xy.tolist()
    # Of so few rows all are scanned; what is left out of a promise of 0.9 is not tested here.
    assert found.sample.scores.tolist() == exact.sample.scores.tolist()


def test_a_graph_finds_most_neighbours_of_a_large_sample(rng: np.random.Generator) -> None:
    centres = rng.standard_normal((50, DIM))
    rows = centres[rng.integers(50, size=2600)] + rng.standard_normal((2600, DIM)) / 4
    collection = filled(rows.astype(np.float32), ix.CollectionConfig(dim=DIM))
    collection.finish_background_work()
    exact = shown(collection, sample=1500)
    found = ix.map_items(collection.memory, ix.MapParams(sample=1500), max_read=0, min_share=0.0)
    assert (found.sample.neighbours[:, 0] != np.arange(1500)).all()
    least = exact.sample.scores[:, -1:]
    assert (found.sample.scores >= least).mean() >= 0.85


def test_the_same_seed_shows_the_same_items_after_deletions_and_compaction(
    rng: np.random.Generator,
) -> None:
    rows = signed(rng, 120)
    collection = filled(rows, ix.CollectionConfig(dim=DIM))
    doomed = [*map(str, range(0, 120, 3))]
    collection.delete(doomed)
    before = shown(collection, sample=30, seed=7)
    assert not {*before.ids} & {*doomed}
    collection.memory.compact()
    after = shown(collection, sample=30, seed=7)
    assert after.ids == before.ids
    assert after.sample.xy.tolist() == before.sample.xy.tolist()
    assert after.sample.neighbours.tolist() == before.sample.neighbours.tolist()
    assert shown(collection, sample=30, seed=8).ids != before.ids


def in_groups(rng: np.random.Generator, size: int = 40) -> Floats:
    """Return rows of three groups in turn, each of which has coordinates of its own."""
    rows = np.zeros((3 * size, DIM), np.float32)
    for group in range(3):
        rows[group::3, 2 * group : 2 * group + 2] = 1 + rng.random((size, 2))
    rows[:, 6:] = rng.random((len(rows), DIM - 6)) / 10
    return rows


def test_on_islands_items_lie_among_their_like_and_so_do_others(rng: np.random.Generator) -> None:
    rows = in_groups(rng)
    collection = filled(rows, ix.CollectionConfig(dim=DIM))
    found = shown(collection, [rows[1].tolist()], places="islands", neighbours=False)
    assert found.sample.neighbours.shape == (120, 0)
    distances = np.linalg.norm(found.sample.xy[:, None] - found.sample.xy, axis=2)
    nearest = np.argsort(distances, axis=1)[:, 1:6]
    assert (nearest % 3 == np.arange(120)[:, None] % 3).all()
    assert np.linalg.norm(found.sample.xy - found.also.xy[0], axis=1).argmin() % 3 == 1
    assert found.islands is not None
    assert sum(island.size for island in found.islands) <= 120
    assert {island.size for island in found.islands} >= {40} or len(found.islands) > 3
    assert all(not island.names for island in found.islands)


def test_an_arrangement_is_cached_until_items_change(rng: np.random.Generator) -> None:
    rows = in_groups(rng)
    collection = filled(rows, ix.CollectionConfig(dim=DIM))
    axes = shown(collection, places="cached")
    assert axes.islands is None
    assert axes.sample.xy.tolist() == shown(collection).sample.xy.tolist()
    arranged = shown(collection, places="islands")
    cached = shown(collection, places="cached")
    assert cached.sample.xy.tolist() == arranged.sample.xy.tolist()
    assert cached.islands == arranged.islands
    assert shown(collection, places="cached", sample=50).islands is None
    assert shown(collection, places="axes").islands is None
    for sample in range(50, 54):  # the last four stay
        shown(collection, places="islands", sample=sample)
    assert shown(collection, places="cached").islands is None
    assert shown(collection, places="cached", sample=50).islands is not None
    memory = collection.memory
    memory.adopt(memory.index_of(memory.view))  # as an optimization does
    assert shown(collection, places="cached", sample=53).islands is not None
    collection.delete(["0"])
    assert shown(collection, places="cached", sample=53).islands is None
    again = shown(filled(rows, ix.CollectionConfig(dim=DIM)), places="islands")
    assert again.sample.xy.tolist() == arranged.sample.xy.tolist()


def test_an_arrangement_ends_once_nobody_waits_for_it(rng: np.random.Generator) -> None:
    collection, stop = filled(in_groups(rng), ix.CollectionConfig(dim=DIM)), threading.Event()
    stop.set()
    with pytest.raises(CancelledError):
        ix.map_items(collection.memory, ix.MapParams(places="islands"), stop=stop)
    assert shown(collection, places="cached").islands is None
    assert shown(collection, places="islands").islands is not None


def test_products_of_a_map_stay_on_the_threads_of_the_collection(rng: np.random.Generator) -> None:
    collection = filled(in_groups(rng), ix.CollectionConfig(dim=DIM))
    seen: list[int] = []

    class Watched(Workers):
        def split(self, count: int, work: Callable[[int, int], None], **more: int) -> None:
            seen.extend(blas_threads())
            super().split(count, work, **more)

    collection.memory.backend.workers = Watched(2)
    with limit_blas, threadpool_limits(2, user_api="blas"):  # another map is being made
        shown(collection)
    assert {*seen} == {1}


def test_islands_have_the_value_of_more_than_half_of_their_items(rng: np.random.Generator) -> None:
    kinds = [("left", "right", "mixed"), ("left", "right", "other")]  # by group
    payloads = [
        json.dumps({"kind": kinds[n // 3 % 2][n % 3]} if n % 9 else {}).encode() for n in range(120)
    ]
    collection = filled(in_groups(rng), ix.CollectionConfig(dim=DIM), payloads)
    for places in ("islands", "cached"):
        found = shown(collection, places=places, key="kind").islands
        assert {island.value for island in found or ()} == {"left", "right", None}
        assert all(each.value is None for each in shown(collection, places=places).islands or ())


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_items_and_equal_ones_have_islands_too(count: int) -> None:
    collection = filled(np.ones((count, DIM), np.float32), ix.CollectionConfig(dim=DIM))
    found = shown(collection, places="islands")
    assert found.sample.xy.shape == (count, 2)
    assert found.islands == []


def test_items_that_are_like_none_stay_where_the_axes_have_them() -> None:
    found = shown(filled(np.eye(DIM, dtype=np.float32), ix.CollectionConfig(dim=DIM)),
                  places="islands")  # fmt: skip
    assert np.isfinite(found.sample.xy).all()


def test_a_filter_says_which_items_are_drawn(rng: np.random.Generator) -> None:
    payloads = [json.dumps({"n": n % 4}).encode() for n in range(60)]
    collection = filled(signed(rng, 60), ix.CollectionConfig(dim=DIM), payloads)
    where = ix.parse_filter({"must": {"key": "n", "match": {"value": 3}}})
    found = ix.map_items(collection.memory, ix.MapParams(key="n"), where=where)
    assert [*map(int, found.ids)] == [*range(3, 60, 4)]
    assert found.values == [3] * 15
    assert found.sample.neighbours.shape == (15, 14)


@pytest.mark.parametrize("dim", [DIM, 5000, None])
def test_ids_and_vectors_are_placed_too(rng: np.random.Generator, dim: int | None) -> None:
    rows = signed(rng, 50)
    collection = filled(rows, ix.CollectionConfig(dim=dim))
    sent = ix.SparseVector(np.flatnonzero(rows[4]), rows[4][rows[4] != 0])
    plain = rows[4].tolist() if dim == DIM else sent
    found = shown(collection, ["4", plain, "7"])
    np.testing.assert_allclose(found.also.xy, found.sample.xy[[4, 4, 7]], atol=1e-5)
    assert found.also.scores[0].tolist() == found.sample.scores[4].tolist()
    assert found.also.neighbours[1, 0] == 4
    assert found.also.scores[1, 0] == 1.0
    assert 7 not in found.also.neighbours[2]
    few = shown(collection, ["4"], sample=10)
    assert few.also.neighbours.shape == (1, 10)


def test_an_item_alone_has_no_neighbour_but_one_beside_it_has(rng: np.random.Generator) -> None:
    collection = filled(signed(rng, 1), ix.CollectionConfig(dim=DIM))
    found = shown(collection, ["0", [1.0] * DIM])
    assert found.sample.neighbours.shape == (1, 0)
    assert found.also.neighbours.tolist() == [[ix.NO_NEIGHBOUR], [0]]
    assert found.sample.xy.tolist() == [[0, 0]]


def test_nothing_is_shown_of_no_items() -> None:
    collection = ix.StoredCollection.in_memory("things", ix.CollectionConfig(dim=2))
    found = shown(collection, [[1.0, 2.0]])
    assert (found.ids, len(found.sample.xy), found.also.xy.tolist()) == ([], 0, [[0, 0]])
    assert found.also.neighbours.shape == (1, 0)


@pytest.mark.parametrize("dim", [DIM, 5000])
@pytest.mark.parametrize("transform", TRANSFORMS, ids=["plain", "power"])
def test_unknown_names_count(rng: np.random.Generator, dim: int, transform: ix.Transform) -> None:
    collection = filled(signed(rng, 30), ix.CollectionConfig(dim=dim, transform=transform))
    collection.set_names(["acid", "body"])
    given = ix.named_vector(["acid", "never seen"], [1.0, 2.0])
    found = shown(collection, [given])
    for place, score in zip(
        found.also.neighbours[0].tolist(), found.also.scores[0].tolist(), strict=True
    ):
        assert score == pytest.approx(collection.explain(given, str(place)).score, rel=1e-6)


def test_values_are_first_scalars(rng: np.random.Generator) -> None:
    values: list[object] = [3, 2.5, True, "x" * 300, ["b", "c"], {"a": 1}, None, 2**80, -(2**63)]
    payloads: list[bytes | None] = [json.dumps({"of": {"n": value}}).encode() for value in values]
    collection = filled(signed(rng, 10), ix.CollectionConfig(dim=DIM), [*payloads, None])
    found = shown(collection, key="of.n").values
    assert found == [3, 2.5, True, "x" * 255, "b", None, None, 2.0**80, -(2**63), None]
    assert shown(collection).values is None
    assert shown(collection, key="other").values == [None] * 10


def test_other_backends_have_the_same_map(rng: np.random.Generator) -> None:
    rows = signed(rng, 60)
    expected, found = (
        shown(filled(rows, ix.CollectionConfig(dim=DIM, backend=backend)), sample=40)
        for backend in (ix.ExactParams(), ix.FourierParams(kind="rff", features=16))
    )
    assert found.sample.xy.tolist() == expected.sample.xy.tolist()
    assert found.sample.scores.tolist() == expected.sample.scores.tolist()


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"sample": 0}, "sample: expected 1 to 20000, got 0"),
        ({"sample": 20_001}, "sample"),
        ({"landmarks": 1}, "landmarks: expected 2 to 1024"),
        ({"landmarks": 1025}, "landmarks"),
        ({"seed": -1}, "seed"),
    ],
    ids=str,
)
def test_numbers_out_of_range_are_refused(params: dict[str, int], words: str) -> None:
    with pytest.raises(ix.InvalidParameter, match=words):
        ix.MapParams(**params)  # type: ignore[arg-type]


def test_at_most_1000_others_are_placed(rng: np.random.Generator) -> None:
    collection = filled(signed(rng, 1), ix.CollectionConfig(dim=DIM))
    with pytest.raises(ix.InvalidParameter, match="also: expected at most 1000"):
        shown(collection, ["0"] * 1001)


def kernel(a: Float64s, b: Float64s) -> Float64s:
    return np.asarray(np.exp(-np.square(a[:, None] - b[None]).sum(axis=2)))


def places_of(landmarks: Float64s, others: Float64s) -> Float64s:
    axes, middle = kernel_axes(landmarks)
    return np.asarray(others @ axes - middle)


@pytest.mark.parametrize("landmarks", [5, 40])
def test_places_are_those_of_scikit_learn_up_to_a_sign(
    rng: np.random.Generator, landmarks: int
) -> None:
    known, others = rng.standard_normal((landmarks, 3)), rng.standard_normal((60, 3))
    own, beside = kernel(known, known), kernel(others, known)
    peer = KernelPCA(2, kernel="precomputed", eigen_solver="dense").fit(own)
    for found, expected in (
        (places_of(own, own), peer.transform(own)),
        (places_of(own, beside), peer.transform(beside)),
    ):
        signs = np.sign((found * expected).sum(axis=0))
        np.testing.assert_allclose(found, expected * signs, atol=1e-9)


@pytest.mark.parametrize("landmarks", [1, 2, 6])
def test_equal_landmarks_have_no_axes(landmarks: int) -> None:
    own = np.ones((landmarks, landmarks))
    others = np.array([[1.0] * landmarks, [0.25] * landmarks])
    assert places_of(own, others).tolist() == [[0, 0]] * 2


def test_two_landmarks_have_one_axis() -> None:
    places = places_of(np.array([[1.0, 0.2], [0.2, 1.0]]), np.eye(2))
    assert places[:, 1].tolist() == [0, 0]
    assert places[0, 0] == -places[1, 0] != 0


def test_an_axis_has_the_same_sign_for_the_same_landmarks(rng: np.random.Generator) -> None:
    own = kernel(*[rng.standard_normal((20, 3))] * 2)
    places = places_of(own, own)  # as the entries of the eigenvectors
    assert (places[np.abs(places).argmax(axis=0), [0, 1]] > 0).all()


def counted(values: Float64s, edges: Float64s) -> list[int]:
    """Return how many values lie from each edge on, below the next; the last edge counts below."""
    return [
        sum(bool(low <= value < high or value == high == edges[-1]) for value in values)
        for low, high in itertools.pairwise(edges.tolist())
    ]


def assert_counts(found: dict[str, Any], values: Float64s) -> None:
    """Check a histogram; a value may be in the next bin, for scores are right to rounding."""
    for shift in (-1e-9, 0.0, 1e-9):
        if found["counts"] == counted(np.clip(values + shift, 0, 1), np.array(found["edges"])):
            return
    assert found["counts"] == counted(values, np.array(found["edges"]))


@pytest.mark.parametrize("dim", [DIM, 5000, None])
def test_neighbours_and_nonzeros_are_those_of_all_items(
    rng: np.random.Generator, dim: int | None
) -> None:
    rows = signed(rng, 90)
    found = ix.profile(filled(rows, ix.CollectionConfig(dim=dim, backend=ix.ExactParams())).memory)
    scores = all_scores(rows, rows, DIM)
    np.fill_diagonal(scores, -1)
    best = -np.sort(-scores, axis=1)
    assert (found["items"], found["sample"]) == (90, 90)
    assert_counts(found["first"], best[:, 0])
    assert_counts(found["tenth"], best[:, 9])
    counts = np.count_nonzero(rows, axis=1)
    assert found["nonzeros"]["counts"] == np.bincount(counts)[counts.min() :].tolist()
    assert found["nonzeros"]["edges"] == [*range(counts.min(), counts.max() + 2)]
    assert found["negative"] == (rows < 0).sum() / counts.sum()
    assert found["depths"] == []


def test_random_pairs_are_of_two_items_and_like_all_pairs(rng: np.random.Generator) -> None:
    rows = signed(rng, 60)
    collection = filled(rows, ix.CollectionConfig(dim=DIM))
    pairs = [ix.profile(collection.memory, seed=seed)["pairs"] for seed in range(200)]
    runs = np.array([each["counts"] for each in pairs])
    scores = all_scores(rows, rows, DIM)
    expected, _ = np.histogram(scores[~np.eye(60, dtype=bool)], 50, (0.0, 1.0))
    totals = runs.sum(axis=1)
    assert (totals > 0.95 * 600).all()
    assert (totals < 600).any()  # an item that met itself is left out
    shares = runs / totals[:, None]
    # Items share partners, so the error is that of the runs, which are independent.
    error = shares.std(axis=0, ddof=1) / np.sqrt(len(runs))
    wrong = np.abs(shares.mean(axis=0) - expected / expected.sum())
    assert (wrong <= SIGMAS * error + 1e-12).all()
    assert runs[:, -1].sum() == 0


def test_wide_counts_have_few_bins() -> None:
    rows = np.tril(np.ones((100, 100), np.float32))
    collection = filled(rows, ix.CollectionConfig(dim=100))
    found = ix.profile(collection.memory)["nonzeros"]
    assert found["edges"] == [*range(1, 102, 4)]
    assert found["counts"] == [4] * 25


@pytest.mark.parametrize(
    ("params", "samples", "floor"),
    [
        (ix.GcwsParams(), [*range(1, 17)], 1 / 16),
        (ix.GcwsParams(encoding="b_bit", bits=8), [*range(1, 9)], 1 / 256),
        (ix.GcwsParams(bands=10, band_width=3), [3], 0.0),
    ],
    ids=["prefix", "b_bit", "classical"],
)
def test_curves_and_buckets_of_each_depth(
    rng: np.random.Generator, params: ix.GcwsParams, samples: list[int], floor: float
) -> None:
    centres = signed(rng, 6)
    rows = centres[rng.integers(6, size=120)] * (1 + 1e-3 * rng.random((120, 1)))
    collection = filled(rows.astype(np.float32), ix.CollectionConfig(dim=DIM, backend=params))
    doomed = [*map(str, range(0, 120, 5))]
    collection.delete(doomed)
    found = ix.profile(collection.memory)
    assert [each["samples"] for each in found["depths"]] == samples
    keys = collection.memory.backend.encode(collection.memory.view.vectors)[:, 0].tolist()
    bits = 64 if params.band_width else 64 // len(samples)
    for depth, each in enumerate(found["depths"], 1):
        s = np.array(found["similarities"])
        one = (s + (1 - s) * floor) ** each["samples"]
        np.testing.assert_allclose(each["probabilities"], 1 - (1 - one) ** params.bands, atol=1e-12)
        live = [row for row in range(120) if row % 5]
        prefix = {row: int(keys[row]) >> (64 - depth * bits) for row in live}
        sizes = Counter(prefix.values())
        assert each["buckets"] == len(sizes)
        assert each["mean_size"] == pytest.approx(sum(n * n for n in sizes.values()) / len(live))
        largest = [n for _, n in sizes.most_common(10)]
        assert [bucket["size"] for bucket in each["largest"]] == largest
        assert all(sizes[prefix[int(bucket["id"])]] == bucket["size"] for bucket in each["largest"])


def test_buckets_span_segments(rng: np.random.Generator) -> None:
    collection = ix.StoredCollection.in_memory("things", ix.CollectionConfig(dim=DIM))
    one = signed(rng, 1)
    for first in (0, 600, 640):
        rows = np.repeat(one, 600 if first == 0 else 40, axis=0)
        ids = [str(first + row) for row in range(len(rows))]
        raw = collection.space.from_dense(rows)
        collection.put(ix.ItemBatch(ids, raw, [None] * len(rows)))
    assert len(collection.memory.view.state.tables.segments) > 1
    for each in ix.profile(collection.memory)["depths"]:
        assert (each["buckets"], each["mean_size"], each["largest"][0]["size"]) == (1, 680, 680)


def test_a_profile_is_of_the_rows_as_they_are_scored(rng: np.random.Generator) -> None:
    rows = np.abs(signed(rng, 40)) + np.float32(0.1)
    center = ix.Transform(center=(0.5,) * DIM)
    found = ix.profile(filled(rows, ix.CollectionConfig(dim=DIM, transform=center)).memory)
    assert found["negative"] == pytest.approx((rows < 0.5).sum() / rows.size)


def test_the_same_seed_looks_at_the_same_items(rng: np.random.Generator) -> None:
    collection = filled(signed(rng, 200), ix.CollectionConfig(dim=DIM))
    first = ix.profile(collection.memory, sample=50, seed=3)
    assert ix.profile(collection.memory, sample=50, seed=3) == first
    assert ix.profile(collection.memory, sample=50, seed=4) != first


@pytest.mark.parametrize("backend", [ix.GcwsParams(), ix.FourierParams(kind="rff", features=16)])
@pytest.mark.parametrize("items", [0, 1])
def test_few_items_have_a_profile(
    rng: np.random.Generator, backend: ix.GcwsParams | ix.FourierParams, items: int
) -> None:
    found = ix.profile(
        filled(signed(rng, items), ix.CollectionConfig(dim=DIM, backend=backend)).memory
    )
    assert found["items"] == found["sample"] == items
    assert [sum(found[name]["counts"]) for name in ("pairs", "first", "tenth")] == [0, 0, 0]
    assert sum(found["nonzeros"]["counts"]) == items
    assert all(each["buckets"] == items for each in found["depths"])
