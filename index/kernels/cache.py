"""numba's cache of compiled kernels: its folder, and what it does on a full or damaged disk."""

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Final

from numba.core import caching

_NUMBA: Any = caching
_CUT_SHORT: Final = EOFError, _NUMBA.pickle.UnpicklingError
"""What numba raises when a power cut has emptied a file."""


class KernelCache(caching.FunctionCache):
    """The cache of one compiled function: what it cannot read is compiled, and compiling goes on.

    numba's own ends the call of a function whose machine code it cannot write, or finds cut short.

    Attributes
    ----------
    failure : str or None
        Why some function of this process was not saved.
    """

    failure: ClassVar[str | None] = None

    @contextmanager
    def _guard_against_spurious_io_errors(self) -> Iterator[None]:
        """Guard numba's reading and writing; it takes what is not read as not cached."""
        try:
            yield
        except OSError as error:
            KernelCache.failure = str(error)
        except _CUT_SHORT:
            with suppress(OSError):
                self.flush()  # type: ignore[no-untyped-call]  # numba's


def cache_folder(here: Path, base: str, name: str) -> Path:
    """Return the first folder for compiled kernels that can be written to; make it.

    numba passes over a folder that it cannot write to, and takes one of its own. Its kernels are
    not named after the content of what they call. Where no folder can be written to, this process
    has one that ends with it.

    Parameters
    ----------
    here : Path
        Folder of the sources.
    base : str
        The folder that the user names; empty: beside the sources, or at home.
    name : str
        What the folder is called in any of them.
    """
    parents = [Path(base)] if base else []
    parents.append(here / "__pycache__")
    with suppress(RuntimeError):  # of a user without a home
        parents.append(Path.home() / ".cache" / "gcws-search")
    failure = ""
    for parent in parents:
        folder = parent / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError as error:
            failure = failure or str(error)
    KernelCache.failure = failure
    own = Path(tempfile.mkdtemp(prefix="gcws-search-"))
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return own / name
