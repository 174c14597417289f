"""Weights that a collection learns: its answers, its file, and what others do meanwhile."""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from scipy import sparse
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import MaxAbsScaler, RobustScaler, StandardScaler

from gcws_search import index as ix
from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.collection.fit import Reencoding
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.contracts.errors import DiskFull, InvalidParameter
from gcws_search.index.storage.store import Store
from tests.support.data.adapters import raw_of
from tests.support.index.items import opened_catalog
from tests.support.index.policies import FEW_ROWS
from tests.support.index.saved_graph import copied, read_file
from tests.support.pausing import paused_at
from tests.support.reference.kernels import gmm_of_rows

Rows = np.ndarray
Model = Mapping[str, Rows]
"""Vectors by id, as they were sent."""

IN_BACKGROUND: Final = replace(FEW_ROWS, max_foreground_rows=0)
SCALERS: Final[Mapping[ix.WeightKind, Callable[[], Any]]] = {
    "standard": StandardScaler,
    "robust": RobustScaler,
    "max": MaxAbsScaler,
    "idf": lambda: TfidfTransformer(norm=None, smooth_idf=True),
}
SPARSE: Final[Mapping[ix.WeightKind, Callable[[], Any]]] = {
    "standard": lambda: StandardScaler(with_mean=False),
    "max": MaxAbsScaler,
    "idf": SCALERS["idf"],
}
DIM: Final = 6


def rows_of(rng: np.random.Generator, count: int, dim: int | None = DIM) -> Rows:
    """Return rows whose columns differ in unit; sparse ones have few coordinates."""
    rows = rng.normal(1, 1, (count, 40 if dim is None else dim))
    rows *= 10.0 ** rng.integers(-2, 3, rows.shape[1])
    rows[:, 1:] *= rng.random(rows[:, 1:].shape) < (0.2 if dim is None else 0.9)
    return np.asarray(rows, np.float32)


def put(stored: ix.StoredCollection, items: Model) -> None:
    stored.put(batch(stored, items))


def batch(stored: ix.StoredCollection, items: Model) -> ix.ItemBatch:
    payloads: list[bytes | None] = [b'{"first":%d}' % ord(each[0]) for each in items]
    return ix.ItemBatch([*items], raw_of(stored.space, np.stack([*items.values()])), payloads)


def named(rows: Rows, first: str = "i") -> dict[str, Rows]:
    return {f"{first}{number}": row for number, row in enumerate(rows)}


def weighted(scaler: Any, learned: Rows, rows: Rows) -> Rows:  # noqa: ANN401
    """Return rows under a scaler of scikit-learn that learned from others."""
    found = scaler.fit(learned.astype(np.float64)).transform(rows.astype(np.float64))
    return np.asarray(found.toarray() if sparse.issparse(found) else found)


def check_answers(
    stored: ix.StoredCollection, items: Model, queries: Rows, weigh: Callable[[Rows], Rows]
) -> None:
    """Check that queries find what a scan over the weighted vectors finds, and vectors as sent."""
    rows = weigh(np.stack([*items.values()]))
    params = ix.SearchParams(limit=10, recall=1.0)
    found = stored.search(raw_of(stored.space, queries), params)
    assert len(stored) == len(items)
    for query, result in zip(weigh(queries), found, strict=True):
        scores = gmm_of_rows(np.tile(query, (len(rows), 1)), rows)
        known = dict(zip(items, scores, strict=True))
        best = sorted(scores, reverse=True)[:10]
        np.testing.assert_allclose(result.scores, best, rtol=1e-6, atol=1e-9)
        mine = [known[item_id] for item_id in result.ids]
        np.testing.assert_allclose(mine, best, rtol=1e-6, atol=1e-9)
    shown = stored.page(limit=len(items), with_vector=True).items
    assert {each.id for each in shown} == items.keys()
    for each in shown:
        if isinstance(each.vector, list):
            assert np.array_equal(np.array(each.vector, np.float32), items[each.id])
        else:
            assert each.vector is not None
            indices, values = each.vector["indices"], each.vector["values"]
            assert np.array_equal(np.array(values, np.float32), items[each.id][indices])


@pytest.fixture
def policies() -> ix.Policies:
    return FEW_ROWS


def made(
    catalog: Catalog,
    dim: int | None = DIM,
    weights: Any = None,  # noqa: ANN401
    **more: Any,  # noqa: ANN401
) -> ix.StoredCollection:
    config = ix.CollectionConfig(dim=dim, transform=ix.Transform(weights=weights), **more)
    return catalog.create("things", config)[0]


