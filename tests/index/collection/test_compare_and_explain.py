"""Comparisons of backends, and why two vectors are similar, beside plain Python."""

import itertools
import math
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
import pytest

from gcws_search import index as ix
from gcws_search.index.backends.exact import ExactBackend
from tests.support.data.adapters import signed_row
from tests.support.data.generated import Floats, clustered
from tests.support.index.items import in_memory
from tests.support.reference import kernels, mathematics

DIM, ITEMS, LIMIT = 8, 150, 4
ROUGH = ix.FourierParams(kind="rff", features=6)
"""So few features that much is missed."""

Vector = dict[int, float]
Truth = Callable[[Vector, Vector], float]


def rbf(u: Vector, v: Vector) -> float:
    return kernels.kernel("rbf", u, v, gamma=ROUGH.gamma)


def vectors_of(rows: Floats) -> list[Vector]:
    return [{d: float(x) for d, x in enumerate(row)} for row in rows]


def counted(
    stored: ix.StoredCollection, rows: Floats, queries: Floats, rerank: ix.Rerank, truth: Truth
) -> float:
    """Return the mean share of the best items by ``truth`` among the hits."""
    params = ix.SearchParams(limit=LIMIT, candidates=LIMIT, rerank=rerank)
    found = stored.search(stored.space.from_dense(queries), params, backend="rff")
    items = vectors_of(rows)
    shares = []
    for query, result in zip(vectors_of(queries), found, strict=True):
        ranked = sorted(range(len(items)), key=lambda i: -truth(query, items[i]))
        shares.append(len({str(i) for i in ranked[:LIMIT]} & set(result.ids)) / LIMIT)
    return float(np.mean(shares))


def collection_of(rows: Floats) -> ix.StoredCollection:
    return in_memory(
        ix.CollectionConfig(dim=rows.shape[1], backend=ix.ExactParams()), rows.tolist()
    )


def test_recalls_are_those_counted_by_hand(rng: np.random.Generator) -> None:
    rows, queries = clustered(rng, ITEMS, 25, dim=DIM)
    stored = collection_of(rows)
    stored.attach(ROUGH)
    params = ix.SearchParams(limit=LIMIT, candidates=LIMIT)
    found = stored.compare([stored.space.from_dense(queries)], params)
    exact, rough = found.backends
    assert (exact.recall, exact.recall_own) == (1.0, 1.0)
    by_gmm = counted(stored, rows, queries, "gmm", mathematics.gmm)
    by_own = counted(stored, rows, queries, "own", rbf)
    assert 0 < by_gmm < by_own < 1
    assert rough.recall == pytest.approx(by_gmm)
    assert rough.recall_own == pytest.approx(by_own)
    nearest = [
        np.mean(sorted(mathematics.gmm(query, row) for row in vectors_of(rows))[-LIMIT:])
        for query in vectors_of(queries)
    ]
    assert found.similarities == pytest.approx(nearest, rel=1e-5)


def test_items_of_equal_score_are_as_good_as_each_other() -> None:
    stored = collection_of(np.ones((30, 2), np.float32))
    stored.attach(ROUGH)
    found = stored.compare(None, ix.SearchParams(limit=3, candidates=3), sample=30)
    assert [backend.recall for backend in found.backends] == [1.0, 1.0]
    assert [backend.recall_own for backend in found.backends] == [1.0, 1.0]
    assert found.similarities == pytest.approx(np.ones(30))


def test_items_may_be_left_out_of_the_hits_of_queries(rng: np.random.Generator) -> None:
    rows, _ = clustered(rng, ITEMS, 25, dim=DIM)
    stored = collection_of(rows)
    vectors, ids = stored.space.from_dense(rows), [str(i) for i in range(ITEMS)]
    some, params = vectors[np.arange(10)], ix.SearchParams(limit=LIMIT)
    whole = stored.compare([some], params)
    left_out = stored.compare([some], params, skip=[*ids[:9], "none"])
    assert (whole.best.max(axis=1) == 1).all()
    assert [*(left_out.best.max(axis=1) < 1)] == [True] * 9 + [False]
    assert [each.recall for each in left_out.backends] == [1.0]


