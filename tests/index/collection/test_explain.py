"""Why two vectors are similar, beside the same in plain Python."""

import itertools
import math

import numpy as np
import pytest

from gcws_search.index import (
    CollectionConfig,
    ExactParams,
    FourierParams,
    GcwsParams,
    InvalidParameter,
    InvalidVector,
    ItemBatch,
    ItemNotFound,
    NamedVector,
    NystroemParams,
    RandomBinningParams,
    SearchParams,
    SparseVector,
    StoredCollection,
    Transform,
)
from gcws_search.index.contracts.analysis import Explained
from tests.support.data.adapters import signed_row
from tests.support.reference import mathematics

DIM, ITEMS = 6, 40
CENTER = (0.5, 0.0, -1.0, 0.25, 0.0, 2.0)
TRANSFORMS = [
    Transform(),
    Transform(power=0.5, normalize="l2"),
    Transform(power=2.0, normalize="l1"),
]
BACKENDS = [
    GcwsParams(),
    ExactParams(),
    FourierParams(kind="rff", features=16),
    FourierParams(kind="nrff", features=16),
    FourierParams(kind="folded_rff", features=16),
    RandomBinningParams(),
    NystroemParams(kind="gmm_nystroem", landmarks=8),
    NystroemParams(kind="rbf_nystroem", landmarks=8),
]
SPACES = [DIM, 5000, None]


def rows(rng: np.random.Generator) -> list[dict[int, float]]:
    """Return signed vectors of small numbers, of which many are equal, and many zero."""
    numbers = rng.integers(-3, 4, (ITEMS, DIM)) / 2
    numbers[:, 0] += 0.25
    return [mathematics.from_dense(row) for row in numbers]


def filled(config: CollectionConfig, vectors: list[dict[int, float]]) -> StoredCollection:
    collection = StoredCollection.in_memory("things", config)
    sparse = [SparseVector([*each], [*each.values()]) for each in vectors]
    raw = collection.space.from_items(sparse)
    collection.put(ItemBatch([*map(str, range(len(vectors)))], raw, [None] * len(vectors)))
    return collection


def transformed(collection: StoredCollection, vector: dict[int, float]) -> dict[int, float]:
    """Return a vector as it is scored, as the collection rounds it."""
    raw = collection.space.from_items([SparseVector([*vector], [*vector.values()])])
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


def check(why: Explained, u: dict[int, float], v: dict[int, float], limit: int) -> None:
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
    [*itertools.product(SPACES, TRANSFORMS), (DIM, Transform(center=CENTER))],
    ids=str,
)
def test_an_explanation_is_what_plain_python_says(
    dim: int | None, transform: Transform, rng: np.random.Generator
) -> None:
    vectors = rows(rng)
    config = CollectionConfig(dim=dim, transform=transform, backend=ExactParams())
    collection = filled(config, vectors)
    for a, b in rng.integers(ITEMS, size=(30, 2)):
        for limit in (1, 3, 4096):
            why = collection.explain(str(a), str(b), limit=limit)
            u, v = transformed(collection, vectors[a]), transformed(collection, vectors[b])
            check(why, u, v, limit)
            sent = SparseVector([*vectors[a]], [*vectors[a].values()])
            assert collection.explain(sent, str(b), limit=limit) == why
    collection.close()


@pytest.mark.parametrize("params", BACKENDS, ids=lambda params: params.kind)
@pytest.mark.parametrize("dim", [DIM, 5000])
def test_the_score_is_the_one_that_a_query_returns(
    params: GcwsParams, dim: int, rng: np.random.Generator
) -> None:
    for transform in TRANSFORMS:
        config = CollectionConfig(dim=dim, transform=transform, backend=params)
        vectors = rows(rng)
        collection = filled(config, vectors)
        for number in range(0, ITEMS, 20):
            [around] = collection.search_around(str(number), SearchParams(limit=ITEMS))
            assert len(around.ids) > 1
            for item, score in zip(around.ids, around.scores, strict=True):
                assert collection.explain(str(number), item).score == score
            raw = collection.space.from_items([SparseVector([0, 3], [1.5, -0.7])])
            [found] = collection.search(raw, SearchParams(limit=ITEMS, recall=0.5))
            for item, score in zip(found.ids, found.scores, strict=True):
                why = collection.explain(item, SparseVector([3, 0], [-0.7, 1.5]))
                assert why.score == score
        collection.close()


