"""Waiting for what another thread, process or machine does."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_SHORTEST, _LONGEST = 0.002, 0.25
_SHARE = 0.1
"""Of the time waited so far, that passes between two looks: to look may take long itself."""


def wait_until(
    holds: Callable[[], T], said: Callable[[], object] | None = None, *, seconds: float = 120.0
) -> T:
    """Return what is asked for once it is true; ``said`` tells why it never was."""
    start = time.monotonic()
    while not (found := holds()):
        waited = time.monotonic() - start
        assert waited < seconds, said() if said else ""
        time.sleep(min(max(_SHARE * waited, _SHORTEST), _LONGEST))
    return found
