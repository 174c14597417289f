"""Neighbours under GMM keep scikit-learn's promises, and are the true ones."""

import copy
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.exceptions import EfficiencyWarning
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.parallel import Parallel, delayed

from gcws_search.sklearn import GcwsFeatures, GmmKNeighborsTransformer, GmmNeighbors
from tests.support.forks import done_in_fork
from tests.support.index.small_index import all_scores
from tests.support.service.client import Json


@parametrize_with_checks([GmmNeighbors(), GmmKNeighborsTransformer()])  # type: ignore[untyped-decorator]
def test_scikit_learn_finds_no_fault(estimator: Json, check: Callable[[Json], None]) -> None:
    check(estimator)


@pytest.fixture
def rows(rng: np.random.Generator) -> Json:
    """Return 200 signed rows, one in ten entries zero."""
    made = rng.standard_normal((200, 12))
    made[rng.random(made.shape) < 0.1] = 0
    return made


def true_distances(rows: Json) -> Json:
    same = rows.astype(np.float32)
    return 1 - all_scores(same, same, rows.shape[1])


@pytest.mark.parametrize("made", [np.asarray, sparse.csr_matrix, sparse.csc_array])
def test_neighbours_are_those_of_all_distances(rows: Json, made: Json) -> None:
    finder = GmmNeighbors(n_neighbors=4, recall=1).fit(made(rows))
    truth = true_distances(rows)
    distances, indices = finder.kneighbors(made(rows[:50]))
    assert_array_equal(indices, np.argsort(truth[:50], axis=1, kind="stable")[:, :4])
    np.testing.assert_allclose(distances, np.sort(truth[:50], axis=1)[:, :4], atol=1e-6)
    np.fill_diagonal(truth, 2)
    assert_array_equal(
        finder.kneighbors(n_neighbors=3, return_distance=False),
        np.argsort(truth, axis=1, kind="stable")[:, :3],
    )


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_process_finds_what_its_parent_finds(rows: Json) -> None:
    finder, features = GmmNeighbors(n_jobs=2).fit(rows), GcwsFeatures(n_jobs=2).fit(rows)
    found, mapped = finder.kneighbors(rows)[1], features.transform(rows)
    assert done_in_fork(lambda: np.array_equal(finder.kneighbors(rows)[1], found)) == "True"
    assert done_in_fork(lambda: (features.transform(rows) != mapped).nnz) == "0"
    jobs = Parallel(n_jobs=2, backend="multiprocessing")
    parts = jobs(delayed(finder.kneighbors)(rows[at : at + 50]) for at in range(0, 200, 50))
    assert_array_equal(np.vstack([indices for _, indices in parts]), found)


def test_more_rows_are_found_by_the_graph(rng: np.random.Generator) -> None:
    centres = rng.standard_normal((40, 16))
    rows = np.repeat(centres, 100, axis=0) + 0.2 * rng.standard_normal((4000, 16))
    finder = GmmNeighbors(n_neighbors=10, recall=0.9).fit(rows)
    exact = GmmNeighbors(n_neighbors=10, recall=1).fit(rows)
    found, true = (each.kneighbors(rows[::20], return_distance=False) for each in (finder, exact))
    shared = [len({*a} & {*b}) for a, b in zip(found.tolist(), true.tolist(), strict=True)]
    assert np.mean(shared) >= 0.85 * 10


def test_rows_of_zeros_are_far_from_all(rows: Json) -> None:
    rows[[3, 7]] = 0
    finder = GmmNeighbors(n_neighbors=199, recall=1).fit(rows)
    distances, indices = finder.kneighbors()
    assert (distances[3] == 1).all()
    for row, found in enumerate(indices.tolist()):
        assert sorted([row, *found]) == [*range(200)]
    nothing = GmmNeighbors(n_neighbors=2).fit(np.zeros((3, 2)))
    assert nothing.kneighbors([[1, 1]], return_distance=False).tolist() == [[0, 1]]


def test_the_graph_of_a_transformer_has_one_entry_more(rows: Json) -> None:
    transformer = GmmKNeighborsTransformer(n_neighbors=4)
    graph = transformer.fit_transform(rows)
    assert graph.shape == (200, 200)
    assert_array_equal(np.diff(graph.indptr), 5)
    assert_array_equal(graph.indices[::5], np.arange(200))
    assert not graph.data[::5].any()
    assert (np.diff(graph.data.reshape(200, 5), axis=1) >= 0).all()
    assert_array_equal(transformer.transform(rows).toarray(), graph.toarray())
    connected = transformer.kneighbors_graph(rows[:3], mode="connectivity")
    assert connected.sum() == 12


def test_equal_rows_are_their_own_neighbours_first() -> None:
    graph = GmmKNeighborsTransformer(n_neighbors=2).fit_transform(np.ones((9, 3)))
    assert_array_equal(graph.indices[::3], np.arange(9))


def test_it_classifies_in_a_pipeline_without_a_warning() -> None:
    images, labels = load_digits(return_X_y=True)
    train, test = slice(0, 400), slice(400, 600)
    pipeline = make_pipeline(
        GmmKNeighborsTransformer(n_neighbors=5),
        KNeighborsClassifier(n_neighbors=5, metric="precomputed"),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", EfficiencyWarning)
        predicted = pipeline.fit(images[train], labels[train]).predict(images[test])
    slow = KNeighborsClassifier(n_neighbors=5, metric="precomputed")
    distances = true_distances(images[:600])
    slow.fit(distances[train, train], labels[train])
    assert_array_equal(predicted, slow.predict(distances[test, train]))
    search = GridSearchCV(pipeline, {"gmmkneighborstransformer__recall": [0.9, 1.0]}, cv=2)
    assert search.fit(images[:600], labels[:600]).best_score_ > 0.8


def test_a_copy_finds_the_same(rows: Json) -> None:
    finder = GmmNeighbors().fit(rows)
    again = copy.deepcopy(finder)
    assert_array_equal(again.kneighbors(rows)[1], finder.kneighbors(rows)[1])


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"n_neighbors": 0}, "n_neighbors"),
        ({"n_neighbors": 2.5}, "n_neighbors"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_parameters_are_named(rows: Json, params: dict[str, Json], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        GmmNeighbors(**params).fit(rows)


def test_more_neighbours_than_rows_are_refused(rows: Json) -> None:
    finder = GmmNeighbors(n_neighbors=200).fit(rows)
    assert finder.kneighbors(rows)[1].shape == (200, 200)
    with pytest.raises(ValueError, match="at most 199 rows, got 200"):
        finder.kneighbors()


@pytest.mark.parametrize("recall", [0.9, 1])
def test_rows_of_hardly_any_numbers_have_the_same_neighbours_sparse_and_dense(
    rng: np.random.Generator, recall: float
) -> None:
    """Most distances are 1 or tie otherwise, so indices may differ where distances do not."""
    rows = (rng.random((300, 500)) < 0.004) * rng.integers(1, 3, (300, 500))
    rows[np.arange(300), rng.integers(0, 500, 300)] = 1.0
    dense = GmmNeighbors(n_neighbors=15, recall=1).fit(rows.astype(float))
    kept = GmmNeighbors(n_neighbors=15, recall=recall).fit(sparse.csr_matrix(rows.astype(float)))
    for asked in (None, rows[:40].astype(float), sparse.csr_matrix(rows[:40].astype(float))):
        expected, _ = dense.kneighbors(asked)
        found, indices = kept.kneighbors(asked)
        assert np.allclose(found, expected, atol=1e-12)
        assert (indices >= 0).all()
