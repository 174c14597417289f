"""Listing of lanes, and lowering of numbers in place."""

import numpy as np
import numpy.typing as npt
from numba import njit

from gcws_search.index.contracts.arrays import LANES
from gcws_search.index.kernels.lanes.vector import SPARE, append_less, load, lower, pointer, splat


@njit(nogil=True)
def _listed(values: npt.NDArray[np.float32], limit: np.float32, out: npt.NDArray[np.int32]) -> int:
    to_out = pointer(out)
    filled = 0
    for start in range(0, len(values), LANES):
        number = splat(np.int32(start))
        filled = append_less(to_out, filled, load(values, start), splat(limit), number)
    return filled


@njit(nogil=True)
def _lower(numbers: npt.NDArray[np.int64], place: int, value: np.int64) -> None:
    lower(pointer(numbers), place, value)


def test_lanes_below_a_limit_are_listed_in_order(rng: np.random.Generator) -> None:
    values = rng.random(LANES * 2000).astype(np.float32)
    for limit in (0.0, 0.05, 0.5, 0.95, 2.0):
        out = np.full(len(values) + SPARE + 1, -1, np.int32)
        filled = _listed(values, np.float32(limit), out)
        np.testing.assert_array_equal(out[:filled], np.flatnonzero(values < np.float32(limit)))
        assert np.all(out[filled + SPARE :] == -1)


def test_a_number_is_replaced_by_lesser_ones_alone() -> None:
    numbers = np.array([5, -(2**40), 7])
    for place, value in ((0, 4), (0, 6), (1, -(2**40) - 1), (1, 0), (2, 7)):
        _lower(numbers, place, np.int64(value))
    assert numbers.tolist() == [4, -(2**40) - 1, 7]