@pytest.mark.parametrize("dim", SPACES)
@pytest.mark.parametrize("transform", TRANSFORMS, ids=str)
def test_names_that_no_coordinate_has_count(
    dim: int | None, transform: Transform, rng: np.random.Generator
) -> None:
    words = [f"w{i}" for i in range(DIM)]
    collection = filled(CollectionConfig(dim=dim, transform=transform), rows(rng))
    if dim is None:
        coordinates = collection.names.reserve(words)
        sparse = [SparseVector([place], [1.0]) for place in coordinates]
        batch = ItemBatch([*words], collection.space.from_items(sparse), [None] * DIM)
        collection.put(batch)
    else:
        collection.set_names(words)
        coordinates = [*range(DIM)]
    query = NamedVector(["new", "w1", "w3", "other"], [1.5, -1.0, 0.5, -2.0])
    for item in ("0", "7", "w1" if dim is None else "9"):
        why = collection.explain(query, item)
        names = {each.coordinate: each.name for each in why.coordinates}
        assert {"new", "other"} < set(names.values())
        assert len({*names}) == len(names)
        assert abs(why.shared / why.total - why.score) <= 1e-12
        assert {each.b for each in why.coordinates if each.name in ("new", "other")} == {0.0}
        _, unknown = collection.names.find(query.names, beyond_dim=True)
        assert unknown == ["new", "other"]
        found, _ = collection.names.find(query.names, beyond_dim=True)
        sent = SparseVector(found, query.values)
        params = SearchParams(limit=1000, recall=1.0)
        if dim is None:
            [result] = collection.search(collection.space.from_items([sent]), params)
        else:
            result = collection.search_with_unknown(sent, params)[0]
        assert dict(zip(result.ids, result.scores, strict=True))[item] == why.score
    both = collection.explain(query, NamedVector(["other", "more", "w1"], [-1.0, 1.0, 3.0]))
    shared = {each.name: (each.min > 0, each.a != 0, each.b != 0) for each in both.coordinates}
    assert shared == {
        "new": (False, True, False),
        "w1": (False, True, True),
        "w3": (False, True, False),
        "other": (True, True, True),
        "more": (False, False, True),
    }
    collection.close()


def test_what_cannot_be_explained_says_which_vector_it_is() -> None:
    collection = filled(CollectionConfig(dim=3), [{0: 1.0}])
    with pytest.raises(ItemNotFound, match="'nobody'"):
        collection.explain("0", "nobody")
    for limit in (0, 4097):
        with pytest.raises(InvalidParameter, match="limit: expected 1 to 4096"):
            collection.explain("0", "0", limit=limit)
    for bad, loc in (
        ([1.0, 2.0], ("b", "vector")),
        ([1.0, np.nan, 2.0], ("b", "vector", 1)),
        (SparseVector([0, 3], [1.0, 1.0]), ("b", "vector", "indices", 1)),
        (NamedVector(["x"], [1.0]), ("b", "vector", "names", 0)),
    ):
        with pytest.raises(InvalidVector) as error:
            collection.explain("0", bad)
        assert error.value.loc == loc
    collection.set_names(["x", "y", "z"])
    with pytest.raises(InvalidVector) as error:
        collection.explain(NamedVector(["x"], [1.0]), NamedVector(["x", ""], [1.0, 1.0]))
    assert error.value.loc == ("b", "vector", "names", 1)
    collection.close()