@pytest.mark.parametrize(
    ("dim", "kind"), [*((DIM, kind) for kind in SCALERS), *((None, kind) for kind in SPARSE)]
)
def test_answers_are_those_of_a_scan_over_scaled_vectors_and_stay_so(
    catalog: Catalog, tmp_path: Path, rng: np.random.Generator, dim: int | None, kind: ix.WeightKind
) -> None:
    stored = made(catalog, dim, kind)
    rows, queries = rows_of(rng, 300, dim), rows_of(rng, 8, dim)
    items = named(rows)
    put(stored, items)
    check_answers(stored, items, queries, lambda each: each.astype(float))  # weights are 1
    told = stored.describe().weights
    assert told is not None
    assert (told.kind, told.version, told.learned) == (kind, 0, None)
    scaler = (SPARSE if dim is None else SCALERS)[kind]()

    def weigh(each: Rows) -> Rows:
        return weighted(scaler, rows, each)

    told = stored.fit()
    assert (told.kind, told.version, told.items) == (kind, 1, 300)
    assert stored.describe().weights == told
    check_answers(stored, items, queries, weigh)
    later = named(rows_of(rng, 50, dim), "later")
    put(stored, later)
    check_answers(stored, items | later, queries, weigh)
    assert stored.store.identity.algorithm_version == ix.ALGORITHM_VERSION
    catalog.close()
    assert [report.findings for report in ix.check_directory(tmp_path)] == [[]]
    for _ in range(2):
        with closing(opened_catalog(tmp_path, FEW_ROWS)) as again:
            assert again.get("things").describe().weights == told
            check_answers(again.get("things"), items | later, queries, weigh)
        assert [report.findings for report in ix.check_directory(tmp_path)] == [[]]


def test_weights_are_learned_anew_and_given_by_hand(
    catalog: Catalog, rng: np.random.Generator
) -> None:
    stored = made(catalog)
    first, more, queries = rows_of(rng, 100), 5 * rows_of(rng, 100), rows_of(rng, 5)
    items = named(first)
    put(stored, items)
    with pytest.raises(InvalidParameter) as refused:
        stored.fit()
    assert refused.value.loc == ("weights",)
    stored.fit("standard")
    items |= named(more, "m")
    put(stored, items)
    check_answers(stored, items, queries, lambda each: weighted(StandardScaler(), first, each))
    rows = np.stack([*items.values()])
    assert stored.fit().version == 2
    check_answers(stored, items, queries, lambda each: weighted(StandardScaler(), rows, each))
    numbers = (1.0, 2.0, 3.0, 0.5, 10.0, 1.0)
    assert stored.fit(numbers).kind == "list"
    assert stored.config.transform.weights == numbers
    check_answers(stored, items, queries, lambda each: each.astype(float) * numbers)
    assert stored.fit("max").version == 4
    check_answers(stored, items, queries, lambda each: weighted(MaxAbsScaler(), rows, each))


@pytest.mark.parametrize("policies", [FEW_ROWS, IN_BACKGROUND], ids=["writes", "background"])
@pytest.mark.parametrize("done", [False, True], ids=["while encoding", "before the change"])
@pytest.mark.parametrize("before", [None, "max"], ids=["plain", "weighted"])
def test_writes_of_meanwhile_are_kept_and_under_the_new_weights(
    catalog: Catalog,
    tmp_path: Path,
    rng: np.random.Generator,
    policies: ix.Policies,
    done: bool,
    before: ix.WeightKind | None,
) -> None:
    """A write prepared before the change and committed after it is encoded once more."""
    stored = made(catalog)
    items = named(rows_of(rng, 200))
    put(stored, items)
    stored.finish_background_work()
    if before is not None:
        stored.fit(before)
    rows, queries = np.stack([*items.values()]), rows_of(rng, 5)
    late = named(rows_of(rng, 3), "late")
    prepared = stored.prepare(batch(stored, late))
    with paused_at(Reencoding, "catch_up_soon", lambda: stored.fit("robust"), done=done) as fit:
        for turn in range(3):
            changed = {f"i{n}": row for n, row in enumerate(rows_of(rng, 40))}
            items |= changed | (new := named(rows_of(rng, 60), f"n{turn}-"))
            put(stored, changed)
            put(stored, new)
            gone = [f"i{n}" for n in range(100 + 20 * turn, 120 + 20 * turn)]
            assert stored.delete(gone) == 20
            for item_id in gone:
                del items[item_id]
        change = ix.PayloadChange(b'{"seen":1}', True)
        stored.change_payloads(change, ["i5", "i190", "n0-1"])
        stored.change_payloads(change, ["i190"])
        if done:
            stored.memory.compact()  # the rows that it leaves have their payloads from the start
        assert fit.is_under_way
    assert fit.error is None
    stored.commit(prepared)
    items |= late

    def weigh(each: Rows) -> Rows:
        return weighted(RobustScaler(), rows, each)

    seen = ix.parse_filter({"must": [{"key": "seen", "match": {"value": 1}}]})
    assert stored.count(seen) == 3
    versions = {"i5": 5, "i39": 4, "i40": 1, "i190": 3, "n0-1": 2, "n0-2": 1}
    assert {each: stored.get(each).version for each in versions} == versions
    check_answers(stored, items, queries, weigh)
    killed = copied(tmp_path, tmp_path / "copy", "things.sqlite")
    with closing(opened_catalog(killed, policies)) as again:
        check_answers(again.get("things"), items, queries, weigh)
        assert again.get("things").count(seen) == 3
        assert {each: again.get("things").get(each).version for each in versions} == versions
    stored.finish_background_work()
    check_answers(stored, items, queries, weigh)
    catalog.close()
    assert [report.findings for report in ix.check_directory(tmp_path)] == [[]]


