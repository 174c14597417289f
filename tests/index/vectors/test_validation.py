"""What is no vector of a space, or no space, is refused, and the place of the fault is told."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from gcws_search.index.contracts.batches import NamedVector, SparseVector
from gcws_search.index.contracts.errors import InvalidParameter, InvalidVector
from gcws_search.index.vectors.inputs import InputVectors, OneVector
from tests.support.data.adapters import LARGE_DIM, prepared, raw_row, space_of
from tests.support.data.strategies import SMALLEST_SUBNORMAL

DIM = 9


def location_of(failure: pytest.ExceptionInfo[InvalidVector]) -> tuple[str | int, ...]:
    return failure.value.loc


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e39, -1e39, 1e300])
@pytest.mark.parametrize("form_dim", [DIM, LARGE_DIM])
def test_a_number_that_is_not_finite_in_float32_is_refused_by_row_and_place(
    bad: float, form_dim: int
) -> None:
    space = space_of(form_dim)
    rows = np.ones((4, form_dim if form_dim == DIM else 12))
    rows[2, 5] = bad
    if form_dim == DIM:
        with pytest.raises(InvalidVector) as failure:
            space.from_dense(rows, first_row=100)
        assert location_of(failure)[:1] == (102,)
        assert 5 in location_of(failure)
    indptr = np.arange(0, rows.size + 1, rows.shape[1])
    indices = np.tile(np.arange(rows.shape[1]), 4)
    with pytest.raises(InvalidVector) as failure:
        space.from_sparse(indptr, indices % form_dim, rows.ravel(), first_row=100)
    assert location_of(failure) == (102, "values", 5)


@pytest.mark.parametrize(
    "items",
    [
        [[1.0, 2.0, 3.0], [1.0, float("nan"), 2.0]],
        [[1.0, 2.0, 3.0], [1.0, 1e39, 2.0]],
        [[1.0, 2.0, 3.0], [1.0, float("-inf"), 2.0]],
    ],
)
def test_a_json_vector_with_a_number_that_is_not_finite_names_item_and_place(
    items: list[list[float]],
) -> None:
    with pytest.raises(InvalidVector) as failure:
        space_of(3).from_items(items)
    assert location_of(failure) == (1, 1)


@pytest.mark.parametrize("dim", [DIM, LARGE_DIM, None])
def test_a_bad_number_of_an_unordered_sparse_vector_is_named_by_its_place_as_sent(
    dim: int | None,
) -> None:
    with pytest.raises(InvalidVector) as failure:
        space_of(dim).from_sparse(
            np.array([0, 1, 4]), np.array([0, 7, 5, 2]), np.array([1.0, np.nan, 1.0, 1.0])
        )
    assert location_of(failure) == (1, "values", 0)


@pytest.mark.parametrize("bad", ["1.5", "x", [1.0], {}, 1j, None])
def test_an_entry_that_is_no_number_is_refused_by_item(bad: Any) -> None:  # noqa: ANN401
    with pytest.raises(InvalidVector) as failure:
        space_of(2).from_items([[1.0, 2.0], [1.0, bad]])
    assert location_of(failure)[0] == 1
    with pytest.raises(InvalidVector) as failure:
        space_of(2).from_items([[1.0, 2.0], SparseVector([0, 1], [1.0, bad])])
    assert location_of(failure)[:2] == (1, "values")


@pytest.mark.parametrize("bad", [1.5, "1", None, [1]])
def test_an_index_that_is_no_integer_is_refused_and_not_rounded(bad: Any) -> None:  # noqa: ANN401
    for dim in (DIM, LARGE_DIM, None):
        with pytest.raises(InvalidVector) as failure:
            space_of(dim).from_items([SparseVector([0], [1.0]), SparseVector([0, bad], [1.0, 2.0])])
        assert location_of(failure)[:2] == (1, "indices")
    with pytest.raises(InvalidVector):
        space_of(None).from_sparse(np.array([0, 1]), np.array([1.5]), np.ones(1))


@pytest.mark.parametrize("dim", [4, LARGE_DIM, None])
def test_vectors_whose_norm_would_overflow_in_sums_are_refused(dim: int | None) -> None:
    with pytest.raises(InvalidVector) as failure:
        prepared(space_of(dim), [{0: 1.0}, {0: 3e38, 1: -3e38, 2: 3e38}])
    assert location_of(failure)[0] == 1


@pytest.mark.parametrize("length", [0, 1, 2, 4, 100])
def test_a_vector_of_the_wrong_length_is_refused(length: int) -> None:
    with pytest.raises(InvalidVector, match=rf"3.*{length}"):
        space_of(3).from_dense(np.ones((2, length)))
    with pytest.raises(InvalidVector) as failure:
        space_of(3).from_items([[1.0, 2.0, 3.0], [1.0] * length])
    assert location_of(failure)[0] == 1


@pytest.mark.parametrize("zero", [0.0, -0.0, 1e-60, SMALLEST_SUBNORMAL / 4])
def test_a_vector_that_is_zero_in_float32_is_refused(zero: float) -> None:
    rows = np.array([[1.0, 0.0], [zero, zero]])
    with pytest.raises(InvalidVector) as failure:
        space_of(2).from_dense(rows)
    assert location_of(failure) == (1,)
    for dim in (2, LARGE_DIM, None):
        with pytest.raises(InvalidVector) as failure:
            space_of(dim).from_sparse(np.array([0, 1, 2]), np.array([0, 1]), np.array([1.0, zero]))
        assert location_of(failure)[0] == 1


@pytest.mark.parametrize("dim", [DIM, LARGE_DIM, None])
def test_a_sparse_vector_without_entries_is_refused(dim: int | None) -> None:
    with pytest.raises(InvalidVector) as failure:
        space_of(dim).from_sparse(np.array([0, 1, 1, 2]), np.array([0, 0]), np.ones(2), first_row=7)
    assert location_of(failure)[0] == 8
    with pytest.raises(InvalidVector):
        space_of(dim).from_items([SparseVector([], [])])


@pytest.mark.parametrize("dim", [DIM, LARGE_DIM])
@pytest.mark.parametrize("bad", [-1, "dim", 2**31, 2**40, -(2**40)])
def test_an_index_outside_the_dimension_is_refused_by_row_and_place(
    dim: int, bad: int | str
) -> None:
    index = dim if isinstance(bad, str) else bad
    with pytest.raises(InvalidVector) as failure:
        space_of(dim).from_sparse(np.array([0, 2, 5]), np.array([0, 1, 2, index, 3]), np.ones(5))
    assert location_of(failure) == (1, "indices", 1)
    with pytest.raises(InvalidVector) as failure:
        space_of(dim).from_items([SparseVector([0], [1.0]), SparseVector([1, index], [1.0, 2.0])])
    assert location_of(failure) == (1, "indices", 1)


@pytest.mark.parametrize("dim", [DIM, LARGE_DIM, None])
def test_a_repeated_index_is_refused(dim: int | None) -> None:
    with pytest.raises(InvalidVector) as failure:
        space_of(dim).from_sparse(
            np.array([0, 1, 4]), np.array([3, 5, 2, 5]), np.ones(4), first_row=10
        )
    assert location_of(failure)[:2] == (11, "indices")
    with pytest.raises(InvalidVector):
        space_of(dim).from_items([SparseVector([4, 4], [1.0, 0.0])])


def test_the_same_index_in_neighbouring_rows_is_no_repetition() -> None:
    raw = space_of(None).from_sparse(np.array([0, 2, 4]), np.array([1, 7, 7, 9]), np.ones(4))
    assert [raw_row(raw, i) for i in range(2)] == [{1: 1.0, 7: 1.0}, {7: 1.0, 9: 1.0}]


def test_indices_and_values_of_different_length_are_refused() -> None:
    for dim in (DIM, LARGE_DIM, None):
        with pytest.raises(InvalidVector) as failure:
            space_of(dim).from_items([SparseVector([0], [1.0]), SparseVector([0, 1], [1.0])])
        assert location_of(failure)[0] == 1


@pytest.mark.parametrize("borders", [[], [0], [1, 3], [0, 2], [0, 4], [0, 3, 2, 3]])
def test_borders_that_do_not_cut_the_entries_into_rows_are_refused(borders: list[int]) -> None:
    with pytest.raises(InvalidVector, match="rise from 0 to 3"):
        space_of(None).from_sparse(np.array(borders, np.int64), np.array([1, 2, 3]), np.ones(3))


@pytest.mark.parametrize(("indices", "values"), [([[1], [2]], [1.0, 2.0]), ([1], [[1.0]])])
def test_lists_within_lists_are_no_coordinates(indices: list[Any], values: list[Any]) -> None:
    with pytest.raises(InvalidVector) as failure:
        space_of(None).from_items([SparseVector([4], [1.0]), SparseVector(indices, values)])
    assert location_of(failure) in ((1, "indices"), (1, "values"))


def test_an_open_space_takes_sparse_vectors_only() -> None:
    with pytest.raises(InvalidVector):
        space_of(None).from_items([[1.0, 2.0]])
    with pytest.raises(InvalidVector):
        space_of(None).from_dense(np.ones((1, 2)))


def test_a_vector_equal_to_the_center_is_refused_like_a_zero_vector() -> None:
    space = space_of(2, center=(0.5, 2.0))
    raw = space.from_dense(np.array([[1.0, 2.0], [0.5, 2.0]]))
    with pytest.raises(InvalidVector) as failure:
        space.prepare(raw)
    assert location_of(failure)[0] == 1


def test_a_zero_vector_is_refused_even_where_a_center_would_move_it() -> None:
    with pytest.raises(InvalidVector):
        space_of(2, center=(0.5, 2.0)).from_dense(np.array([[0.0, 0.0]]))


@pytest.mark.parametrize("dim", [2, LARGE_DIM, None])
@pytest.mark.parametrize(("value", "power"), [(1e30, 2.0), (1e-30, 3.0)])
def test_a_power_that_leaves_float32_is_refused_and_not_stored_as_infinity_or_zero(
    dim: int | None, value: float, power: float
) -> None:
    space = space_of(dim, power=power)
    with pytest.raises(InvalidVector) as failure:
        prepared(space, [{0: 1.0}, {1: value}])
    assert location_of(failure)[0] == 1


def test_a_center_needs_a_dense_space_of_its_length() -> None:
    for dim, length in ((3, 2), (LARGE_DIM, LARGE_DIM), (None, 1)):
        with pytest.raises(InvalidParameter):
            space_of(dim, center=(1.0,) * length)


@pytest.mark.parametrize("center", [float("nan"), float("inf"), 1e39])
def test_a_center_that_is_not_finite_is_refused(center: float) -> None:
    with pytest.raises((InvalidParameter, InvalidVector)):
        space_of(2, center=(1.0, center))


@pytest.mark.parametrize("power", [0.0, -1.0, float("nan"), float("inf")])
def test_a_power_that_is_not_positive_and_finite_is_refused(power: float) -> None:
    with pytest.raises(InvalidParameter):
        space_of(2, power=power)


@pytest.mark.parametrize("row", range(4))
def test_a_bad_row_among_vectors_of_several_forms_is_told_by_its_number(row: int) -> None:
    known = {"a": 0, "b": 1}

    def find(names: Sequence[str]) -> list[int]:
        for place, name in enumerate(names):
            if name not in known:
                raise InvalidVector(expected="a name of a coordinate", got=name, loc=(place,))
        return [known[name] for name in names]

    good: list[OneVector] = [np.ones(DIM), NamedVector(["a"], [1]), SparseVector([3], [1]),
                             NamedVector(["b", "a"], [1, 2])]  # fmt: skip
    assert len(InputVectors(mixed=good).check(space_of(DIM), find)) == len(good)
    bad: list[tuple[OneVector, tuple[str | int, ...]]] = [
        (NamedVector(["a", "a"], [1, 2]), ("names", 1)),
        (NamedVector(["a", "z"], [1, 2]), ("names", 1)),
        (NamedVector(["a", "b"], [1]), ()),
        (SparseVector([3, 3], [1, 2]), ("indices",)),
    ]
    for vector, place in bad:
        mixed = [*good[:row], vector, *good[row + 1 :]]
        with pytest.raises(InvalidVector) as failure:
            InputVectors(mixed=mixed).check(space_of(DIM), find)
        assert location_of(failure) == (row, *place)
