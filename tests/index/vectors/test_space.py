"""Vectors: what comes in, and what the transform makes of it."""

from random import Random
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, strategies as st

from gcws_search.index.contracts.batches import SparseVector, VectorBatch
from gcws_search.index.contracts.errors import InvalidVector
from gcws_search.index.contracts.parameters import MAX_DENSE_DIM
from tests.support.data.adapters import (
    LARGE_DIM,
    csr_of,
    dense_of,
    expanded_row,
    from_csr,
    prepared,
    raw_row,
    space_of,
)
from tests.support.data.strategies import (
    SMALLEST_SUBNORMAL,
    dense_rows,
    ordinary_values,
    sparse_vectors,
)
from tests.support.reference import mathematics

DIM = 9
FLOAT32_HALF_ULP = 2.0**-24
"""Largest relative error of rounding a normal number to float32."""


@pytest.mark.parametrize(
    "dtype", [np.float64, np.float32, np.float16, np.int64, np.int8, np.uint8, np.dtype(">f4")]
)
def test_dense_rows_of_any_number_type_become_the_same_float32_rows(dtype: npt.DTypeLike) -> None:
    values = np.array([[1, 2, 0], [0, 0, 5]])
    raw = space_of(3).from_dense(values.astype(dtype))
    assert raw.dense.dtype == np.float32
    np.testing.assert_array_equal(raw.dense, values)


def test_a_dense_row_keeps_each_float32_to_the_bit_except_the_sign_of_zero(
    rng: np.random.Generator,
) -> None:
    bits = rng.integers(0, 2**32, (200, DIM), dtype=np.uint32).view(np.float32)
    rows = np.where(np.isfinite(bits) & (np.abs(bits) < 1e36), bits, np.float32(1))
    raw = space_of(DIM).from_dense(rows)
    np.testing.assert_array_equal(raw.dense, rows)


def test_rows_in_any_memory_order_are_read_alike(rng: np.random.Generator) -> None:
    rows = rng.standard_normal((7, DIM))
    expected = space_of(DIM).from_dense(rows).dense
    for other in (np.asfortranarray(rows), rows[::-1].copy()[::-1], np.repeat(rows, 2, 1)[:, ::2]):
        np.testing.assert_array_equal(space_of(DIM).from_dense(other).dense, expected)


def test_reading_does_not_change_or_alias_the_callers_array() -> None:
    rows = np.ones((2, 3), np.float32)
    raw = space_of(3, power=2.0, normalize="l1").from_dense(rows)
    space_of(3, power=2.0, normalize="l1").prepare(raw)
    np.testing.assert_array_equal(rows, np.ones((2, 3)))
    np.testing.assert_array_equal(raw.dense, np.ones((2, 3)))


@pytest.mark.parametrize("index", [-1, 2**31, 2**63 - 1])
def test_an_open_space_ends_at_two_to_the_31(index: int) -> None:
    space = space_of(None)
    with pytest.raises(InvalidVector):
        space.from_sparse(np.array([0, 1]), np.array([index]), np.ones(1))
    largest = 2**31 - 2
    raw = space.from_sparse(np.array([0, 2]), np.array([largest, 0]), np.array([-2.0, 3.0]))
    assert raw_row(raw, 0) == {0: 3.0, largest: -2.0}
    assert expanded_row(space.prepare(raw), 0) == {0: 3.0, 2 * largest + 1: 2.0}


def test_no_vectors_at_all_are_an_empty_batch() -> None:
    for dim in (DIM, LARGE_DIM, None):
        space = space_of(dim)
        empty = space.from_sparse(np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0))
        assert len(empty) == len(space.prepare(empty)) == 0
        assert space.to_blobs(empty) == []
    assert len(space_of(DIM).from_dense(np.zeros((0, DIM)))) == 0


@given(sparse_vectors(DIM), st.randoms(use_true_random=False))
def test_a_sparse_vector_in_any_order_with_explicit_zeros_equals_its_dense_form(
    entries: dict[int, float], random: Random
) -> None:
    spare = [i for i in range(DIM) if i not in entries][:2]
    shuffled = [*entries.items(), *((i, 0.0) for i in spare)]
    random.shuffle(shuffled)
    indices, values = zip(*shuffled, strict=True)
    dense = dense_of([entries], DIM)
    for dim in (DIM, LARGE_DIM):
        space = space_of(dim)
        sparse = space.from_items([SparseVector(indices, values)])
        assert raw_row(sparse, 0) == entries
        assert expanded_row(space.prepare(sparse), 0) == mathematics.expand(entries)
        if dim == DIM:
            for other in (space.from_dense(dense), space.from_items([dense[0].tolist()])):
                np.testing.assert_array_equal(other.dense, sparse.dense)


