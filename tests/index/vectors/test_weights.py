"""Weights that are learned, against scikit-learn's scalers; weights in files."""

import base64
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import orjson
import pytest
from scipy import sparse
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import MaxAbsScaler, RobustScaler, StandardScaler

from gcws_search import index as ix
from gcws_search.index.contracts.batches import RawBatch
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.saved_index import with_checksum, without_checksum
from gcws_search.index.vectors.weights import Weights, learn

DENSE: Final[Mapping[ix.WeightKind, Any]] = {
    "standard": StandardScaler(),
    "robust": RobustScaler(),
    "max": MaxAbsScaler(),
    "idf": TfidfTransformer(norm=None, smooth_idf=True),
}
SPARSE: Final[Mapping[ix.WeightKind, Any]] = {
    "standard": StandardScaler(with_mean=False),
    "max": MaxAbsScaler(),
    "idf": TfidfTransformer(norm=None, smooth_idf=True),
}


def learned(kind: ix.WeightKind, dim: int | None, *batches: RawBatch) -> Weights:
    found = learn(kind, iter(batches), dim, version=3, learned=1_700_000_000)
    assert found is not None
    return found


def config(kind: ix.WeightKind, dim: int | None) -> ix.CollectionConfig:
    return ix.CollectionConfig(dim=dim, transform=ix.Transform(weights=kind))


def rows_of(rng: np.random.Generator) -> np.ndarray:
    """Return rows whose columns differ in unit and sign, one of them constant."""
    scales = np.array([1e-3, 1.0, 50.0, 1e4, 1.0])
    rows = rng.normal(2, 1, (203, 5)) * scales * (rng.random((203, 5)) < 0.8)
    rows[:, 4] = 7
    return np.asarray(rows, np.float32)


def matrix_of(rng: np.random.Generator) -> sparse.csr_matrix:
    """Return signed counts of words, of which some are rare."""
    rows = sparse.random(301, 60, 0.1, format="lil", random_state=rng, dtype=np.float32)
    rows[:, 0] = 1
    found = sparse.csr_matrix(rows)
    found.data = np.ceil(9 * found.data) * rng.choice([-1, 1], len(found.data))
    return found.astype(np.float32)


@pytest.mark.parametrize("kind", DENSE)
def test_dense_rows_become_what_a_scaler_makes_of_them(
    kind: ix.WeightKind, rng: np.random.Generator
) -> None:
    rows = rows_of(rng)
    space = ix.VectorSpace.of(config(kind, 5))
    raw = space.from_dense(rows)
    weights = learned(kind, 5, raw[:70], raw[70:71], raw[71:])
    got = ix.VectorSpace.of(config(kind, 5), weights).prepare(raw).dense[:, :5]
    fitted = DENSE[kind].fit_transform(rows.astype(np.float64))
    expected = fitted.toarray() if sparse.issparse(fitted) else fitted
    np.testing.assert_allclose(got, expected.astype(np.float32), rtol=2e-7, atol=1e-7)
    assert (weights.items, weights.version) == (len(rows), 3)


