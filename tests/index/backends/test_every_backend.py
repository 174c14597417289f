"""One scenario over all search methods, as what a collection was created with and attached."""

import math
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from _pytest.mark.structures import ParameterSet

from gcws_search.index import POLICIES, Policies
from gcws_search.index.collection.items import ItemBatch, QueryResult
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.parameters import (
    BackendParams,
    CollectionConfig,
    ExactParams,
    FourierParams,
    GcwsParams,
    NystroemParams,
    RandomBinningParams,
    Rerank,
    SearchParams,
)
from gcws_search.index.payload import parse_filter
from tests.support.data.adapters import raw_of
from tests.support.data.generated import Floats, clustered
from tests.support.index.items import opened_catalog, put_rows
from tests.support.index.policies import compacting_from
from tests.support.index.small_index import all_scores
from tests.support.reference import kernels, mathematics

COMPACTING = compacting_from(20)
DIM = 16
ITEMS = 240
QUERIES = 4
LIMIT = 5
EVERY: dict[str, BackendParams] = {
    "gcws": GcwsParams(bands=16),
    "gcws zero_bit": GcwsParams(bands=16, encoding="zero_bit"),
    "gcws b_bit": GcwsParams(bands=16, encoding="b_bit", bits=2),
    "gcws classical": GcwsParams(bands=32, band_width=2),
    "exact": ExactParams(),
    "rff": FourierParams(kind="rff", features=1024),
    "nrff": FourierParams(kind="nrff", features=1024),
    "folded_rff": FourierParams(kind="folded_rff", features=1024),
    "random_binning": RandomBinningParams(scale=40.0, bands=16),
    "random_binning rayleigh": RandomBinningParams(distribution="rayleigh", scale=40.0, bands=16),
    "gmm_nystroem": NystroemParams(kind="gmm_nystroem", landmarks=64),
    "rbf_nystroem": NystroemParams(kind="rbf_nystroem", landmarks=64),
}
RERANKS: tuple[Rerank, ...] = ("gmm", "own", "none")
HASHED = ("gcws", "random_binning")
Vector = dict[int, float]


def own_kernel(params: BackendParams, u: Vector, v: Vector) -> float:
    """Return the exact value of what a method estimates, by its definition."""
    match params:
        case RandomBinningParams(distribution="rayleigh"):
            return rayleigh(params.scale, u, v)
        case RandomBinningParams():  # gamma of shape 2 and mean pitch 2θ
            return kernels.kernel("laplace", u, v, scale=params.scale / 2)
        case FourierParams(kind="folded_rff"):
            return kernels.kernel("folded_rbf", u, v, gamma=params.gamma)
        case FourierParams() | NystroemParams(kind="rbf_nystroem"):
            return kernels.kernel("rbf", u, v, gamma=params.gamma)
    return mathematics.gmm(u, v)


def rayleigh(scale: float, u: Vector, v: Vector) -> float:
    """Return Π_d e^(-x²) - x√π·erfc(x), x = r_d/(σ√2), for σ√(π/2) the mean pitch ([POLYA])."""
    sigma = scale / math.sqrt(math.pi / 2)
    shares = (r / sigma / math.sqrt(2) for r in kernels.differences(u, v))
    return math.prod(math.exp(-x * x) - x * math.sqrt(math.pi) * math.erfc(x) for x in shares)


def deviation(params: BackendParams, value: float) -> float | None:
    """Return the standard deviation of an estimate of ``value``, or a bound; None without one."""
    match params:
        case GcwsParams(encoding="full"):
            samples = params.bands * (params.band_width or 16)
            return math.sqrt(max(value * (1 - value), 1 / samples) / samples)
        case FourierParams():  # V_ρ ≤ 1, and V_n ≤ V_ρ
            return 1 / math.sqrt(params.features)
    return None


class Scene:
    """A collection in which one method answers, beside the dict of what it must hold."""

    def __init__(
        self, directory: Path, params: BackendParams, *, form: str, attached: bool
    ) -> None:
        self.directory = directory
        self.params = params
        self.attached = attached
        self.config = CollectionConfig(
            dim=DIM if form == "dense" else None, backend=ExactParams() if attached else params
        )
        self.catalog = opened_catalog(directory, COMPACTING)
        self.stored: StoredCollection = self.catalog.create("things", self.config)[0]
        self.name: str | None = None
        self.model: dict[str, tuple[Vector, int]] = {}

    def attach(self) -> None:
        if self.attached:
            self.name = self.stored.attach(self.params, "mine").name

    def restart(self) -> None:
        self.catalog.close()
        self.catalog = opened_catalog(self.directory, COMPACTING)
        self.stored = self.catalog.get("things")

    def put(self, first: int, rows: Floats) -> None:
        ids = [f"i{n}" for n in range(first, first + len(rows))]
        raw = raw_of(self.stored.space, rows)
        labels = [int(item_id[1:]) % 3 for item_id in ids]
        self.stored.put(ItemBatch(ids, raw, [b'{"label":%d}' % label for label in labels]))
        for item_id, row, label in zip(ids, rows, labels, strict=True):
            self.model[item_id] = vector_of(row), label

    def delete(self, ids: list[str]) -> None:
        assert self.stored.delete(ids) == len(ids)
        for item_id in ids:
            del self.model[item_id]

    def search(
        self, queries: Floats, params: SearchParams, label: int | None = None
    ) -> list[QueryResult]:
        raw = raw_of(self.stored.space, queries)
        document = {"must": [{"key": "label", "match": {"value": label}}]}
        where = None if label is None else parse_filter(document)
        return list(self.stored.search(raw, params, where=where, backend=self.name))