@given(st.lists(sparse_vectors(DIM), min_size=1, max_size=6))
def test_items_sent_dense_and_sparse_in_one_list_are_read_alike(
    rows: list[dict[int, float]],
) -> None:
    space = space_of(DIM)
    dense = dense_of(rows, DIM)
    mixed = [
        dense[i].tolist() if i % 2 else SparseVector(list(row), list(row.values()))
        for i, row in enumerate(rows)
    ]
    np.testing.assert_array_equal(space.from_items(mixed).dense, dense)


def test_a_dense_vector_in_a_large_space_is_kept_sparse(rng: np.random.Generator) -> None:
    dim = MAX_DENSE_DIM + 1
    rows = np.where(rng.random((3, dim)) < 0.01, rng.standard_normal((3, dim)), 0.0)
    raw = space_of(dim).from_dense(rows)
    assert raw.form == "sparse"
    assert [raw_row(raw, i) for i in range(3)] == [
        mathematics.from_dense(row) for row in rows.astype(np.float32).tolist()
    ]


@given(dense_rows(DIM))
def test_sparse_rows_list_their_slots_rising_without_zeros(row: list[float]) -> None:
    space = space_of(LARGE_DIM)
    batch = space.prepare(from_csr(space, csr_of([mathematics.from_dense(row)])))
    assert batch.slots.dtype == np.uint32
    assert np.all(np.diff(batch.slots.astype(np.int64)) > 0)
    assert np.all(batch.values > 0)
    assert expanded_row(batch, 0) == mathematics.expand(mathematics.from_dense(row))


TRANSFORMS: list[dict[str, Any]] = [
    {},
    {"normalize": "l1"},
    {"normalize": "l2"},
    {"power": 0.5},
    {"power": 3.0, "normalize": "l2"},
    {"power": 1.7, "normalize": "l1"},
]


def assert_close_entries(ours: dict[int, float], truth: dict[int, float], relative: float) -> None:
    assert ours.keys() == truth.keys()
    for i, x in truth.items():
        assert abs(ours[i] - x) <= relative * abs(x) + SMALLEST_SUBNORMAL


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("dim", [DIM, LARGE_DIM, None])
@given(entries=sparse_vectors(DIM, values=ordinary_values()))
def test_the_transform_is_the_references_rounded_once(
    transform: dict[str, Any], dim: int | None, entries: dict[int, float]
) -> None:
    batch = prepared(space_of(dim, **transform), [entries])
    truth = mathematics.expand(mathematics.transform(entries, **transform))
    assert_close_entries(expanded_row(batch, 0), truth, 2 * FLOAT32_HALF_ULP)


CENTER = (0.5, -1.25, 0.0, 2.0, 0.1, -0.3, 7.0, 0.0, 1.0)


@pytest.mark.parametrize("transform", TRANSFORMS)
@given(row=dense_rows(DIM, values=ordinary_values()))
def test_the_center_is_subtracted_first(transform: dict[str, Any], row: list[float]) -> None:
    space = space_of(DIM, center=CENTER, **transform)
    entries = mathematics.from_dense(row)
    # The centre is kept in float32 or float64; the difference may cancel, so the bound is absolute.
    truth = mathematics.expand(mathematics.transform(entries, center=CENTER, **transform))
    for raw in (space.from_dense(np.array([row])), from_csr(space, csr_of([entries]))):
        ours = expanded_row(space.prepare(raw), 0)
        size = max(truth.values())
        for slot in ours.keys() | truth.keys():
            gap = abs(ours.get(slot, 0.0) - truth.get(slot, 0.0))
            assert gap <= 1e-5 * size + (2e-3 * size if transform.get("power") == 0.5 else 0.0)


@pytest.mark.parametrize("normalize", ["l1", "l2"])
@pytest.mark.parametrize("size", [1e-44, 1e-38, 1e-20, 1e20, 2e37])
@pytest.mark.parametrize("dim", [DIM, LARGE_DIM])
def test_normalising_survives_the_smallest_and_largest_values(
    normalize: Literal["l1", "l2"], size: float, dim: int
) -> None:
    value = float(np.float32(size))
    batch = prepared(space_of(dim, normalize=normalize), [{0: value, 1: -value, 4: value}])
    expected = 1 / 3 if normalize == "l1" else 3**-0.5
    for x in expanded_row(batch, 0).values():
        assert x == pytest.approx(expected, rel=2 * FLOAT32_HALF_ULP)


@pytest.mark.parametrize("dim", [DIM, LARGE_DIM, None])
@given(rows=st.lists(sparse_vectors(DIM), min_size=1, max_size=5))
def test_norms_are_the_l1_norms_of_the_rows_as_kept(
    dim: int | None, rows: list[dict[int, float]]
) -> None:
    batch = prepared(space_of(dim), rows)
    assert batch.norms.dtype == np.float32
    for i in range(len(rows)):
        truth = mathematics.l1_norm(expanded_row(batch, i))
        # At most a few roundings per entry, whatever the order of summing.
        assert batch.norms[i] == pytest.approx(truth, rel=16 * FLOAT32_HALF_ULP)


