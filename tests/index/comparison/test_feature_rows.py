"""Features follow rows that come and go, are kept, and are told of."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.engine import row_hits
from gcws_search.index.backends import FeatureBackend
from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.collection.items import ItemBatch
from gcws_search.index.contracts.hits import RowView
from gcws_search.index.contracts.parameters import (
    BackendParams,
    CollectionConfig,
    ExactParams,
    FourierParams,
    NystroemParams,
    SearchParams,
)
from gcws_search.index.contracts.saved_index import SavedIndex
from gcws_search.index.payload import parse_filter
from tests.support.data import generated
from tests.support.index.features import (
    ALL,
    DIM,
    KINDS,
    best,
    data_of,
    estimates,
    every_kind,
    forms,
    improve,
    items_of,
    made_index,
    nystroem,
    own_scores,
    state_of,
)
from tests.support.index.small_index import SmallIndex, answers


@forms
@every_kind
def test_features_follow_rows_that_are_put_and_forgotten(
    rng: np.random.Generator, params: BackendParams, dim: int | None
) -> None:
    rows, queries = data_of(rng, dim)
    wanted = SearchParams(limit=6, rerank="none")
    index = SmallIndex(CollectionConfig(dim=dim, backend=params)).add(rows[:200], [1, 100])
    improve(index)
    earlier, before = index.state, RowView(index.rows.view(), np.ones(200, np.uint8), 200)
    asked = index.prepare(queries)
    found = answers(row_hits(index.backend.search(earlier, before, asked, wanted)))
    index.add(rows[200:], [3, 0, 200])
    again = answers(row_hits(index.backend.search(earlier, before, asked, wanted)))
    assert again == found
    truth = estimates(index, queries)
    for hits, expected in zip(index.search(queries, wanted), best(truth, 6), strict=True):
        np.testing.assert_allclose(hits.scores[:6], expected, atol=2e-6)
    stays = rng.random(ALL) < 0.6
    permitted = stays.astype(np.uint8)
    left = index.search(queries, wanted, permitted=permitted)
    index.compact(stays)
    kept = np.flatnonzero(stays)
    compacted = index.search(queries, wanted)
    assert [kept[hits.rows].tolist() for hits in compacted] == [h.rows.tolist() for h in left]
    assert [hits.scores.tolist() for hits in compacted] == [h.scores.tolist() for h in left]
    index.add(rows[:5])
    assert len(state_of(index).features) >= len(kept) + 5
    mine = index.search(rows[:5], SearchParams(limit=1, recall=0.5))
    assert [hits.scores[0] for hits in mine] == [1.0] * 5


@forms
@nystroem
def test_landmarks_are_drawn_once_there_are_enough_live_rows(
    rng: np.random.Generator, params: NystroemParams, dim: int | None
) -> None:
    rows, queries = data_of(rng, dim)
    index = SmallIndex(CollectionConfig(dim=dim, backend=params)).add(rows[:60])
    backend, state = index.backend, index.state
    assert not backend.is_overdue(state, 60, 49)
    assert backend.is_overdue(state, 60, 50)
    assert backend.saved(state) is None
    exact = made_index(rows[:60], dim, ExactParams())
    wanted = SearchParams(limit=5)
    assert answers(index.search(queries, wanted)) == answers(exact.search(queries, wanted))
    own = own_scores(index, queries)
    for rerank in ("own", "none"):  # there is nothing to estimate by
        for i, hits in enumerate(index.search(queries, SearchParams(limit=5, rerank=rerank))):
            assert hits.explanation.method == "scan"
            np.testing.assert_allclose(hits.scores[:5], best(own, 5)[i], atol=4e-6)
    alive = np.ones(60, np.uint8)
    alive[5:12] = 0
    improve(index, alive)
    improved = state_of(index)
    assert improved.map is not None
    assert improved.map.width <= 50
    assert improved.drawn_from == 53
    assert index.search(queries[:1], wanted)[0].explanation.method == params.kind
    assert not backend.is_overdue(improved, 211, 211)
    assert backend.is_overdue(improved, 212, 212)


@nystroem
def test_rows_put_while_landmarks_are_drawn_are_found(
    rng: np.random.Generator, params: NystroemParams
) -> None:
    rows, queries = data_of(rng, DIM)
    index = SmallIndex(CollectionConfig(dim=DIM, backend=params)).add(rows[:100])
    first, alive = index.rows.view(), np.ones(100, np.uint8)
    stopped = threading.Event()
    better = index.backend.optimize(index.state, first, alive, stopped)
    stopped.set()
    assert index.backend.optimize(index.state, first, alive, stopped) is None
    index.add(rows[100:])
    index.state = index.backend.adopt(index.state, index.rows.view(), better)
    assert state_of(index).rows == ALL
    truth = estimates(index, queries)
    found = index.search(queries, SearchParams(limit=6, rerank="none"))
    for hits, expected in zip(found, best(truth, 6), strict=True):
        np.testing.assert_allclose(hits.scores[:6], expected, atol=2e-6)


@forms
@every_kind
def test_what_is_kept_of_a_state_restores_it(
    rng: np.random.Generator, params: BackendParams, dim: int | None
) -> None:
    rows, queries = data_of(rng, dim)
    index = made_index(rows, dim, params)
    backend, vectors = index.backend, index.rows.view()
    kept = backend.saved(index.state)
    assert (kept is None) == isinstance(params, FourierParams)
    none = SavedIndex(np.full((ALL, 1), -2, np.int32), {})
    wanted = SearchParams(limit=6, rerank="none")
    expected = answers(index.search(queries, wanted))
    codes = backend.encode(vectors)
    assert codes.shape == (ALL, backend.code_width) == (ALL, 0)
    index.state = backend.restore(vectors, codes, kept or none)
    assert answers(index.search(queries, wanted)) == expected
    if kept is not None:
        assert kept.links.shape == (ALL, 1)
        damaged: list[dict[str, object]] = [{}, {"map": {}}, kept.notes | {"drawn_from": "x"}]
        for notes in damaged:
            broken = backend.restore(vectors, codes, SavedIndex(none.links, notes))
            assert broken.map is None
            assert backend.is_overdue(broken, ALL, ALL)


@forms
@every_kind
def test_pairs_are_those_of_gmm(
    rng: np.random.Generator, params: BackendParams, dim: int | None
) -> None:
    rows, _ = data_of(rng, dim)
    index, exact = made_index(rows, dim, params), made_index(rows, dim, ExactParams())
    alive = (rng.random(ALL) < 0.8).astype(np.uint8)
    view = RowView(index.rows.view(), alive, int(alive.sum()))
    found, expected = (
        each.backend.pairs(each.state, view, min_score=0.6, recall=0.9) for each in (index, exact)
    )
    assert len(expected[0])
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@every_kind
def test_memory_and_statistics_are_told(rng: np.random.Generator, params: BackendParams) -> None:
    rows, _ = data_of(rng, DIM)
    index = made_index(rows, DIM, params)
    backend, state = index.backend, state_of(index)
    assert isinstance(backend, FeatureBackend)
    assert state.map is not None
    stats = backend.stats(state)
    assert stats["features"] == state.map.width
    assert stats["bytes_per_item"] == state.features.shape[1] * 4
    held = stats["feature_bytes"] + stats["map_bytes"]
    assert backend.nbytes(state) == held >= ALL * stats["bytes_per_item"]


@pytest.fixture(params=KINDS, ids=lambda params: params.kind)
def kind(request: pytest.FixtureRequest) -> BackendParams:
    made: BackendParams = request.param
    return made


@forms
def test_a_collection_of_features_outlives_the_process(
    tmp_path: Path, rng: np.random.Generator, kind: BackendParams, dim: int | None
) -> None:
    rows, queries = generated.clustered(rng, 300, 4, dim=DIM)
    config = CollectionConfig(dim=dim, backend=kind)
    estimated = SearchParams(limit=5, rerank="none")
    scored = SearchParams(limit=5)
    even = parse_filter({"must": [{"key": "even", "match": {"value": 1}}]})

    def opened() -> Iterator[Catalog]:
        catalog = Catalog.open(tmp_path, threads=1)
        catalog.load()
        yield catalog
        catalog.close()

    def asked(catalog: Catalog) -> list[object]:
        stored = catalog.get("things")
        asked = stored.space.from_items(items_of(queries, dim))
        found = [
            stored.search(asked, params, where=where)
            for params in (estimated, scored)
            for where in (None, even)
        ]
        return [[*zip(result.ids, result.scores, strict=True)] for some in found for result in some]

    for catalog in opened():
        stored, _ = catalog.create("things", config)
        payloads: list[bytes | None] = [b'{"even":%d}' % (i % 2 == 0) for i in range(300)]
        raw = stored.space.from_items(items_of(rows, dim))
        stored.put(ItemBatch([str(i) for i in range(300)], raw, payloads))
        stored.finish_background_work()
        stored.delete([str(i) for i in range(40)])
        stored.put(ItemBatch(["7"], raw[7:8], payloads[:1]))
        stored.finish_background_work()
        description = stored.describe().backends[0]
        assert description.kind == kind.kind
        assert description.stats["features"] is not None
        before = asked(catalog)
    for catalog in opened():
        assert asked(catalog) == before
        stored = catalog.get("things")
        again = stored.search_around("7", SearchParams(limit=3))[0]
        assert "7" not in again.ids
        mine = stored.search(raw[7:8], SearchParams(limit=1))[0]
        assert (mine.ids, mine.scores) == (["7"], [1.0])
