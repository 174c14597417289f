"""Transformers keep scikit-learn's promises, and estimate their kernels."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from gcws_search.sklearn import (
    FoldedRffFeatures,
    GcwsFeatures,
    GmmNystroem,
    NrffFeatures,
    RandomBinningFeatures,
    RbfNystroem,
    RffFeatures,
)
from tests.support.data.generated import Floats
from tests.support.index.small_index import all_scores
from tests.support.reference import fourier as theory
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


@parametrize_with_checks(EVERY)  # type: ignore[untyped-decorator]
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


@every_maker
def test_many_rows_are_mapped_as_few_are_on_any_threads(
    rng: np.random.Generator, maker: Maker
) -> None:
    rows = signed(rng, 2500)
    fitted = clone(maker).fit(rows)
    together = fitted.transform(rows)
    parts = [plain(fitted.transform(rows[first : first + 100])) for first in range(0, 2500, 100)]
    np.testing.assert_allclose(plain(together), np.concatenate(parts), atol=1e-6)
    threaded = clone(maker).set_params(n_jobs=-1).fit(rows).transform(rows)
    np.testing.assert_allclose(plain(threaded), plain(together), atol=1e-6)


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


@every_maker
def test_columns_have_names(rng: np.random.Generator, maker: Maker) -> None:
    fitted = clone(maker).fit(signed(rng, 30))
    called = fitted.get_feature_names_out()
    assert len(set(called)) == fitted.transform(signed(rng, 2)).shape[1]
    assert called[0] == type(maker).__name__.lower() + "0"


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
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_bad_parameter_is_named_when_fitted(
    rng: np.random.Generator, maker: Maker, word: str
) -> None:
    with pytest.raises(ValueError, match=f"{word}: expected"):
        maker.fit(signed(rng, 10))


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