def parts(batch: VectorBatch) -> list[tuple[dict[int, float], float]]:
    return [(expanded_row(batch, i), float(batch.norms[i])) for i in range(len(batch))]


@pytest.mark.parametrize("dim", [DIM, LARGE_DIM])
def test_a_vector_prepared_alone_equals_itself_in_a_batch_to_the_bit(
    rng: np.random.Generator, dim: int
) -> None:
    space = space_of(dim, power=1.3, normalize="l2")
    rows = [mathematics.from_dense(row) for row in rng.standard_normal((20, DIM)).tolist()]
    together = parts(prepared(space, rows))
    assert together == [parts(prepared(space, [row]))[0] for row in rows]


@pytest.mark.parametrize("dim", [DIM, LARGE_DIM])
def test_rows_of_batches_are_taken_by_slice_and_by_number(
    rng: np.random.Generator, dim: int
) -> None:
    space = space_of(dim)
    rows = [
        {int(i): float(rng.integers(1, 9)) for i in rng.choice(DIM, rng.integers(1, DIM), False)}
        for _ in range(10)
    ]
    raw = from_csr(space, csr_of(rows))
    batch = space.prepare(raw)
    for key in (slice(2, 7), slice(0, 0), slice(None), slice(8, None)):
        assert [raw_row(raw[key], i) for i in range(len(raw[key]))] == rows[key]
        assert parts(batch[key]) == parts(batch)[key]
    numbers = np.array([3, 3, 0, 9], np.int64)
    assert [raw_row(raw[numbers], i) for i in range(4)] == [rows[i] for i in numbers]
    assert parts(batch[numbers]) == [parts(batch)[i] for i in numbers]
    nothing = np.array([], np.int64)
    assert len(raw[nothing]) == len(batch[nothing]) == 0


@pytest.mark.parametrize("dim", [DIM, LARGE_DIM, None])
@given(rows=st.lists(sparse_vectors(DIM), min_size=1, max_size=5))
def test_vectors_come_back_from_bytes_to_the_bit(
    dim: int | None, rows: list[dict[int, float]]
) -> None:
    space = space_of(dim)
    raw = from_csr(space, csr_of(rows))
    blobs = space.to_blobs(raw)
    assert len(blobs) == len(rows)
    assert all(isinstance(blob, bytes) for blob in blobs)
    back = space.from_blobs(blobs)
    assert [raw_row(back, i) for i in range(len(rows))] == rows
    assert space.to_blobs(back) == blobs
    assert [space.to_blobs(raw[i : i + 1])[0] for i in range(len(rows))] == blobs


@pytest.mark.parametrize("dim", [DIM, LARGE_DIM, None])
def test_bytes_that_are_no_vector_of_the_space_are_refused(dim: int | None) -> None:
    space = space_of(dim)
    [blob] = space.to_blobs(from_csr(space, csr_of([{1: 2.0, 3: -4.0}])))
    for damaged in (blob[:-1], blob[:-4], blob + b"\0"):
        with pytest.raises((InvalidVector, ValueError)):
            space.from_blobs([blob, damaged])


@given(sparse_vectors(DIM))
def test_a_vector_as_json_is_the_vector_that_was_sent(entries: dict[int, float]) -> None:
    dense = space_of(DIM)
    assert dense.to_json(from_csr(dense, csr_of([entries])), 0) == [
        entries.get(i, 0.0) for i in range(DIM)
    ]
    for dim in (LARGE_DIM, None):
        space = space_of(dim)
        document = space.to_json(from_csr(space, csr_of([entries])), 0)
        assert isinstance(document, dict)
        assert document["indices"] == sorted(entries)
        assert document["values"] == [entries[i] for i in sorted(entries)]


@given(
    indices=st.lists(st.integers(-1, DIM) | st.just(2**63), max_size=5),
    values=st.lists(ordinary_values() | st.sampled_from((0.0, 1e-60, 1e39, np.inf, 3)), max_size=5),
    dim=st.sampled_from((DIM, LARGE_DIM, None)),
)
def test_a_sparse_vector_alone_becomes_what_it_becomes_among_others(
    indices: list[int], values: list[float], dim: int | None
) -> None:
    space, vector = space_of(dim), SparseVector(indices, values)
    other = SparseVector([0], [1.0])
    found: list[Any] = []
    for vectors in ([vector], [vector, other]):
        try:
            raw = space.from_items(vectors)
        except InvalidVector as error:
            found.append((error.expected, error.got, error.loc))
        else:
            found.append((space.to_json(raw, 0), raw.dense.dtype, raw.indices.dtype))
    assert found[0] == found[1]
