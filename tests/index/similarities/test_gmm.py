"""Exact GMM: against the definition, and by the laws a similarity keeps."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from gcws_search.index.contracts.batches import SparseVector
from gcws_search.index.contracts.errors import InvalidVector
from gcws_search.index.similarities import gmm, gmm_matrix, gmm_rows, similarity
from tests.support.data import generated
from tests.support.data.adapters import LARGE_DIM, batch_of, prepared, signed_rows, space_of
from tests.support.data.strategies import sparse_vectors
from tests.support.reference import mathematics

DIM = 11
DIMS = [DIM, LARGE_DIM, None]
RELATIVE = 1e-12
"""Roundings of some thousand float64 sums."""
FLOAT32_RELATIVE = 2e-6
"""Roundings of some dozen float32 sums."""
Vector = dict[int, float]
Sent = list[float] | SparseVector


def sent(u: Vector, *, dense: bool) -> Sent:
    if dense:
        return [u.get(i, 0.0) for i in range(DIM)]
    return SparseVector(list(u), list(u.values()))


@given(sparse_vectors(DIM), sparse_vectors(DIM))
def test_the_similarity_is_the_definitions_however_the_vectors_are_sent(
    u: Vector, v: Vector
) -> None:
    truth = mathematics.gmm(u, v)
    for a, b in ((True, True), (False, False), (True, False), (False, True)):
        ours = similarity(sent(u, dense=a), sent(v, dense=b))
        assert ours == pytest.approx(truth, rel=RELATIVE, abs=0)


@pytest.mark.parametrize("dim", DIMS)
@given(st.lists(sparse_vectors(DIM), min_size=1, max_size=8), sparse_vectors(DIM))
def test_pairs_rows_and_blocks_agree_with_the_definition(
    dim: int | None, rows: list[Vector], query: Vector
) -> None:
    space = space_of(dim)
    batch, one = prepared(space, rows), prepared(space, [query])
    truth = [mathematics.gmm(query, row) for row in rows]
    assert gmm_rows(one, batch) == pytest.approx(truth, rel=RELATIVE, abs=0)
    for i, expected in enumerate(truth):
        assert gmm(one, batch[i : i + 1]) == pytest.approx(expected, rel=RELATIVE, abs=0)
    block = gmm_matrix(one, batch)
    assert block.dtype == np.float32
    assert block.shape == (1, len(rows))
    assert block[0] == pytest.approx(truth, abs=FLOAT32_RELATIVE)


@pytest.mark.parametrize("dim", [37, LARGE_DIM])
def test_a_block_of_many_rows_is_every_pair(rng: np.random.Generator, dim: int) -> None:
    rows, others = generated.clustered(rng, 60, 23, dim=37)
    a, b = (
        batch_of(each if dim == 37 else generated.sparse_of(each), dim) for each in (rows, others)
    )
    truth = [[mathematics.gmm(u, v) for v in signed_rows(b)] for u in signed_rows(a)]
    np.testing.assert_allclose(gmm_matrix(a, b), truth, atol=FLOAT32_RELATIVE)
    for i in (0, 59):
        np.testing.assert_allclose(gmm_rows(a[i : i + 1], b), truth[i], rtol=RELATIVE)


def test_coordinates_that_share_a_place_of_a_table_are_told_apart(rng: np.random.Generator) -> None:
    """Of 4,000 slots in a table a sixteenth full some hundred lie behind others."""
    slots = rng.choice(LARGE_DIM, 5000, replace=False).tolist()
    rows = [
        dict(zip(own, rng.uniform(0.1, 9, 4000).astype(np.float32).tolist(), strict=True))
        for own in (slots[:4000], slots[1000:])
    ]
    batch = prepared(space_of(LARGE_DIM), rows)
    truth = mathematics.gmm(*rows)
    assert gmm_matrix(batch[:1], batch[1:])[0, 0] == pytest.approx(truth, rel=1e-5)


@pytest.mark.parametrize("width", [1, 15, 16, 17, 31, 32, 33, 48, 1000])
def test_no_coordinate_is_lost_at_any_width(rng: np.random.Generator, width: int) -> None:
    ones = batch_of(np.ones((1, width)))
    for i in {0, width // 2, width - 1}:
        row = np.ones((1, width))
        row[0, i] = 3.0
        other = batch_of(row)
        assert gmm(ones, other) == pytest.approx(width / (width + 2), rel=RELATIVE)
        assert gmm_matrix(ones, other)[0, 0] == pytest.approx(width / (width + 2), rel=1e-6)


@given(sparse_vectors(DIM), sparse_vectors(DIM))
def test_the_similarity_is_symmetric_within_0_and_1_and_1_for_equal_vectors(
    u: Vector, v: Vector
) -> None:
    a, b = sent(u, dense=True), sent(v, dense=False)
    assert similarity(a, b) == similarity(b, a)
    assert 0.0 <= similarity(a, b) <= 1.0
    assert similarity(a, a) == 1.0
    opposite = {i: -x for i, x in u.items()}
    assert similarity(a, sent(opposite, dense=True)) == 0.0


@pytest.mark.parametrize(
    ("a", "b", "wrong"),
    [
        ([1.0, 2.0], [1.0, 2.0, 3.0], 1),
        ([1.0, 2.0], SparseVector([2], [1.0]), 1),
        (SparseVector([2], [1.0]), [0.0, 0.0], 0),
        ([1.0, 0.0], [0.0, 0.0], 1),
    ],
    ids=str,
)
def test_vectors_that_do_not_fit_together_are_refused(a: Sent, b: Sent, wrong: int) -> None:
    with pytest.raises(InvalidVector) as failure:
        similarity(a, b)
    assert failure.value.loc[0] == wrong


def test_long_vectors_are_compared_dense_and_sparse_alike(rng: np.random.Generator) -> None:
    dense = np.where(rng.random((2, 5000)) < 0.1, rng.standard_normal((2, 5000)), 0.0)
    rows = [mathematics.from_dense(row) for row in dense.astype(np.float32).tolist()]
    truth = mathematics.gmm(*rows)
    assert similarity(dense[0].tolist(), dense[1].tolist()) == pytest.approx(truth, rel=RELATIVE)
    mixed = similarity(dense[0].tolist(), SparseVector(list(rows[1]), list(rows[1].values())))
    assert mixed == pytest.approx(truth, rel=RELATIVE)
