"""What is no vector of a space, or no space, is refused, and the place of the fault is told."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from _pytest.mark.structures import ParameterSet

from gcws_search.index.contracts.batches import SparseVector, named_vector
from gcws_search.index.contracts.errors import InvalidParameter, InvalidVector
from gcws_search.index.vectors.inputs import InputVectors, OneVector
from gcws_search.index.vectors.space import VectorSpace
from tests.support.data.adapters import LARGE_DIM, prepared, raw_row, space_of
from tests.support.data.strategies import SMALLEST_SUBNORMAL

DIM = 9
EVERY = (DIM, LARGE_DIM, None)
Give = Callable[[VectorSpace], object]
"""Gives vectors to a space."""


def sparse(borders: list[int], indices: Any, values: Any, first_row: int = 0) -> Give:  # noqa: ANN401
    ends, places = np.array(borders, np.int64), np.array(indices)
    return lambda space: space.from_sparse(ends, places, np.array(values), first_row=first_row)


def items(*vectors: Any) -> Give:  # noqa: ANN401
    return lambda space: space.from_items([*vectors])


def dense(rows: Any, first_row: int = 0) -> Give:  # noqa: ANN401
    return lambda space: space.from_dense(np.array(rows), first_row=first_row)


def prepare(*rows: dict[int, float]) -> Give:
    return lambda space: prepared(space, [*rows])


def case(what: str, dim: int | None, give: Give, *loc: str | int, **more: Any) -> ParameterSet:  # noqa: ANN401
    """Return a space, what it is given, and the beginning of the place of the fault."""
    return pytest.param(space_of(dim, **more), give, loc, id=f"{what}, {dim}")


def bad_numbers() -> Iterator[ParameterSet]:
    bad: Any
    dim: int | None
    for bad in (np.nan, np.inf, -np.inf, 1e39, -1e39, 1e300):
        rows = np.ones((4, DIM))
        rows[2, 5] = bad
        what = f"{bad} is not finite in float32"
        yield case(f"{what}, dense", DIM, dense(rows, 100), 102, 5)
        yield case(f"{what}, of items", 3, items([1.0, 2.0, 3.0], [1.0, bad, 2.0]), 1, 1)
        flat = sparse([*range(0, 37, DIM)], np.tile(np.arange(DIM), 4), rows.ravel(), 100)
        for dim in (DIM, LARGE_DIM):
            yield case(f"{what}, sparse", dim, flat, 102, "values", 5)
    for bad in ("1.5", "x", [1.0], {}, 1j, None):
        what = f"{bad} is no number"
        yield case(what, 2, items([1.0, 2.0], [1.0, bad]), 1)
        mixed = items([1.0, 2.0], SparseVector([0, 1], [1.0, bad]))
        yield case(f"{what}, sparse", 2, mixed, 1, "values")
    for bad in (1.5, "1", None, [1]):
        vectors = SparseVector([0], [1.0]), SparseVector([0, bad], [1.0, 2.0])
        for dim in EVERY:
            yield case(f"{bad} is no integer", dim, items(*vectors), 1, "indices")
    for length in (0, 1, 2, 4, 100):
        what = f"{length} values"
        yield case(what, 3, items([1.0, 2.0, 3.0], [1.0] * length), 1)
        yield case(f"{what}, dense", 3, dense(np.ones((2, length))))
    for zero in (0.0, -0.0, 1e-60, SMALLEST_SUBNORMAL / 4):
        yield case(f"{zero} is zero", 2, dense([[1.0, 0.0], [zero, zero]]), 1)
        for dim in (2, LARGE_DIM, None):
            yield case(f"{zero} is zero, sparse", dim, sparse([0, 1, 2], [0, 1], [1.0, zero]), 1)
    for dim in (DIM, LARGE_DIM):
        for index in (-1, dim, 2**31, 2**40, -(2**40)):
            what, loc = f"{index} is outside", (1, "indices", 1)
            flat = sparse([0, 2, 5], [0, 1, 2, index, 3], np.ones(5))
            yield case(what, dim, flat, *loc)
            vectors = SparseVector([0], [1.0]), SparseVector([1, index], [1.0, 2.0])
            yield case(f"{what}, of items", dim, items(*vectors), *loc)


def bad_forms() -> Iterator[ParameterSet]:
    for dim in EVERY:
        unordered = sparse([0, 1, 4], [0, 7, 5, 2], [1.0, np.nan, 1.0, 1.0])
        yield case("a place as sent", dim, unordered, 1, "values", 0)
        yield case("no entries", dim, sparse([0, 1, 1, 2], [0, 0], np.ones(2), 7), 8)
        yield case("no entries of an item", dim, items(SparseVector([], [])))
        again = sparse([0, 1, 4], [3, 5, 2, 5], np.ones(4), 10)
        yield case("an index twice", dim, again, 11, "indices")
        yield case("an index twice, of an item", dim, items(SparseVector([4, 4], [1.0, 0.0])))
        lengths = items(SparseVector([0], [1.0]), SparseVector([0, 1], [1.0]))
        yield case("two lengths", dim, lengths, 1)
        huge = prepare({0: 1.0}, {0: 3e38, 1: -3e38, 2: 3e38})
        yield case("a norm beyond float32", dim, huge, 1)
        for value, power in ((1e30, 2.0), (1e-30, 3.0)):
            give = prepare({0: 1.0}, {1: value})
            yield case(f"a power beyond float32 of {value}", dim, give, 1, power=power)
    indices: Any
    values: Any
    for indices, values in (([[1], [2]], [1.0, 2.0]), ([1], [[1.0]])):
        nested = items(SparseVector([4], [1.0]), SparseVector(indices, values))
        yield case(f"lists in {indices} or {values}", None, nested, 1)
    yield case("half an index", None, sparse([0, 1], [1.5], np.ones(1)))
    yield case("an open space, of items", None, items([1.0, 2.0]))
    yield case("an open space, dense", None, dense(np.ones((1, 2))))
    for borders in ([], [0], [1, 3], [0, 2], [0, 4], [0, 3, 2, 3]):
        yield case(f"borders {borders}", None, sparse(borders, [1, 2, 3], np.ones(3)))
    center = (0.5, 2.0)

    def moved(space: VectorSpace) -> object:
        return space.prepare(space.from_dense(np.array([[1.0, 2.0], center])))

    yield case("the centre", 2, moved, 1, center=center)
    yield case("zero, which a centre would move", 2, dense([[0.0, 0.0]]), center=center)


@pytest.mark.parametrize(("space", "give", "loc"), [*bad_numbers(), *bad_forms()])
def test_what_is_no_vector_is_refused_where_it_is_wrong(
    space: VectorSpace, give: Give, loc: tuple[str | int, ...]
) -> None:
    with pytest.raises(InvalidVector) as failure:
        give(space)
    assert failure.value.loc[: len(loc)] == loc


def test_the_same_index_in_neighbouring_rows_is_no_repetition() -> None:
    raw = space_of(None).from_sparse(np.array([0, 2, 4]), np.array([1, 7, 7, 9]), np.ones(4))
    assert [raw_row(raw, i) for i in range(2)] == [{1: 1.0, 7: 1.0}, {7: 1.0, 9: 1.0}]


@pytest.mark.parametrize(
    ("dim", "transform"),
    [
        (3, {"center": (1.0, 1.0)}),
        (LARGE_DIM, {"center": (1.0,) * LARGE_DIM}),
        (None, {"center": (1.0,)}),
        *((2, {"center": (1.0, bad)}) for bad in (float("nan"), float("inf"), 1e39)),
        *((2, {"power": bad}) for bad in (0.0, -1.0, float("nan"), float("inf"))),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_transform_that_is_none_of_a_space_is_refused(
    dim: int | None, transform: dict[str, Any]
) -> None:
    with pytest.raises((InvalidParameter, InvalidVector)):
        space_of(dim, **transform)


@pytest.mark.parametrize("row", range(4))
def test_a_bad_row_among_vectors_of_several_forms_is_told_by_its_number(row: int) -> None:
    known = {"a": 0, "b": 1}

    def find(names: Sequence[str]) -> list[int]:
        for place, name in enumerate(names):
            if name not in known:
                raise InvalidVector(expected="a name of a coordinate", got=name, loc=(place,))
        return [known[name] for name in names]

    good: list[OneVector] = [np.ones(DIM), named_vector(["a"], [1]), SparseVector([3], [1]),
                             named_vector(["b", "a"], [1, 2])]  # fmt: skip
    assert len(InputVectors(mixed=good).check(space_of(DIM), find)) == len(good)
    bad: list[tuple[OneVector, tuple[str | int, ...]]] = [
        (named_vector(["a", "a"], [1, 2]), ("names", 1)),
        (named_vector(["a", "z"], [1, 2]), ("names", 1)),
        (named_vector(["a", "b"], [1]), ()),
        (SparseVector([3, 3], [1, 2]), ("indices",)),
    ]
    for vector, place in bad:
        mixed = [*good[:row], vector, *good[row + 1 :]]
        with pytest.raises(InvalidVector) as failure:
            InputVectors(mixed=mixed).check(space_of(DIM), find)
        assert failure.value.loc == (row, *place)
