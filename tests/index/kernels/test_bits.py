"""Steps on the bits of lanes, beside numpy's."""

import numpy as np
import numpy.typing as npt
from numba import njit

from gcws_search.index.contracts.arrays import LANES
from gcws_search.index.kernels.lanes.vector import (
    load,
    product_of_halves,
    signed_shift,
    splat,
    store,
)

Int32s = npt.NDArray[np.int32]


@njit(nogil=True)
def _stepped(a: Int32s, b: Int32s, places: np.int32, shifted: Int32s, products: Int32s) -> None:
    for i in range(0, len(a), LANES):
        store(shifted, i, signed_shift(load(a, i), splat(places)))
        store(products, i, product_of_halves(load(a, i), load(b, i)))


def test_shifts_keep_the_sign_and_products_are_of_the_lower_halves(
    rng: np.random.Generator,
) -> None:
    a, b = rng.integers(-(2**31), 2**31, (2, 64 * LANES), dtype=np.int64).astype(np.int32)
    a[:4], b[:4] = (-1, 2**31 - 1, -(2**31), 0xFFFF), (-1, 0xFFFF, 1, 0xFFFF)
    shifted, products = np.empty_like(a), np.empty_like(a)
    _stepped(a, b, np.int32(23), shifted, products)
    np.testing.assert_array_equal(shifted, a >> 23)
    halves = (a.astype(np.int64) & 0xFFFF) * (b.astype(np.int64) & 0xFFFF)
    np.testing.assert_array_equal(products, halves >> 16)