def test_a_comparison_ends_at_the_next_query_once_nobody_waits(rng: np.random.Generator) -> None:
    rows, queries = clustered(rng, ITEMS, 25, dim=DIM)
    stored = collection_of(rows)
    stop, searches = threading.Event(), list[int]()
    search = ExactBackend.search

    def counted_search(*words: Any) -> Any:  # noqa: ANN401
        searches.append(1)
        if len(searches) == 3:
            stop.set()
        return search(*words)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ExactBackend, "search", counted_search)
        with pytest.raises(CancelledError):
            stored.compare([stored.space.from_dense(queries)], ix.SearchParams(), stop=stop)
    assert len(searches) == 3


WIDTH, COUNT = 6, 40
CENTER = (0.5, 0.0, -1.0, 0.25, 0.0, 2.0)
TRANSFORMS = [
    ix.Transform(),
    ix.Transform(power=0.5, normalize="l2"),
    ix.Transform(power=2.0, normalize="l1"),
]
BACKENDS = [
    ix.GcwsParams(),
    ix.ExactParams(),
    ix.FourierParams(kind="rff", features=16),
    ix.RandomBinningParams(),
]
SPACES = [WIDTH, 5000, None]


def rows(rng: np.random.Generator) -> list[dict[int, float]]:
    """Return signed vectors of small numbers, of which many are equal, and many zero."""
    numbers = rng.integers(-3, 4, (COUNT, WIDTH)) / 2
    numbers[:, 0] += 0.25
    return [mathematics.from_dense(row) for row in numbers]


def filled(config: ix.CollectionConfig, vectors: list[dict[int, float]]) -> ix.StoredCollection:
    return in_memory(config, [ix.SparseVector([*each], [*each.values()]) for each in vectors])


def transformed(collection: ix.StoredCollection, vector: dict[int, float]) -> dict[int, float]:
    """Return a vector as it is scored, as the collection rounds it."""
    raw = collection.space.from_items([ix.SparseVector([*vector], [*vector.values()])])
    return signed_row(collection.space.prepare(raw), 0)


def listed(u: dict[int, float], v: dict[int, float]) -> list[tuple[float, ...]]:
    """Return (coordinate, a, b, min, max) in the order of an explanation."""
    found = []
    for i in sorted({*u, *v}):
        a, b = mathematics.expand({0: u.get(i, 0.0)}), mathematics.expand({0: v.get(i, 0.0)})
        slots = {*a, *b}
        low = sum(min(a.get(s, 0.0), b.get(s, 0.0)) for s in slots)
        high = sum(max(a.get(s, 0.0), b.get(s, 0.0)) for s in slots)
        found.append((i, u.get(i, 0.0), v.get(i, 0.0), low, high))
    return sorted(found, key=lambda each: (-each[3], each[3] - each[4]))


def check(why: ix.Explained, u: dict[int, float], v: dict[int, float], limit: int) -> None:
    """Compare an explanation with plain Python."""
    wanted = listed(u, v)
    found = [(each.coordinate, each.a, each.b, each.min, each.max) for each in why.coordinates]
    assert found == wanted[:limit]
    rest = wanted[limit:]
    assert why.rest.coordinates == len(rest)
    assert why.rest.min == pytest.approx(math.fsum(each[3] for each in rest), abs=1e-12)
    assert why.rest.max == pytest.approx(math.fsum(each[4] for each in rest), abs=1e-12)
    assert why.shared == pytest.approx(math.fsum(each[3] for each in wanted), rel=1e-14)
    assert why.total == pytest.approx(math.fsum(each[4] for each in wanted), rel=1e-14)
    assert abs(why.shared / why.total - why.score) <= 1e-12


@pytest.mark.parametrize(
    ("dim", "transform"),
    [*itertools.product(SPACES, TRANSFORMS), (WIDTH, ix.Transform(center=CENTER))],
    ids=str,
)
def test_an_explanation_is_what_plain_python_says(
    dim: int | None, transform: ix.Transform, rng: np.random.Generator
) -> None:
    vectors = rows(rng)
    config = ix.CollectionConfig(dim=dim, transform=transform, backend=ix.ExactParams())
    collection = filled(config, vectors)
    for a, b in rng.integers(COUNT, size=(30, 2)):
        for limit in (1, 3, 4096):
            why = collection.explain(str(a), str(b), limit=limit)
            u, v = transformed(collection, vectors[a]), transformed(collection, vectors[b])
            check(why, u, v, limit)
            sent = ix.SparseVector([*vectors[a]], [*vectors[a].values()])
            assert collection.explain(sent, str(b), limit=limit) == why