def vector_of(row: Floats) -> Vector:
    return {d: float(x) for d, x in enumerate(row) if x}


def scenes() -> Iterator[ParameterSet]:
    """Yield each method in each form and role; those of a class that came before in two of four."""
    kinds = set[type[BackendParams]]()
    for name, params in EVERY.items():
        for form, attached in product(("dense", "sparse"), (False, True)):
            if type(params) not in kinds or attached == (form == "sparse"):
                role = "attached" if attached else "primary"
                yield pytest.param((params, form, attached), id=f"{name}-{form}-{role}")
        kinds.add(type(params))


@pytest.fixture(params=scenes())
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    params, form, attached = request.param
    made = Scene(tmp_path, params, form=form, attached=attached)
    yield made
    made.catalog.close()


def test_a_method_follows_its_collection(scene: Scene, rng: np.random.Generator) -> None:
    rows, queries = clustered(rng, ITEMS, QUERIES, dim=DIM)
    rows[:, 3:5] *= rng.random((ITEMS, 2)) < 0.5  # zeros, for rows of several lengths
    scene.put(0, rows[:150])
    scene.attach()
    scene.put(150, rows[150:])
    scene.stored.finish_background_work()
    check(scene, queries)

    scene.put(10, rows[10:40] * np.float32(1.5))  # an update
    scene.delete([f"i{n}" for n in range(50, 70)])
    check(scene, queries)
    scene.delete([f"i{n}" for n in range(80, 240)])  # the rows are numbered anew
    assert scene.stored.describe().rows == len(scene.model) == 60
    scene.put(300, rows[100:200])
    check(scene, queries)

    before = shown(scene, queries)
    scene.restart()
    assert [backend.name for backend in scene.stored.describe().backends][-1] == (
        scene.name or scene.params.kind
    )
    for again, result in zip(shown(scene, queries), before, strict=True):
        assert again == pytest.approx(result, abs=1e-5)
    check(scene, queries)


def shown(scene: Scene, queries: Floats) -> list[list[float]]:
    """Return the scores of all answers."""
    return [
        result.scores
        for rerank in RERANKS
        for result in scene.search(queries, SearchParams(limit=LIMIT, rerank=rerank))
    ]


def check(scene: Scene, queries: Floats) -> None:
    """Check what queries are answered, in every way of asking."""
    for rerank in RERANKS:
        check_ranking(scene, queries, rerank)
    check_recall(scene, queries)
    check_comparison(scene, queries)
    if scene.params.kind != "exact":  # an estimate of recall proves nothing
        least: Rerank = "none" if scene.params.kind == "gcws" else "gmm"
        with pytest.raises(InvalidParameter, match="guarantee: expected 'measured'") as caught:
            scene.search(queries, SearchParams(guarantee="proven", rerank=least))
        assert caught.value.loc == ("guarantee",)


