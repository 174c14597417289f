"""Waiting for what another thread, process or machine does."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    holds: Callable[[], T], said: Callable[[], object] | None = None, *, seconds: float = 120.0
) -> T:
    """Return what is asked for once it is true; ``said`` tells why it never was."""
    end, pause = time.monotonic() + seconds, 0.002
    while not (found := holds()):
        assert time.monotonic() < end, said() if said else ""
        time.sleep(pause)
        pause = min(1.5 * pause, 0.05)
    return found
