"""Transformers and neighbours keep the promises of scikit-learn, and estimate their kernels."""

import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import EfficiencyWarning
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.parallel import Parallel, delayed

from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.sklearn import (
    FoldedRffFeatures,
    GcwsFeatures,
    GmmKNeighborsTransformer,
    GmmNeighbors,
    GmmNystroem,
    NrffFeatures,
    RandomBinningFeatures,
    RbfNystroem,
    RffFeatures,
)
from tests.support.data.generated import Floats
from tests.support.forks import done_in_fork
from tests.support.index.small_index import all_scores
from tests.support.reference import fourier as theory
from tests.support.service.client import Json
from tests.support.statistics import SIGMAS

EVERY = [
    GcwsFeatures(samples=64, bits=4),
    RffFeatures(features=50),
    NrffFeatures(features=50),
    FoldedRffFeatures(features=50),
    RandomBinningFeatures(samples=32, bits=6, scale=50.0),
    GmmNystroem(landmarks=20),
    RbfNystroem(landmarks=20),
]
every_maker = pytest.mark.parametrize("maker", EVERY, ids=lambda maker: type(maker).__name__)
Maker = Any  # scikit-learn is untyped
Output = Any  # an array or a sparse matrix
Doubles = npt.NDArray[np.float64]


# Of a class and those derived from it, which change what is estimated alone, the first.
@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        *(each for each in EVERY if type(each).__base__ not in {*map(type, EVERY)}),
        GmmNeighbors(),
        GmmKNeighborsTransformer(),
    ]
)
def test_scikit_learn_finds_no_fault(estimator: Maker, check: Callable[[Maker], None]) -> None:
    check(estimator)


def signed(rng: np.random.Generator, n: int, dim: int = 12) -> Doubles:
    rows = rng.standard_normal((n, dim))
    rows[rng.random((n, dim)) < 0.3] = 0.0
    return rows


def plain(features: Output) -> Floats:
    return np.asarray(features.toarray() if sparse.issparse(features) else features)


def products(maker: Maker, rows: Doubles) -> Doubles:
    made = plain(maker.fit_transform(rows)).astype(np.float64)
    return np.asarray(made @ made.T)


def cosines(rows: Doubles) -> Doubles:
    unit = rows / np.sqrt((rows**2).sum(axis=1, keepdims=True))
    return np.asarray(unit @ unit.T)


@every_maker
def test_entries_given_twice_are_summed_before_rows_of_zeros_are_known(maker: Maker) -> None:
    numbers = np.array([1.0, -1, 2, 3, 1, 1])
    rows = sparse.csr_matrix((numbers, [0, 0, 1, 2, 2, 0], [0, 2, 4, 6]), shape=(3, 3))
    expected = plain(clone(maker).fit_transform(rows.toarray()))
    np.testing.assert_allclose(plain(clone(maker).fit_transform(rows)), expected, atol=1e-6)
    assert np.array_equal(rows.data, numbers)  # those of the caller


@every_maker
@pytest.mark.parametrize("dim", [12, 5000])
def test_dense_and_sparse_rows_have_the_same_features(
    rng: np.random.Generator, maker: Maker, dim: int
) -> None:
    rows = np.zeros((40, dim))
    rows[:, rng.permutation(dim)[:12]] = signed(rng, 40)
    rows[7] = 0.0
    expected = plain(clone(maker).fit_transform(rows))
    assert expected.dtype == np.float32
    for made in (sparse.csr_matrix, sparse.csr_array, sparse.csc_array):
        found = clone(maker).fit_transform(made(rows))
        assert sparse.issparse(found) == sparse.issparse(clone(maker).fit_transform(rows))
        np.testing.assert_allclose(plain(found), expected, atol=1e-6)
    some = clone(maker).set_params(n_jobs=2).fit(rows)
    np.testing.assert_allclose(plain(some.transform(rows[3:9])), expected[3:9], atol=1e-6)


@pytest.mark.parametrize("threads", [1, -1])
def test_many_rows_are_mapped_as_few_are(rng: np.random.Generator, threads: int) -> None:
    rows = signed(rng, 2500)
    fitted = RffFeatures(features=50, n_jobs=threads).fit(rows)
    parts = [fitted.transform(rows[first : first + 100]) for first in range(0, 2500, 100)]
    np.testing.assert_allclose(fitted.transform(rows), np.concatenate(parts), atol=1e-6)


