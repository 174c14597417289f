"""How much memory a process may have, and what it gives back."""

import ctypes
from pathlib import Path
from typing import Final

import psutil

_CGROUPS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""Where the kernel tells a container its limit."""


def memory_bytes() -> int:
    """Return how much memory this process may have, by its container or machine."""
    limits = [_number(path) for path in _CGROUPS]
    limits.append(psutil.virtual_memory().total)
    return min(limit for limit in limits if limit is not None)


def give_memory_back() -> None:
    """Give what the heap no longer uses back to the system, where the C library can (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # no such group, or "max"
        return None
