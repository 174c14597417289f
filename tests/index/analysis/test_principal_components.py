"""Kernel PCA beside that of scikit-learn."""

import numpy as np
import pytest
from sklearn.decomposition import KernelPCA

from gcws_search.index.collection.item_map import PrincipalComponents
from gcws_search.index.contracts.arrays import Float64s


def kernel(a: Float64s, b: Float64s) -> Float64s:
    return np.asarray(np.exp(-np.square(a[:, None] - b[None]).sum(axis=2)))


@pytest.mark.parametrize("landmarks", [5, 40])
def test_places_are_those_of_scikit_learn_up_to_a_sign(
    rng: np.random.Generator, landmarks: int
) -> None:
    known, others = rng.standard_normal((landmarks, 3)), rng.standard_normal((60, 3))
    own, beside = kernel(known, known), kernel(others, known)
    peer = KernelPCA(2, kernel="precomputed", eigen_solver="dense").fit(own)
    axes = PrincipalComponents.of(own, 2)
    for found, expected in (
        (axes.places(own), peer.transform(own)),
        (axes.places(beside), peer.transform(beside)),
    ):
        signs = np.sign((found * expected).sum(axis=0))
        np.testing.assert_allclose(found, expected * signs, atol=1e-9)


def test_the_places_of_landmarks_have_the_variance_of_the_eigenvalues(
    rng: np.random.Generator,
) -> None:
    own = kernel(*[rng.standard_normal((30, 3))] * 2)
    places = PrincipalComponents.of(own, 2).places(own)
    middle = np.eye(30) - 1 / 30
    eigenvalues = np.linalg.eigvalsh(middle @ own @ middle)[::-1]
    np.testing.assert_allclose(places.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(places.T @ places, np.diag(eigenvalues[:2]), atol=1e-9)


@pytest.mark.parametrize("landmarks", [1, 2, 6])
def test_equal_landmarks_have_no_axes(landmarks: int) -> None:
    own = np.ones((landmarks, landmarks))
    axes = PrincipalComponents.of(own, 2)
    assert axes.places(np.array([[1.0] * landmarks, [0.25] * landmarks])).tolist() == [[0, 0]] * 2


def test_two_landmarks_have_one_axis() -> None:
    places = PrincipalComponents.of(np.array([[1.0, 0.2], [0.2, 1.0]]), 2).places(np.eye(2) + 0.0)
    assert places[:, 1].tolist() == [0, 0]
    assert places[0, 0] == -places[1, 0] != 0


def test_an_axis_has_the_same_sign_for_the_same_landmarks(rng: np.random.Generator) -> None:
    own = kernel(*[rng.standard_normal((20, 3))] * 2)
    weights = PrincipalComponents.of(own, 2).weights
    assert (weights[np.abs(weights).argmax(axis=0), [0, 1]] > 0).all()
