"""Nyström features: right for landmarks, a projection for all else, alike dense and sparse."""

from functools import partial

import numpy as np
import numpy.typing as npt
import orjson
import pytest

from gcws_search.index.comparison.features import NystroemMap, map_rows
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.parameters import NystroemKind, NystroemParams
from gcws_search.index.threads import Workers
from tests.support.data.adapters import LARGE_DIM, batch_of, csr_of, dense_of, signed_rows, space_of
from tests.support.data.generated import Floats, mappings
from tests.support.reference import kernels, mathematics

KINDS: tuple[NystroemKind, ...] = ("gmm_nystroem", "rbf_nystroem")
DIM = 30
Row = dict[int, float]
Doubles = npt.NDArray[np.float64]


def params_of(kind: NystroemKind, gamma: float = 1.5) -> NystroemParams:
    return NystroemParams(kind=kind, gamma=gamma)


def features_of(own_map: NystroemMap, batch: VectorBatch) -> Floats:
    return map_rows(own_map, batch)[:, : own_map.width]


def rows_of(rng: np.random.Generator, n: int) -> list[Row]:
    return mappings(rng, n, DIM, 0.4)


def exact(kind: NystroemKind, batch: VectorBatch, gamma: float = 1.5) -> Doubles:
    rbf = partial(kernels.kernel, "rbf", gamma=gamma)
    value, rows = (mathematics.gmm if kind == "gmm_nystroem" else rbf), signed_rows(batch)
    return np.array([[value(u, v) for v in rows] for u in rows])


def products(features: npt.NDArray[np.float32]) -> Doubles:
    double = features.astype(np.float64)
    return np.asarray(double @ double.T)


@pytest.mark.parametrize("dim", [DIM, LARGE_DIM, None])
@pytest.mark.parametrize("kind", KINDS)
def test_products_are_exact_when_all_rows_are_landmarks(
    rng: np.random.Generator, kind: NystroemKind, dim: int | None
) -> None:
    batch = batch_of(csr_of(rows_of(rng, 60)), dim)
    made = NystroemMap(params_of(kind), batch)
    assert made.width == 60
    features = features_of(made, batch)
    assert features.shape == (60, 60)
    assert features.dtype == np.float32
    # Features are rounded to float32: half a unit each, of rows of length 1.
    np.testing.assert_allclose(products(features), exact(kind, batch), atol=4e-7)


@pytest.mark.parametrize("dim", [DIM, None])
@pytest.mark.parametrize("kind", KINDS)
def test_eigenvalues_at_round_off_are_dropped(
    rng: np.random.Generator, kind: NystroemKind, dim: int | None
) -> None:
    some = rows_of(rng, 12)
    batch = batch_of(csr_of([*some, *some, *some[:5]]), dim)
    made = NystroemMap(params_of(kind), batch)
    assert made.width == 12
    features = features_of(made, batch)
    assert np.isfinite(features).all()
    np.testing.assert_allclose(products(features), exact(kind, batch), atol=4e-7)


def test_a_smooth_kernel_keeps_what_is_above_round_off_alone(rng: np.random.Generator) -> None:
    batch = batch_of(csr_of(rows_of(rng, 80)), DIM)
    made = NystroemMap(params_of("rbf_nystroem", gamma=1e-8), batch)
    assert made.width == 1 + DIM  # γρ is linear in the vector, γ²ρ² is below round-off
    features = features_of(made, batch)
    np.testing.assert_allclose(products(features), exact("rbf_nystroem", batch, 1e-8), atol=4e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_products_are_those_of_the_projection_onto_the_landmarks(
    rng: np.random.Generator, kind: NystroemKind
) -> None:
    batch = batch_of(csr_of(rows_of(rng, 50)), DIM)
    features = features_of(NystroemMap(params_of(kind), batch[:20]), batch)
    kernel = exact(kind, batch)
    cross = kernel[:, :20]
    projected = cross @ np.linalg.solve(kernel[:20, :20], cross.T)
    np.testing.assert_allclose(products(features), projected, atol=1e-6)
    # What is missed is positive semi-definite, so no vector's length is overstated.
    assert (np.diag(products(features)) <= 1 + 1e-6).all()
    assert np.diag(products(features))[20:].min() < 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_a_vector_has_the_same_features_dense_and_sparse_alone_and_in_a_batch(
    rng: np.random.Generator, kind: NystroemKind
) -> None:
    rows = rows_of(rng, 90)
    batch = batch_of(dense_of(rows, DIM))
    expected = products(features_of(NystroemMap(params_of(kind), batch[:25]), batch))
    for threads in (1, 2):
        for dim in (DIM, LARGE_DIM, None):
            same = batch_of(csr_of(rows), dim)
            made = NystroemMap(params_of(kind), same[:25], Workers(threads))
            features = features_of(made, same)
            # Signs of eigenvectors, and bases of equal ones, are arbitrary; products are not.
            np.testing.assert_allclose(products(features), expected, atol=1e-6)
            np.testing.assert_allclose(features_of(made, same[7:8]), features[7:8], atol=1e-6)
            assert features_of(made, same[:0]).shape == (0, made.width)


@pytest.mark.parametrize("dim", [DIM, None])
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_learned_comes_back_from_its_notes(
    rng: np.random.Generator, kind: NystroemKind, dim: int | None
) -> None:
    batch = batch_of(csr_of(rows_of(rng, 40)), dim)
    made = NystroemMap(params_of(kind), batch[10:30])
    notes = orjson.loads(orjson.dumps(made.to_notes()))
    again = NystroemMap.from_notes(params_of(kind), notes, dim, space_of(dim).form)
    np.testing.assert_array_equal(features_of(again, batch), features_of(made, batch))
    assert again.to_notes() == made.to_notes()
    assert again.nbytes == made.nbytes > 0


@pytest.mark.parametrize(
    ("dim", "damage"),
    [
        (DIM, {"version": 99}),
        (DIM, {"form": "neither"}),
        (DIM, {"dense": "???"}),
        (DIM, {"dense": ""}),
        (DIM, {"dense": "", "norms": ""}),
        (None, {"indptr": ""}),
        (None, {"indptr": "AAAAAAAAAAA="}),
        (None, {"slots": ""}),
        (None, {"norms": ""}),
    ],
)
def test_notes_that_are_none_are_refused(
    rng: np.random.Generator, dim: int | None, damage: dict[str, object]
) -> None:
    made = NystroemMap(params_of("gmm_nystroem"), batch_of(csr_of(rows_of(rng, 5)), dim))
    params, sound, form = params_of("gmm_nystroem"), made.to_notes(), space_of(dim).form
    assert NystroemMap.from_notes(params, sound, dim, form).width == made.width
    with pytest.raises(ValueError):  # noqa: PT011 (whatever it says)
        NystroemMap.from_notes(params, sound | damage, dim, form)
