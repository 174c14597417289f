"""Large arrays, and those that grow: aligned, and with the same entries in every view."""

import errno
import mmap
import os

import numpy as np
import pytest

from gcws_search.index.contracts.arrays import AddressSpace, Float32s, growable, large

EMPTY: Float32s = np.empty((0, 64), np.float32)
SMALL, LARGE, LARGER = 1000, 400_000, 700_000
"""Rows of 256 bytes: an array of `SMALL` is copied as it grows, the others are not."""


@pytest.mark.parametrize("count", [1, 1000, 20_000, 40_000])
def test_large_arrays_begin_with_a_cache_line(count: int) -> None:
    for _ in range(5):  # elsewhere in memory each time
        rows = large((count, 64), np.uint8)
        assert rows.shape == (count, 64)
        assert rows.ctypes.data % 64 == 0
        rows[:] = 7
        assert (rows == 7).all()


def grown(room: AddressSpace, array: Float32s, count: int, wanted: int) -> Float32s:
    """Return the array with room for more rows, each new one filled with its number."""
    array = room.with_room(array, count, wanted)
    array[count:wanted] = np.arange(count, wanted, dtype=np.float32)[:, None]
    return array


def test_an_array_of_any_size_grows_and_views_of_before_stay_valid() -> None:
    room, array, count = AddressSpace(), EMPTY, 0
    views = []
    for wanted in (1, SMALL, SMALL + 1, LARGE, LARGE + 1, LARGER):
        array = grown(room, array, count, wanted)
        count = wanted
        views.append(array[:count])
        assert len(array) >= count
        assert room.with_room(array, count, len(array)) is array
    for view in views:
        assert (view == np.arange(len(view), dtype=np.float32)[:, None]).all()


def test_a_large_array_stays_where_it_is() -> None:
    room = AddressSpace()
    first = grown(room, EMPTY, 0, LARGE)
    second = grown(room, first, LARGE, LARGER)
    assert second.ctypes.data == first.ctypes.data
    assert second.ctypes.data % (1 << 21) == 0  # a huge page begins here
    third = room.with_room(second, LARGER, LARGER + 1)
    assert LARGER * 9 // 8 <= len(third) <= LARGER * 9 // 8 + 1
    assert room.with_room(third, LARGER, 20 * LARGER).ctypes.data == first.ctypes.data


def test_an_array_that_is_adopted_grows_where_it_is() -> None:
    room, array = AddressSpace(), growable((LARGE, EMPTY.shape[1]), np.float32)
    array[:] = np.arange(LARGE, dtype=np.float32)[:, None]
    room.adopt(array)
    assert grown(room, array, LARGE, LARGER).ctypes.data == array.ctypes.data


def test_an_array_from_the_middle_of_another_or_without_address_space_is_copied() -> None:
    array = growable((LARGE, EMPTY.shape[1]), np.float32)
    exact = large((LARGE, EMPTY.shape[1]), np.float32)
    for other in (array[1:], exact, np.zeros((LARGE, EMPTY.shape[1]), np.float32)):
        room = AddressSpace()
        other[:] = np.arange(len(other), dtype=np.float32)[:, None]
        room.adopt(other)
        copied = grown(room, other, len(other), LARGER)
        assert copied.ctypes.data != other.ctypes.data
        assert (other == np.arange(len(other), dtype=np.float32)[:, None]).all()


def test_an_array_from_elsewhere_is_copied() -> None:
    room = AddressSpace()
    first = grown(room, EMPTY, 0, LARGE)
    for other in (np.full((10, 64), 7, np.float32), first[:10]):
        held = other.copy()
        copied = grown(room, other, 10, LARGE)
        assert copied.ctypes.data != first.ctypes.data
        assert (copied[:10] == held).all()
        assert (first == np.arange(LARGE, dtype=np.float32)[:, None]).all()


def test_where_the_system_refuses_address_space_growing_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    greatest, system = 2 * LARGER * EMPTY.itemsize * EMPTY.shape[1], mmap.mmap
    granted = []

    def given(fileno: int, length: int, flags: int) -> mmap.mmap:
        if length > greatest:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        granted.append(length)
        return system(fileno, length, flags=flags)

    monkeypatch.setattr(mmap, "mmap", given)
    room = AddressSpace()
    array = grown(room, EMPTY, 0, LARGE)
    array = grown(room, array, LARGE, LARGE + 1)
    assert len(array) == 2 * LARGE
    assert len(granted) == 2
    assert (array[: LARGE + 1] == np.arange(LARGE + 1, dtype=np.float32)[:, None]).all()
