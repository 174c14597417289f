"""Faster imports for our own commands: no garbage collection, no optional libraries.

Some libraries import an optional one, such as pandas, although we never call what needs it.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quick_imports"]


@contextmanager
def quick_imports(*unused: str) -> Iterator[None]:
    """Import with garbage collection off and some modules blocked.

    Loaded modules stay. Until the block ends, other threads cannot import the others, and a
    library may remember that they were missing.

    Parameters
    ----------
    unused : str
        Dotted names of the modules to block.
    """
    hidden = [name for name in unused if name not in sys.modules]
    was_collecting = gc.isenabled()
    gc.disable()  # objects of an import stay, and collecting takes an eighth of its time
    try:
        for name in hidden:
            sys.modules[name] = None  # type: ignore[assignment]  # makes an import fail
        yield
    finally:
        for name in hidden:
            sys.modules.pop(name, None)
        if was_collecting:
            gc.enable()
