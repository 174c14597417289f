"""The memory available to a process, and returning memory to the system."""

import ctypes
from pathlib import Path
from typing import Final

import psutil

_CGROUPS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""Where the kernel tells a container its limit."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt."""
_MAX_FREE: Final = 1 << 20
_MAX_IN_HEAP: Final = 32 << 20
"""Bytes that the heap of a thread holds free at its end, and those of its largest block. This is
what glibc comes to by itself for the second, but it holds up to twice as much free then, which
`give_memory_back` does not reach: 50 to 110 bytes an item after graphs were built."""


def memory_bytes() -> int:
    """Return the bytes of memory available to this process, by its container or machine."""
    limits = [_number(path) for path in _CGROUPS]
    limits.append(psutil.virtual_memory().total)
    return min(limit for limit in limits if limit is not None)


def bound_heaps() -> None:
    """Limit the free memory that the heap of each thread keeps, with glibc."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_TRIM_THRESHOLD, _MAX_FREE)
        set_option(_MMAP_THRESHOLD, _MAX_IN_HEAP)


def give_memory_back() -> None:
    """Return unused heap memory to the system, with glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # no such group, or "max"
        return None
