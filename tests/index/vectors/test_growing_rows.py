"""Rows: they grow, and what a reader holds never changes."""

import ctypes
import errno
import gc
import mmap
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from gcws_search.index.contracts.arrays import AddressSpace, Float32s, growable, large
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.vectors.growing_rows import GrowingRows, MappedArray
from tests.support.data.adapters import LARGE_DIM, expanded_row, prepared, space_of

DIMS = [5, LARGE_DIM, None]


@pytest.fixture(params=["memory", "mapped"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    """Where the vectors are mapped, if they are."""
    return tmp_path if request.param == "mapped" else None


def batch_of(rng: np.random.Generator, dim: int | None, n: int) -> VectorBatch:
    rows = [
        {int(i): float(rng.standard_normal()) for i in rng.choice(5, rng.integers(1, 6), False)}
        for _ in range(n)
    ]
    return prepared(space_of(dim), rows)


def content(batch: VectorBatch) -> list[tuple[dict[int, float], float]]:
    return [(expanded_row(batch, i), float(batch.norms[i])) for i in range(len(batch))]


@pytest.mark.parametrize("dim", DIMS)
def test_rows_come_back_as_appended_and_views_of_before_stay_as_they_were(
    rng: np.random.Generator, dim: int | None, folder: Path | None
) -> None:
    rows = GrowingRows(space_of(dim).form, dim, folder)
    expected: list[tuple[dict[int, float], float]] = []
    views: list[VectorBatch] = []
    for n in (0, 1, 3, 0, 200, 64, 1, 700):
        batch = batch_of(rng, dim, n)
        rows.append(batch)
        expected += content(batch)
        for array in (batch.dense, batch.values, batch.norms):
            array.fill(7)  # rows do not change with the batch they came from
        assert len(rows) == len(rows.view()) == len(expected)
        views.append(rows.view())
    for view in views:
        assert content(view) == expected[: len(view)]


@pytest.mark.parametrize("dim", DIMS)
def test_taking_rows_keeps_the_chosen_ones_in_order_and_leaves_the_old_ones(
    rng: np.random.Generator, dim: int | None, folder: Path | None
) -> None:
    rows = GrowingRows(space_of(dim).form, dim, folder)
    rows.append(batch_of(rng, dim, 100))
    all_rows = content(rows.view())
    chosen = np.sort(rng.choice(100, 37, replace=False)).astype(np.int64)
    taken = rows.take(rows.view(), chosen)
    assert content(taken.view()) == [all_rows[i] for i in chosen]
    taken.append(batch_of(rng, dim, 10))
    assert len(taken) == 47
    assert content(taken.view())[:37] == [all_rows[i] for i in chosen]
    assert content(rows.view()) == all_rows
    assert len(rows.take(rows.view(), np.array([], np.int64))) == 0


@pytest.mark.parametrize("dim", DIMS)
def test_memory_is_counted_and_at_most_doubled(rng: np.random.Generator, dim: int | None) -> None:
    rows = GrowingRows(space_of(dim).form, dim)
    for _ in range(30):
        rows.append(batch_of(rng, dim, 100))
    view = rows.view()
    used = sum(
        array.nbytes for array in (view.dense, view.indptr, view.slots, view.values, view.norms)
    )
    assert used <= rows.nbytes <= 2 * used + 4096


def test_millions_of_entries_stay_where_they_are() -> None:
    rows, count = GrowingRows("sparse", None), 18_000_000
    batch = VectorBatch(
        "sparse",
        indptr=np.array([0, count], np.int64),
        slots=np.arange(count, dtype=np.uint32),
        values=np.arange(count, 2 * count, dtype=np.float32),
        norms=np.ones(1, np.float32),
    )
    rows.append(batch)
    first = rows.view()
    rows.append(batch)
    for name in ("slots", "values"):
        own, before = getattr(rows.view(), name), getattr(first, name)
        assert own.ctypes.data == before.ctypes.data
        assert (own.reshape(2, count) == getattr(batch, name)).all()


EMPTY: Float32s = np.empty((0, 16), np.float32)


def test_growing_shows_the_same_entries_in_every_view(tmp_path: Path) -> None:
    mapped = MappedArray(tmp_path)
    views: list[Float32s] = [EMPTY]
    for wanted in (1, 1000, 1001, 50_000, 300_000):
        first = len(views[-1])
        array = mapped.with_room(views[-1], first, wanted)
        assert len(array) >= wanted
        array[first:] = wanted
        views.append(array)
        assert mapped.with_room(array, len(array), len(array)) is array
    views[-1][0] = -1.0  # one file: whoever writes is seen by all
    for view in views[1:]:
        assert view.shape[1:] == (16,)
        assert (view == views[-1][: len(view)]).all()


def test_a_file_has_no_name_and_room_on_the_disk_before_anything_is_written(tmp_path: Path) -> None:
    mapped = MappedArray(tmp_path)
    before = {*os.listdir("/proc/self/fd")}
    array = mapped.with_room(EMPTY, 0, 100_000)
    assert not [*tmp_path.iterdir()]
    new = [int(each) for each in {*os.listdir("/proc/self/fd")} - before]
    sizes = [os.fstat(each) for each in new if _is_open(each)]
    held = [size for size in sizes if size.st_size >= array.nbytes]
    assert held
    assert all(512 * size.st_blocks >= array.nbytes for size in held)
    del array, mapped
    gc.collect()
    assert not [each for each in new if _is_open(each) and os.fstat(each) in held]


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def test_entries_written_by_the_file_are_seen_in_every_view(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    mapped, all_ = MappedArray(tmp_path), rng.standard_normal((5000, 16)).astype(np.float32)
    array, first = EMPTY, 0
    views = []
    for count in (1, 7, 1000, 3000, 992):
        array = mapped.with_room(array, first, first + count)
        mapped.write(array, first, all_[first : first + count])
        first += count
        views.append(array[:first])
    mapped.write(array, 10, all_[:20:2])  # with gaps in memory
    all_[10:20] = all_[:20:2].copy()
    for view in views:
        assert np.array_equal(view, all_[: len(view)])


def test_without_space_the_array_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped = MappedArray(tmp_path)
    array = mapped.with_room(EMPTY, 0, 10)
    array[:10] = 3.0

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        with pytest.raises(OSError, match="No space"):
            mapped.with_room(array, 10, 10**6)
    assert (array[:10] == 3.0).all()
    grown = mapped.with_room(array, 10, 10**5)
    assert (grown[:10] == 3.0).all()


NO_ROWS: Float32s = np.empty((0, 64), np.float32)
SMALL, LARGE, LARGER = 1000, 270_000, 330_000
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
    room, array, count = AddressSpace(), NO_ROWS, 0
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
    first = grown(room, NO_ROWS, 0, LARGE)
    second = grown(room, first, LARGE, LARGER)
    assert second.ctypes.data == first.ctypes.data
    assert second.ctypes.data % (1 << 21) == 0  # a huge page begins here
    third = room.with_room(second, LARGER, LARGER + 1)
    assert LARGER * 9 // 8 <= len(third) <= LARGER * 9 // 8 + 1
    assert room.with_room(third, LARGER, 20 * LARGER).ctypes.data == first.ctypes.data


@pytest.mark.skipif(sys.platform != "linux", reason="mincore of Linux")
@pytest.mark.parametrize("tail", [0, 1, 5000])
def test_no_memory_behind_an_array_is_taken(tail: int) -> None:
    page, huge = mmap.PAGESIZE, 1 << 21
    array = large(huge + tail, np.uint8)
    array[:] = 1
    first, last = (
        array.ctypes.data + each for each in (-(-(huge + tail) // page) * page, 2 * huge)
    )
    present = np.ones((last - first) // page, np.uint8)
    libc = ctypes.CDLL(None)
    wanted = (
        ctypes.c_void_p(first),
        ctypes.c_size_t(last - first),
        ctypes.c_void_p(present.ctypes.data),
    )
    assert libc.mincore(*wanted) == 0
    assert not (present & 1).any()


def test_an_array_that_is_adopted_grows_where_it_is() -> None:
    room, array = AddressSpace(), growable((LARGE, NO_ROWS.shape[1]), np.float32)
    array[:] = np.arange(LARGE, dtype=np.float32)[:, None]
    room.adopt(array)
    assert grown(room, array, LARGE, LARGER).ctypes.data == array.ctypes.data


def test_an_array_that_is_none_of_this_address_space_is_copied() -> None:
    """Be it the middle of another, one without address space, or from another place."""
    array = growable((LARGE, NO_ROWS.shape[1]), np.float32)
    exact = large((LARGE, NO_ROWS.shape[1]), np.float32)
    for other in (array[1:], exact, np.zeros((LARGE, NO_ROWS.shape[1]), np.float32)):
        room = AddressSpace()
        other[:] = np.arange(len(other), dtype=np.float32)[:, None]
        room.adopt(other)
        copied = grown(room, other, len(other), LARGER)
        assert copied.ctypes.data != other.ctypes.data
        assert (other == np.arange(len(other), dtype=np.float32)[:, None]).all()
    room = AddressSpace()
    first = grown(room, NO_ROWS, 0, LARGE)
    for few in (np.full((10, 64), 7, np.float32), first[:10]):
        held = few.copy()
        copied = grown(room, few, 10, LARGE)
        assert copied.ctypes.data != first.ctypes.data
        assert (copied[:10] == held).all()
        assert (first == np.arange(LARGE, dtype=np.float32)[:, None]).all()


def test_where_the_system_refuses_address_space_growing_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    greatest, system = 2 * LARGER * NO_ROWS.itemsize * NO_ROWS.shape[1], mmap.mmap
    granted = []

    def given(fileno: int, length: int, flags: int) -> mmap.mmap:
        if length > greatest:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        granted.append(length)
        return system(fileno, length, flags=flags)

    monkeypatch.setattr(mmap, "mmap", given)
    room = AddressSpace()
    array = grown(room, NO_ROWS, 0, LARGE)
    array = grown(room, array, LARGE, LARGE + 1)
    assert len(array) == 2 * LARGE
    assert len(granted) == 2
    assert (array[: LARGE + 1] == np.arange(LARGE + 1, dtype=np.float32)[:, None]).all()