@pytest.mark.parametrize("changes", [0, 1, 3])
def test_versions_are_those_that_writes_made(
    catalog: Catalog, rng: np.random.Generator, changes: int
) -> None:
    stored = made(catalog)
    items = named(rows_of(rng, 50))
    put(stored, items)
    put(stored, {"i7": items["i7"]})
    with paused_at(Reencoding, "catch_up_soon", lambda: stored.fit("max")) as fit:
        for number in range(changes):
            stored.change_payloads(ix.PayloadChange(b'{"n":%d}' % number, True), ["i7"])
    assert fit.error is None
    assert [stored.get(each).version for each in ("i7", "i8")] == [2 + changes, 1]


@pytest.mark.parametrize("before", [None, "max"], ids=["plain", "weighted"])
def test_items_deleted_while_others_are_encoded_are_left_out(
    catalog: Catalog, rng: np.random.Generator, before: ix.WeightKind | None
) -> None:
    stored = made(catalog)
    items, queries = named(rows_of(rng, 60)), rows_of(rng, 3)
    put(stored, items)
    if before is not None:
        stored.fit(before)
    rows = np.stack([*items.values()])
    with paused_at(MemoryCollection, "load", lambda: stored.fit("standard")) as fit:
        gone = [f"i{number}" for number in range(0, 60, 4)]
        assert stored.delete(gone) == len(gone)
    assert fit.error is None
    left = {each: row for each, row in items.items() if each not in gone}
    check_answers(stored, left, queries, lambda each: weighted(StandardScaler(), rows, each))


def test_a_kill_at_the_change_leaves_nothing_that_belongs_to_other_weights(
    catalog: Catalog, tmp_path: Path, rng: np.random.Generator
) -> None:
    """Neither the graph nor landmarks: the next start makes both anew."""
    stored = made(catalog)
    items, queries = named(rows_of(rng, 300)), rows_of(rng, 3)
    put(stored, items)
    stored.attach(ix.NystroemParams(kind="gmm_nystroem", landmarks=20))
    stored.finish_background_work()
    stored.checkpoints.bring_up_to_date()
    before = copied(tmp_path, tmp_path / "before", "things.sqlite")
    assert _kept(before) != [0, 0, 0]
    with paused_at(MemoryCollection, "take_over", lambda: stored.fit("standard")):
        killed = copied(tmp_path, tmp_path / "killed", "things.sqlite")
        assert _kept(killed) == [0, 0, 0]
    rows = np.stack([*items.values()])
    for folder in (tmp_path / "killed", tmp_path / "before"):
        with closing(opened_catalog(folder, FEW_ROWS)) as again:
            weights = again.get("things").describe().weights
            assert (weights is None) == (folder.name == "before")
            if weights is not None:
                check_answers(
                    again.get("things"),
                    items,
                    queries,
                    lambda each: weighted(StandardScaler(), rows, each),
                )


def _kept(directory: Path) -> list[int]:
    """Return how many parts of links, notes of the graph and notes of backends a file has."""
    sums = (
        "SELECT count(*) FROM links",
        "SELECT count(*) FROM meta WHERE name = 'notes'",
        "SELECT count(notes) FROM backends",
    )
    return [read_file(directory, each)[0][0] for each in sums]


