"""Memory of a process that the heap gives back."""

import ctypes
from pathlib import Path

import pytest

from gcws_search.index.memory import give_memory_back

BLOCKS = 20_000


def unmapped_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not glibc")
def test_memory_between_blocks_in_use_is_given_back() -> None:
    blocks = [bytearray(2000) for _ in range(BLOCKS)]
    last = blocks[-1]  # the heap cannot shrink at its end
    before = unmapped_bytes()
    del blocks
    give_memory_back()
    assert unmapped_bytes() < before - 1000 * BLOCKS
    assert len(last) == 2000
