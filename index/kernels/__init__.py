"""Compiled functions over arrays, one algorithm a file; nothing here knows of items or requests.

numba keeps what it has compiled on disk, and compiles again when a function's own file has changed,
but not when a function called from it has. An upgrade could then mix old code with new, and hash
one vector in two ways. So the cache of compiled kernels lies in a folder that is named after the
content of all kernel files.

This is the one module that sets something when it is imported. numba opens the cache of a function
while its decorator runs. So the folder must be known before the first kernel is defined, and nobody
can hand it down. Names of the client side import neither numba nor this module.

- `cache`: the folder of compiled kernels, and what happens on a full disk
"""

import hashlib
from pathlib import Path
from typing import Any, Final

import numba
from numba.core import dispatcher

from gcws_search.index.kernels.cache import KernelCache, cache_folder

_HERE = Path(__file__).parent
_CONFIG: Any = numba.config
_DISPATCHER: Any = dispatcher


def _digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(_HERE.rglob("*.py")):
        digest.update(path.relative_to(_HERE).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


CACHE_FOLDER: Final = cache_folder(_HERE, _CONFIG.CACHE_DIR, f"kernels-{_digest()}")
"""Where compiled kernels of these sources are saved."""

# Set before any kernel is defined: its file is opened when the decorator runs.
_CONFIG.CACHE_DIR = str(CACHE_FOLDER)
_DISPATCHER.FunctionCache = KernelCache
