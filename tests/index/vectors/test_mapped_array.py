"""Arrays in mapped files: they grow without copies, and leave nothing behind."""

import errno
import gc
import os
from pathlib import Path

import numpy as np
import pytest

from gcws_search.index.contracts.arrays import Float32s
from gcws_search.index.vectors.growing_rows import MappedArray

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
