"""Compiled functions over arrays, one algorithm a file; nothing here knows of items or requests.

numba keeps what it has compiled on disk, and compiles anew when a function's own file has changed,
but not when a function called from it has. An upgrade could then mix old code with new, and hash
one vector in two ways. So the cache of compiled kernels lies in a folder that is named after the
content of all kernel files.

This is the one module that sets something when it is imported. numba opens the cache of a function
while its decorator runs. So the folder must be known before the first kernel is defined, and nobody
can hand it down. Names of the client side import neither numba nor this module.
"""

import hashlib
import os
from pathlib import Path
from typing import Any, Final

import numba

_HERE = Path(__file__).parent
_CONFIG: Any = numba.config


def _digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(_HERE.rglob("*.py")):
        digest.update(path.relative_to(_HERE).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _cache_folder() -> Path:
    """Return where kernels are kept: below NUMBA_CACHE_DIR, beside the sources, or at home."""
    if _CONFIG.CACHE_DIR:
        base = Path(_CONFIG.CACHE_DIR)
    elif os.access(_HERE, os.W_OK):
        base = _HERE / "__pycache__"
    else:
        base = Path.home() / ".cache" / "gcws-search"
    return base / f"kernels-{_digest()}"


CACHE_FOLDER: Final = _cache_folder()
"""Where compiled kernels of these sources are kept."""

# Set before any kernel is defined: its file is opened when the decorator runs.
_CONFIG.CACHE_DIR = str(CACHE_FOLDER)