def check_ranking(scene: Scene, queries: Floats, rerank: Rerank) -> None:
    """Scores are what they are said to be, fall, and respect the filter and the least score."""
    plain = SearchParams(limit=LIMIT, rerank=rerank)
    for label in (None, 1):
        for query, result in zip(queries, scene.search(queries, plain, label), strict=True):
            assert len(set(result.ids)) == len(result.ids) <= LIMIT
            ranked = [
                (-score, item_id) for item_id, score in zip(result.ids, result.scores, strict=True)
            ]
            assert ranked == sorted(ranked)
            for item_id, score in zip(result.ids, result.scores, strict=True):
                vector, its_label = scene.model[item_id]
                assert label in (None, its_label)
                check_score(scene.params, vector_of(query), vector, score, rerank)
    for query in queries[:3]:
        [free] = scene.search(query[None], plain)
        if not free.scores:
            continue
        least = float(np.clip(free.scores[len(free.scores) // 2], 0, 1))
        params = SearchParams(limit=LIMIT, rerank=rerank, min_score=least)
        [bound] = scene.search(query[None], params)
        assert all(score >= least for score in bound.scores)


def check_score(
    params: BackendParams, query: Vector, vector: Vector, score: float, rerank: Rerank
) -> None:
    if rerank == "gmm" or isinstance(params, ExactParams):
        assert score == pytest.approx(mathematics.gmm(query, vector), rel=1e-6)
        return
    own = own_kernel(params, query, vector)
    if rerank == "own":
        assert score == pytest.approx(own, rel=1e-4, abs=1e-6)
        return
    error = deviation(params, own)
    if error is not None:
        assert abs(score - own) < 6 * error  # the best of many, so beyond 4σ


def check_recall(scene: Scene, queries: Floats) -> None:
    """With all items as candidates, a scan of features, or of everything, misses nothing."""
    everything = SearchParams(limit=LIMIT, recall=1.0, candidates=LIMIT)
    some = SearchParams(limit=LIMIT, recall=0.9, candidates=1000)
    rows = np.zeros((len(scene.model), DIM), np.float32)
    for row, (vector, _) in zip(rows, scene.model.values(), strict=True):
        row[[*vector]] = [*vector.values()]
    truth = -np.sort(-all_scores(queries, rows, DIM), axis=1)
    for params in (everything, some):
        if params is some and scene.params.kind in HASHED:
            continue
        for true, result in zip(truth, scene.search(queries, params), strict=True):
            assert result.scores == pytest.approx(true[:LIMIT], rel=1e-6)


def check_comparison(scene: Scene, queries: Floats) -> None:
    found = scene.stored.compare(None, SearchParams(limit=LIMIT), sample=20, seed=3)
    assert len(found.backends) == (2 if scene.attached else 1)
    assert len(found.similarities) == 20
    assert np.all((found.similarities > 0) & (found.similarities < 1))
    names = {each.name: each for each in found.backends}
    ours = names[scene.name or scene.params.kind]
    assert ours.kind == scene.params.kind
    assert 0 < ours.recall <= 1
    assert 0 < ours.recall_own <= 1
    assert 0 < ours.latency_p50_seconds <= ours.latency_p95_seconds
    assert 0 < ours.candidates <= len(scene.model)
    if scene.attached:
        assert names["exact"].recall == names["exact"].recall_own == 1.0
    # Sparse rows have no tables before there is use for them, and so few have no postings.
    is_unhashed = scene.params.kind == "gcws" and scene.stored.config.form == "sparse"
    if scene.params.kind != "exact" and not is_unhashed:
        assert ours.bytes_per_item > 0


def equal_items(policies: Policies = POLICIES) -> MemoryCollection:
    """Return 60 equal items and 3 better ones, put in an order that is not that of their ids."""
    config = CollectionConfig(dim=3, backend=GcwsParams(bands=4))
    made = MemoryCollection(config, threads=1, policies=policies)
    rows = np.ones((63, 3), np.float32)
    rows[[5, 30, 62], 2] = 2
    ids = [str((7 * place) % 63) for place in range(63)]
    put_rows(made, ids, made.space.from_dense(rows), keys=range(63))
    return made


def test_a_batch_ranks_the_rows_that_all_of_its_queries_tie_with_once() -> None:
    """To rank 20,000 ids anew for each of 1,000 queries takes more than a minute."""
    count = 20_000
    made = MemoryCollection(CollectionConfig(dim=2), threads=1)
    ids = [f"i{(7 * place) % count:05}" for place in range(count)]
    put_rows(made, ids, made.space.from_dense(np.ones((count, 2), np.float32)), keys=range(count))
    queries = made.space.prepare(made.space.from_dense(np.ones((1_000, 2), np.float32)))
    found = made.search(made.view, queries, SearchParams(limit=2, recall=1.0))
    assert {tuple(one.ids) for one in found} == {("i00000", "i00001")}
    assert {tuple(one.scores) for one in found} == {(1.0, 1.0)}


@pytest.mark.parametrize("limit", [1, 3, 10, 62, 100])
def test_many_queries_answer_as_each_alone_where_all_items_tie(limit: int) -> None:
    equal, parted = equal_items(), equal_items(Policies(max_ties=4 * 63))
    queries = equal.space.prepare(
        equal.space.from_dense(np.array([[1, 1, 2], [1, 1, 1], [1, 0, 0]] * 7, np.float32))
    )
    params = SearchParams(limit=limit, recall=1.0)
    alone = [equal.search(equal.view, queries[i : i + 1], params)[0] for i in range(21)]
    together = parted.search(parted.view, queries, params)
    assert [(one.ids, one.scores) for one in together] == [(one.ids, one.scores) for one in alone]
    kept = max((len(rows) for rows, _ in together.found.wider.values()), default=0)
    assert kept <= limit