@pytest.mark.parametrize("dim", [None, 5000])
@pytest.mark.parametrize("kind", SPARSE)
def test_sparse_rows_become_what_a_scaler_makes_of_them(
    kind: ix.WeightKind, dim: int | None, rng: np.random.Generator
) -> None:
    rows = matrix_of(rng)
    space = ix.VectorSpace.of(config(kind, dim))
    raw = space.from_sparse(rows.indptr, rows.indices, rows.data)
    weights = learned(kind, dim, raw[:1], raw[1:150], raw[150:])
    prepared = ix.VectorSpace.of(config(kind, dim), weights).prepare(raw)
    expected = sparse.csr_matrix(SPARSE[kind].fit_transform(rows.astype(np.float64)))
    expected.sort_indices()
    signs = 1 - 2 * (prepared.slots % 2).astype(np.float64)
    assert np.array_equal(prepared.slots // 2, expected.indices)
    np.testing.assert_allclose(prepared.values * signs, expected.data, rtol=2e-7)
    unseen = space.from_items([ix.SparseVector([70], [2.0])])
    default = np.log(1 + len(raw)) + 1 if kind == "idf" else 1.0
    got = ix.VectorSpace.of(config(kind, dim), weights).prepare(unseen).values
    np.testing.assert_allclose(got, [2 * default], rtol=2e-7)


def test_weights_are_applied_before_a_power_and_a_norm(rng: np.random.Generator) -> None:
    rows = rng.normal(size=(20, 3)).astype(np.float32)
    transform = ix.Transform(
        center=(1.0, -1.0, 0.5), weights=(1.0, 2.0, 3.0), power=0.5, normalize="l1"
    )
    space = ix.VectorSpace.of(ix.CollectionConfig(dim=3, transform=transform))
    weighted = (rows.astype(float) - [1.0, -1.0, 0.5]) * [1, 2, 3]
    powers = np.sign(weighted) * np.sqrt(np.abs(weighted))
    expected = powers / np.abs(powers).sum(1, keepdims=True)
    got = space.prepare(space.from_dense(rows)).dense[:, :3]
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("dim", [5, None], ids=["dense", "sparse"])
def test_weights_of_a_file_are_those_that_were_written(
    dim: int | None, rng: np.random.Generator
) -> None:
    space = ix.VectorSpace.of(config("standard", dim))
    rows = matrix_of(rng)
    raw = (
        space.from_dense(rows_of(rng))
        if dim
        else space.from_sparse(rows.indptr, rows.indices, rows.data)
    )
    weights = learned("standard", dim, raw)
    text = weights.to_text()
    again = Weights.from_text(text)
    for name in ("weights", "center", "coordinates"):
        one, other = getattr(weights, name), getattr(again, name)
        assert (one is None and other is None) or np.array_equal(one, other)
    told = ("kind", "version", "learned", "items", "default")
    assert [getattr(again, name) for name in told] == [getattr(weights, name) for name in told]
    for damaged in _damaged(text):
        with pytest.raises(ValueError, match=r"\S"):
            Weights.from_text(damaged)


def _damaged(text: str) -> Iterator[str]:
    content = orjson.loads(without_checksum(text))
    numbers = np.frombuffer(base64.b64decode(content["weights"]), "<f8")
    for name, array in (
        ("weights", 0 * numbers),
        ("weights", numbers[1:]),
        ("coordinates", np.zeros(len(numbers), "<i4")),  # they do not rise
    ):
        coded = base64.b64encode(array.tobytes()).decode()
        yield with_checksum(orjson.dumps(content | {name: coded}))
    yield text[:-3]
    yield text.replace("standard", "standart")
    yield ""
    yield "00000000 {}"


@pytest.mark.parametrize(
    ("dim", "transform", "place"),
    [
        (2, {"weights": (-1.0, 1.0)}, ("weights", 0)),
        (2, {"weights": (1.0, float("nan"))}, ("weights", 1)),
        (2, {"weights": (1.0, float("inf"))}, ("weights", 1)),
        (5000, {"weights": (1.0,) * 5000}, ("transform", "weights")),
    ],
)
def test_weights_that_cannot_be_are_refused_with_their_place(
    dim: int | None, transform: dict[str, Any], place: tuple[str | int, ...]
) -> None:
    with pytest.raises(InvalidParameter) as refused:
        ix.CollectionConfig(dim=dim, transform=ix.Transform(**transform))
    assert refused.value.loc == place


@pytest.mark.parametrize("weights", [None, "idf", (1.0, 2.5)])
def test_a_configuration_comes_back_from_its_document(weights: Any) -> None:  # noqa: ANN401
    given = ix.CollectionConfig(dim=2, transform=ix.Transform(weights=weights))
    document = given.to_dict()
    assert ("weights" in document["transform"]) == (weights is not None)
    assert ix.CollectionConfig.from_dict(document) == given
