"""Memory of a process that the heap gives back."""

import ctypes
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from gcws_search.index.memory import give_memory_back
from gcws_search.index.threads import Workers

BLOCKS = 20_000

glibc = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not glibc")


def unmapped_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


@glibc
def test_a_thread_that_lives_on_gives_back_what_it_used() -> None:
    Workers(1)
    with ThreadPoolExecutor(1) as pool:
        before = unmapped_bytes()
        for mebibytes in (31, 30):  # glibc takes the heap for the second, by what the first tells
            assert pool.submit(np.ones, mebibytes << 20, np.uint8).result()[-1]
        give_memory_back()
        assert unmapped_bytes() < before + (8 << 20)


@glibc
def test_memory_between_blocks_in_use_is_given_back() -> None:
    blocks = [bytearray(2000) for _ in range(BLOCKS)]
    last = blocks[-1]  # the heap cannot shrink at its end
    before = unmapped_bytes()
    del blocks
    give_memory_back()
    assert unmapped_bytes() < before - 1000 * BLOCKS
    assert len(last) == 2000