@pytest.mark.parametrize("params", BACKENDS, ids=lambda params: params.kind)
@pytest.mark.parametrize("dim", [WIDTH, 5000])
def test_the_score_is_the_one_that_a_query_returns(
    params: ix.GcwsParams, dim: int, rng: np.random.Generator
) -> None:
    for transform in TRANSFORMS:
        config = ix.CollectionConfig(dim=dim, transform=transform, backend=params)
        vectors = rows(rng)
        collection = filled(config, vectors)
        for number in range(0, COUNT, 20):
            [around] = collection.search_around([str(number)], ix.SearchParams(limit=COUNT))
            assert len(around.ids) > 1
            for item, score in zip(around.ids, around.scores, strict=True):
                assert collection.explain(str(number), item).score == score
            raw = collection.space.from_items([ix.SparseVector([0, 3], [1.5, -0.7])])
            [found] = collection.search(raw, ix.SearchParams(limit=COUNT, recall=0.5))
            for item, score in zip(found.ids, found.scores, strict=True):
                why = collection.explain(item, ix.SparseVector([3, 0], [-0.7, 1.5]))
                assert why.score == score


@pytest.mark.parametrize("dim", SPACES)
@pytest.mark.parametrize("transform", TRANSFORMS, ids=str)
def test_names_that_no_coordinate_has_count(
    dim: int | None, transform: ix.Transform, rng: np.random.Generator
) -> None:
    words = [f"w{i}" for i in range(WIDTH)]
    collection = filled(ix.CollectionConfig(dim=dim, transform=transform), rows(rng))
    if dim is None:
        coordinates = collection.names.reserve(words)
        sparse = [ix.SparseVector([place], [1.0]) for place in coordinates]
        batch = ix.ItemBatch([*words], collection.space.from_items(sparse), [None] * WIDTH)
        collection.put(batch)
    else:
        collection.set_names(words)
        coordinates = [*range(WIDTH)]
    sought = ["new", "w1", "w3", "other"]
    query = ix.named_vector(sought, [1.5, -1.0, 0.5, -2.0])
    for item in ("0", "7", "w1" if dim is None else "9"):
        why = collection.explain(query, item)
        names = {each.coordinate: each.name for each in why.coordinates}
        assert {"new", "other"} < set(names.values())
        assert len({*names}) == len(names)
        assert abs(why.shared / why.total - why.score) <= 1e-12
        assert {each.b for each in why.coordinates if each.name in ("new", "other")} == {0.0}
        found, unknown = collection.names.find(sought, beyond_dim=True)
        assert unknown == ["new", "other"]
        sent = ix.SparseVector(found, query.values)
        params = ix.SearchParams(limit=1000, recall=1.0)
        if dim is None:
            [result] = collection.search(collection.space.from_items([sent]), params)
        else:
            result = collection.search(sent, params)[0]
        assert dict(zip(result.ids, result.scores, strict=True))[item] == why.score
    both = collection.explain(query, ix.named_vector(["other", "more", "w1"], [-1.0, 1.0, 3.0]))
    shared = {each.name: (each.min > 0, each.a != 0, each.b != 0) for each in both.coordinates}
    assert shared == {
        "new": (False, True, False),
        "w1": (False, True, True),
        "w3": (False, True, False),
        "other": (True, True, True),
        "more": (False, False, True),
    }


def test_what_cannot_be_explained_is_refused_at_its_place() -> None:
    collection = filled(ix.CollectionConfig(dim=3), [{0: 1.0}])
    collection.set_names(["x", "y", "z"])
    with pytest.raises(ix.InvalidVector) as error:
        collection.explain(ix.named_vector(["x"], [1.0]), ix.named_vector(["x", ""], [1.0, 1.0]))
    assert error.value.loc == ("b", "vector", "names", 1)
    for limit in (0, 4097):
        with pytest.raises(ix.InvalidParameter, match="limit: expected 1 to 4096"):
            collection.explain("0", "0", limit=limit)