@every_maker
def test_a_row_of_zeros_has_features(rng: np.random.Generator, maker: Maker) -> None:
    rows = signed(rng, 30)
    rows[[0, 4, 29]] = 0.0
    made = plain(maker.fit_transform(rows))
    if isinstance(maker, RandomBinningFeatures):  # a point like others
        assert (made.sum(axis=1) == 32).all()
        assert (made[0] == made[4]).all()
    else:
        assert not made[[0, 4, 29]].any()
        assert (np.abs(made).sum(axis=1) > 0).sum() == 27


@pytest.mark.parametrize(
    ("maker", "word"),
    [
        (RffFeatures(gamma=0.0), "gamma"),
        (NrffFeatures(features=0), "features"),
        (RbfNystroem(gamma=-1.0), "gamma"),
        (GmmNystroem(landmarks=5000), "landmarks"),
        (GcwsFeatures(bits=17), "bits"),
        (GcwsFeatures(samples=0), "samples"),
        (RandomBinningFeatures(shape=-1.0), "shape"),
        (RandomBinningFeatures(distribution="cauchy"), "distribution"),  # type: ignore[arg-type]
        (RffFeatures(n_jobs=-2), "n_jobs"),
        (RffFeatures(n_jobs=0), "n_jobs"),
        (GcwsFeatures(n_jobs=1.5), "n_jobs"),  # type: ignore[arg-type]
        (RffFeatures(features=16.5), "features"),  # type: ignore[arg-type]
        (NrffFeatures(features=True), "features"),
        (GmmNystroem(landmarks=None), "landmarks"),  # type: ignore[arg-type]
        (GcwsFeatures(seed=None), "seed"),  # type: ignore[arg-type]
        (RbfNystroem(gamma="scale"), "gamma"),  # type: ignore[arg-type]
        (RandomBinningFeatures(scale="auto"), "scale"),  # type: ignore[arg-type]
        (GmmNeighbors(n_neighbors=0), "n_neighbors"),
        (GmmNeighbors(n_neighbors=2.5), "n_neighbors"),  # type: ignore[arg-type]
        (GmmNeighbors(n_jobs=0), "n_jobs"),
        (GmmNeighbors(seed=-1), "seed"),
        (GmmNeighbors(seed=1.5), "seed"),  # type: ignore[arg-type]
        (GmmNeighbors(recall="all"), "recall"),  # type: ignore[arg-type]
        (GmmNeighbors(recall=2.0), "recall"),
        (GcwsFeatures(samples=True), "samples"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_bad_parameter_is_named_when_fitted(
    rng: np.random.Generator, maker: Maker, word: str
) -> None:
    with pytest.raises(ValueError, match=f"{word}: expected"):
        maker.fit(signed(rng, 10))


def test_parameters_are_numbers_of_numpy_too(rng: np.random.Generator) -> None:
    rows, eight = signed(rng, 20), np.uint8(8)
    assert np.array_equal(
        RbfNystroem(landmarks=eight, gamma=np.float32(0.5), seed=eight).fit_transform(rows),  # type: ignore[arg-type]
        RbfNystroem(landmarks=8, gamma=0.5, seed=8).fit_transform(rows),
    )
    assert np.array_equal(
        RffFeatures(features=eight, gamma=eight).fit_transform(rows),  # type: ignore[arg-type]
        RffFeatures(features=8, gamma=8).fit_transform(rows),
    )


def test_what_float32_cannot_hold_is_an_error(rng: np.random.Generator) -> None:
    rows = signed(rng, 10)
    fitted = RffFeatures().fit(rows)
    rows[3, 2] = 1e300
    with pytest.raises(ValueError, match="finite float32"):
        fitted.transform(rows)


def test_landmarks_need_a_row_that_is_not_zero() -> None:
    with pytest.raises(ValueError, match="not all zeros"):
        GmmNystroem().fit(np.zeros((3, 2)))


# --- what is estimated -------------------------------------------------------------------------


def test_fourier_features_estimate_their_kernels(rng: np.random.Generator) -> None:
    rows, k, gamma = signed(rng, 12), 8192, 1.5
    rho = cosines(rows)
    for maker, kernel, variance in (
        (RffFeatures, theory.rbf, theory.rff_variance),
        (NrffFeatures, theory.rbf, theory.nrff_variance),
        (FoldedRffFeatures, theory.folded_rbf, theory.folded_variance),
    ):
        found = products(maker(features=k, gamma=gamma, seed=2), rows)
        for i, j in zip(*np.triu_indices(12, 1), strict=True):
            # 66 pairs a kernel: 5 sigma, and the bias of a ratio.
            error = 5 * np.sqrt(variance(rho[i, j], gamma) / k) + 1 / k
            assert abs(found[i, j] - kernel(rho[i, j], gamma)) <= error


@pytest.mark.parametrize(("bits", "negative"), [(6, True), (6, False), (1, False)])
def test_gcws_features_estimate_gmm(rng: np.random.Generator, bits: int, negative: bool) -> None:
    k = 4096
    rows = signed(rng, 8, dim=200)
    rows = rows if negative else np.abs(rows)
    rows /= np.abs(rows).sum(axis=1, keepdims=True)
    rows[1] = rows[0] * 0.7 + rows[1] * 0.3
    gmm = all_scores(rows.astype(np.float32), rows.astype(np.float32), 200)
    made = GcwsFeatures(samples=k, bits=bits).fit_transform(rows)
    assert made.shape == (8, k << bits)
    assert (np.diff(made.indptr) == k).all()
    assert made.has_sorted_indices
    found = (made @ made.T).toarray() / k
    expected = gmm + (1 - gmm) * 2.0**-bits
    # Codes drop t*, which adds less than 0.01 for vectors of one norm and many slots.
    error = SIGMAS * np.sqrt(expected * (1 - expected) / k) + 0.01
    assert (np.abs(found - expected) <= error + 1e-6).all()


def test_random_bins_estimate_the_laplace_kernel(rng: np.random.Generator) -> None:
    k, bits, scale = 4096, 12, 10.0
    rows = signed(rng, 8)
    rows[3] = 0.0
    made = RandomBinningFeatures(samples=k, bits=bits, scale=scale).fit_transform(rows)
    distances = np.abs(rows[:, None] - rows).sum(axis=2)
    kernel = np.exp(-distances * 2.0 / scale)  # Gamma(2, scale/2)
    expected = kernel + (1 - kernel) * 2.0**-bits
    error = SIGMAS * np.sqrt(expected * (1 - expected) / k)
    assert (np.abs((made @ made.T).toarray() / k - expected) <= error + 1e-6).all()


def test_nystroem_features_are_exact_between_landmarks(rng: np.random.Generator) -> None:
    rows = signed(rng, 30)
    gmm = all_scores(rows.astype(np.float32), rows.astype(np.float32), 12)
    np.testing.assert_allclose(products(GmmNystroem(landmarks=30), rows), gmm, atol=1e-6)
    rbf = np.exp(-0.7 * (1 - cosines(rows)))
    made = products(RbfNystroem(landmarks=4000, gamma=0.7), rows)
    np.testing.assert_allclose(made, rbf, atol=1e-6)


# --- among others ------------------------------------------------------------------------------


@every_maker
def test_a_grid_search_over_a_pipeline_learns(rng: np.random.Generator, maker: Maker) -> None:
    rows = np.abs(rng.standard_normal((120, 6))) + 0.1
    labels = rng.integers(0, 2, 120)
    rows[labels == 1, :3] *= 6.0
    model = make_pipeline(clone(maker), LinearSVC(max_iter=5000))
    step = type(maker).__name__.lower()
    search = GridSearchCV(model, {f"{step}__seed": [0, 1]}, cv=3)
    search.fit(rows[:90], labels[:90])
    assert search.score(rows[90:], labels[90:]) > 0.8


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


def test_neighbours_are_searched_at_the_recall_asked_for(rows: Json) -> None:
    finder = GmmNeighbors(recall=0.7).fit(rows)
    with (
        mock.patch.object(MemoryCollection, "search", side_effect=KeyError) as search,
        pytest.raises(KeyError),
    ):
        finder.kneighbors(rows[:3])
    assert search.call_args.args[2].recall == 0.7


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
