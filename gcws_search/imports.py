"""Quick imports for processes of our own commands: no collector, no library that nobody calls.

A library that is installed beside ours is imported by libraries that can do without it, for types
that never reach them here.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quick_imports"]


@contextmanager
def quick_imports(*unused: str) -> Iterator[None]:
    """Import what follows without collecting garbage, and as if some modules were not there.

    Modules that are loaded already stay.

    Parameters
    ----------
    unused : str
        Dotted names of modules that others can do without.
    """
    hidden = [name for name in unused if name not in sys.modules]
    was_collecting = gc.isenabled()
    gc.disable()  # an import makes much that stays: going through it takes an eighth of its time
    try:
        for name in hidden:
            sys.modules[name] = None  # type: ignore[assignment]  # makes an import fail
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
        if was_collecting:
            gc.enable()