def test_queries_of_meanwhile_are_answered_under_the_weights_of_before(
    catalog: Catalog, rng: np.random.Generator
) -> None:
    stored = made(catalog, weights="standard")
    items, queries = named(rows_of(rng, 100)), rows_of(rng, 5)
    put(stored, items)
    rows = np.stack([*items.values()])
    with paused_at(Reencoding, "catch_up_soon", stored.fit):
        check_answers(stored, items, queries, lambda each: each.astype(float))
    check_answers(stored, items, queries, lambda each: weighted(StandardScaler(), rows, each))


def test_comparison_backends_keep_their_order(catalog: Catalog, rng: np.random.Generator) -> None:
    stored = made(catalog)
    put(stored, named(rows_of(rng, 20)))
    names = [f"exact-{number}" for number in range(8)]
    for name in names:
        stored.attach(ix.ExactParams(), name)
    stored.fit("standard")
    assert [each.name for each in stored.describe().backends[1:]] == names


def test_comparison_backends_follow(
    catalog: Catalog, tmp_path: Path, rng: np.random.Generator
) -> None:
    """They answer as those of a collection that was given the weighted vectors do."""
    kinds: list[ix.BackendParams] = [
        ix.FourierParams(kind="nrff", features=64),
        ix.RandomBinningParams(bands=4),
        ix.NystroemParams(kind="gmm_nystroem", landmarks=20),
    ]
    stored = made(catalog)
    rows, queries = rows_of(rng, 120), rows_of(rng, 5)
    put(stored, named(rows))
    for params in kinds:
        stored.attach(params)
    stored.fit("standard")
    config = ix.CollectionConfig(dim=DIM)
    other = catalog.create("other", config)[0]
    put(other, named(weighted(StandardScaler(), rows, rows).astype(np.float32)))
    asked = weighted(StandardScaler(), rows, queries).astype(np.float32)
    for params in kinds:
        other.attach(params)
        own = ix.SearchParams(limit=5, rerank="none")
        mine = stored.search(raw_of(stored.space, queries), own, backend=params.kind)
        theirs = other.search(raw_of(other.space, asked), own, backend=params.kind)
        for one, two in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(one.scores, two.scores, rtol=1e-4, atol=1e-5)
    killed = copied(tmp_path, tmp_path / "copy", "things.sqlite")
    with closing(opened_catalog(killed, FEW_ROWS)) as again:
        names = [each.name for each in again.get("things").describe().backends]
        assert names == ["gcws", *(params.kind for params in kinds)]


@pytest.mark.parametrize("storage", ["memory", "mapped"])
def test_mapped_vectors_are_weighted_too(
    catalog: Catalog, rng: np.random.Generator, storage: ix.Storage
) -> None:
    stored = made(catalog, storage=storage)
    items, queries = named(rows_of(rng, 150)), rows_of(rng, 3)
    put(stored, items)
    stored.fit("max")
    rows = np.stack([*items.values()])
    check_answers(stored, items, queries, lambda each: weighted(MaxAbsScaler(), rows, each))


def test_weights_that_leave_nothing_of_an_item_are_refused_with_its_id(catalog: Catalog) -> None:
    stored = made(catalog, 1)
    items = {each: np.array([x], np.float32) for each, x in (("a", 1), ("mean", 2), ("c", 3))}
    put(stored, items)
    with pytest.raises(InvalidParameter, match="'mean'"):
        stored.fit("standard")
    assert stored.describe().weights is None
    check_answers(stored, items, np.array([[2]], np.float32), lambda each: each.astype(float))
    assert stored.fit("max").version == 1


def test_nothing_changes_where_the_disk_is_full(
    catalog: Catalog, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = made(catalog, weights="max")
    items, queries = named(rows_of(rng, 100)), rows_of(rng, 3)
    put(stored, items)
    rows = np.stack([*items.values()])

    def refuse(*_: object) -> None:
        raise DiskFull("things")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "replace_weights", refuse)
        with pytest.raises(DiskFull):
            stored.fit()
    check_answers(stored, items, queries, lambda each: each.astype(float))
    assert stored.fit().version == 1
    check_answers(stored, items, queries, lambda each: weighted(MaxAbsScaler(), rows, each))


def test_an_empty_collection_has_nothing_to_learn_from(catalog: Catalog) -> None:
    stored = made(catalog, weights="idf")
    with pytest.raises(InvalidParameter) as refused:
        stored.fit()
    assert refused.value.loc == ("weights",)
    assert stored.fit((1.0,) * DIM).version == 1
